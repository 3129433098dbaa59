"""Networks of PyTorch through both of its exporters, and as modules: the same outputs
as torch's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgec
from edgec.compiler.native import NativeGraph, native_compiler
from edgec.errors import InputError
from edgec.frontends import read_model
from edgec.ir import Array, Graph
from edgec.passes.pipeline import optimize
from tests.cli.verbs import edgec as verb

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: pip install 'edgec[torch]' runs these"
)
pytest.importorskip(
    "onnxscript",
    reason="onnxscript is not installed: pip install 'edgec[torch]' runs these",
)
if torch is not None:
    from tests.torch import classify, dense  # noqa: F401 (they enter their networks)
    from tests.torch.layers import NETS

pytestmark = pytest.mark.slow


def _module(name: str) -> Any:
    torch.manual_seed(0)
    module = NETS[name]().eval()
    for m in module.modules():  # as training leaves them: not 0 and 1
        if isinstance(m, torch.nn.BatchNorm2d):
            m.running_mean.uniform_(-0.2, 0.2)
            m.running_var.uniform_(0.5, 1.5)
    return module


def _agree(graph: Graph, module: Any, x: Any) -> None:
    with torch.no_grad():
        wanted = module(x)
    run = NativeGraph(optimize(graph), native_compiler("gcc"))
    (name,) = [v.name for v in graph.inputs]
    got = run({name: x.numpy()}, None)
    for v, want in zip(
        graph.outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        _near(got[v.name], want.numpy())


def _near(got: Array, want: Array) -> None:
    assert got.shape == want.shape
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
    else:
        span = max(float(np.ptp(want)), float(np.abs(want).max()), 1e-6)
        assert float(np.abs(got - want).max()) <= 1e-4 * span


@pytest.mark.parametrize("name", NETS)
def test_both_exporters(name: str, tmp_path: Path) -> None:
    module = _module(name)
    x = torch.rand(1, 3, 32, 32)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "new.pt2")
    torch.onnx.export(module, (x,), tmp_path / "old.onnx", dynamo=False)
    for file in ("new.pt2", "old.onnx"):
        _agree(read_model(tmp_path / file), module, x)


def test_forty_networks() -> None:
    assert len(NETS) >= 40


def test_a_module_becomes_a_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = _module("squeezenet").train()
    x = np.random.default_rng(0).random((1, 3, 32, 32), np.float32)
    done = edgec.compile(module, example_inputs=[x])
    assert done.path == Path("Sequential.edgec")
    assert module.training
    got = edgec.run(done.path, {done.network.lowered.read.graph.inputs[0].name: x})
    with torch.no_grad():
        _near(next(iter(got.values())), module.eval()(torch.from_numpy(x)).numpy())


def test_a_pt2_file_on_the_command_line(tmp_path: Path) -> None:
    torch.export.save(
        torch.export.export(_module("vgg"), (torch.rand(1, 3, 32, 32),)),
        tmp_path / "vgg.pt2",
    )
    done = verb("compile", "vgg.pt2", cwd=tmp_path)
    assert (done.code, (tmp_path / "vgg.edgec").exists()) == (0, True), done.err


def test_what_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"no")
    with pytest.raises(InputError, match="is not a network that"):
        read_model(tmp_path / "m.pt2")
    with pytest.raises(InputError, match="a module says no shapes"):
        edgec.compile(_module("vgg"))
    with pytest.raises(InputError, match="cannot export it"):
        edgec.compile(_module("vgg"), example_inputs=[torch.rand(1, 5, 32, 32)])
    with pytest.raises(InputError, match="neither a file nor a"):
        edgec.compile(print)
