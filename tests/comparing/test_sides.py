"""Whatever runs a network, values of one name are compared; what each side shows is
what its code computes.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import edgec
from edgec.compiler.bundle_side import BundleSide
from edgec.emit.tflite import write_tflite
from edgec.errors import BundleError, InputError
from edgec.ir import Array, Builder, Quant, Value, interp
from edgec.measure.agreement import Tally
from edgec.ops.binary import Mul
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice
from edgec.options.diff import DiffOptions
from edgec.report.diff.text import changed
from edgec.verbs.diff import diff, parsed
from edgec.verbs.diff_sides import InterpSide
from tests.comparing.nets import as_c, compared, small
from tests.conftest import ROOT

DIGITS = ROOT / "fixtures" / "digits"
CARTOON = ROOT / "fixtures" / "cartoon" / "cartoon.onnx"
PHOTOS = ROOT / "fixtures" / "photos"


@pytest.fixture(scope="module")
def int8_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small network as an int8 .tflite, and beside it inputs."""
    folder = tmp_path_factory.mktemp("int8")
    _, int8, tries = small()
    (folder / "small.tflite").write_bytes(write_tflite(int8))
    np.savez(folder / "x.npz", x=np.stack([s["x"] for s in tries]))
    return folder / "small.tflite"


def test_own_and_inherited_noise_are_apart() -> None:
    """A layer whose bias is wrong has noise of its own; those behind inherit it, and
    have none beyond rounding.
    """
    floats, int8, tries = small()
    twin = int8.copy()
    first = twin.ops[1]
    bias = first.inputs[2]
    assert bias.const is not None
    first.inputs[2] = Value(bias.name, bias.type, bias.const + 4000)
    right = {
        one.value: one
        for one in compared(
            InterpSide("a", floats), InterpSide("b", int8), tries[:2], 0
        ).layers
    }
    found = compared(InterpSide("a", floats), InterpSide("b", twin), tries[:2], 0)
    assert found.culprit is not None
    assert found.culprit.value == first.output.name
    for one in found.layers:
        if one.value == first.output.name:
            assert one.own_db is not None
            assert one.own_db < (right[one.value].own_db or 0) - 10
        else:
            assert one.own_db == right[one.value].own_db
    behind = found.layers[2]
    assert behind.inherited_db is not None
    assert behind.inherited_db < (right[behind.value].inherited_db or 0) - 10


@pytest.mark.cc
def test_c_and_interp_have_no_difference_in_int8() -> None:
    _, int8, tries = small()
    found = compared(InterpSide("a", int8), as_c("b", int8), tries[:2])
    assert found.culprit is None
    assert [one.sqnr_db for one in found.layers] == [np.inf] * len(int8.ops)
    assert [one.law for one in found.layers] == [0] * len(int8.ops)


@pytest.mark.cc
def test_litert_shows_every_tensor_of_a_file(int8_file: Path) -> None:
    request = DiffOptions(
        f"litert:{int8_file}", f"c:{int8_file}", int8_file.parent / "x.npz", samples=3
    )
    found = diff(request)
    assert found.culprit is None
    assert {one.sqnr_db for one in found.layers} == {np.inf}
    assert len(found.layers) == len(small()[1].ops)
    optimised = diff(
        DiffOptions(
            f"interp:{int8_file}",
            f"litert-opt:{int8_file}",
            int8_file.parent / "x.npz",
            samples=2,
        )
    )
    assert all(one.law is not None for one in optimised.layers)


@pytest.mark.cc
def test_onnxruntime_is_matched_through_the_layout() -> None:
    """It has channels first, and edgec last; and nothing but the rounding of float32 is
    between them.
    """
    inputs = DIGITS / "digits_calibration.npz"
    model = DIGITS / "digits.onnx"
    for pair in (
        (f"onnxruntime:{model}", str(model)),
        (f"interp:{model}", f"onnxruntime:{model}"),
    ):
        found = diff(DiffOptions(*pair, inputs, samples=3))
        assert found.culprit is None, found.culprit
        assert len(found.layers) >= 4
        assert all(one.sqnr_db > 100 for one in found.layers)


@pytest.mark.sweep(1)
@pytest.mark.slow
@pytest.mark.cc
@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("host", {"allow_float": True}),
        ("pi4+coral", {"calibrate": PHOTOS, "quantize": "fast"}),
    ],
)
def test_a_bundle_shows_what_its_code_stores(
    target: str, options: dict[str, Path | bool], tmp_path: Path
) -> None:
    """Fused, in place and over again in one arena: each value as interp has it, when
    its code has written it.
    """
    made = edgec.compile(CARTOON, target, tmp_path / "m.edgec", **options)  # type: ignore[arg-type]
    sample = made.network.lowered.samples.verify[0]
    got = dict[str, Array]()
    want = dict[str, Array]()
    known = dict(sample)

    def keep(into: dict[str, Array]) -> object:
        def see(v: Value, array: Array) -> None:
            into[v.name] = array.copy()

        return see

    side = BundleSide("m", tmp_path / "m.edgec", "c")
    outputs = side.run(sample, keep(got))  # type: ignore[arg-type]
    side.close()
    for s in made.network.lowered.partition.segments:
        known |= interp(
            s.graph,
            {v.name: known[v.name] for v in s.graph.inputs},
            keep(want),  # type: ignore[arg-type]
        )
    assert outputs.keys() == {"output"}
    assert len(got) > 0.8 * len(want)
    for name, array in got.items():
        if array.dtype.kind == "f":
            assert (
                np.abs(array - want[name]).max() <= 1e-3 * np.abs(want[name]).max()
            ), name
        else:
            np.testing.assert_array_equal(array, want[name], name)


@pytest.mark.slow
@pytest.mark.cc
def test_a_model_and_its_bundle(tmp_path: Path) -> None:
    calibrate = DIGITS / "digits_calibration.npz"
    model = DIGITS / "digits.onnx"
    edgec.compile(
        model, "host", tmp_path / "d.edgec", calibrate=calibrate, quantize="fast"
    )
    found = edgec.diff(model, tmp_path / "d.edgec", calibrate, samples=4)
    assert found.culprit is not None
    assert not found.culprit.fault
    assert found.least() > 20
    same = edgec.diff(f"int8:{model}", tmp_path / "d.edgec", calibrate, samples=4)
    assert same.culprit is None
    assert same.least() == np.inf


@pytest.mark.slow
@pytest.mark.cc
def test_samples_whose_class_changes_are_named(tmp_path: Path) -> None:
    """By the labels of the bundle; of a network whose outputs are turned upside down,
    all of them.
    """
    graph = small()[0].copy()
    tries = small()[2]
    build = Builder(graph)
    flat = build.add(Reshape((1, 8 * 8 * 12)), [graph.outputs[0]], "row")
    graph.outputs = [build.add(Slice((0, 0), (1, 4), (1, 1)), [flat], "scores")]
    twin = graph.copy()
    turned = Builder(twin)
    twin.outputs = [
        turned.add(
            Mul(), [twin.outputs[0], turned.const(np.full(1, -1, np.float32))], "turned"
        )
    ]
    for name, g in (("a", graph), ("b", twin)):
        (tmp_path / f"{name}.tflite").write_bytes(write_tflite(g))
    (tmp_path / "labels.txt").write_text("cat\ndog\nfox\nowl\n")
    np.savez(tmp_path / "x.npz", x=np.stack([s["x"] for s in tries]))
    edgec.compile(
        tmp_path / "b.tflite",
        "host",
        tmp_path / "b.edgec",
        labels=tmp_path / "labels.txt",
    )
    found = edgec.diff(
        tmp_path / "a.tflite", tmp_path / "b.edgec", tmp_path / "x.npz", samples=3
    )
    (output,) = found.outputs.values()
    assert output.agreement.top1 == 0
    assert output.tops is not None
    assert [at for at, _, _ in output.tops] == [0, 1, 2]
    (said,) = changed(found)
    assert "sample 0" in said
    assert (
        f"{found.labels[output.tops[0][1]]} → {found.labels[output.tops[0][2]]}" in said
    )


def test_what_cannot_be_compared_is_told(int8_file: Path, tmp_path: Path) -> None:
    inputs = int8_file.parent / "x.npz"
    for a, b, said in (
        ("nothing.onnx", "nothing.onnx", "no such file"),
        (f"litret:{int8_file}", str(int8_file), "litert"),
        (f"onnxruntime:{int8_file}", str(int8_file), "onnxruntime runs .onnx files"),
        (f"int8:{int8_file}", str(int8_file), "quantized already"),
        (f"edgetpu:{int8_file}", str(int8_file), "compile the model"),
        (str(int8_file), str(inputs), "neither a model nor a bundle"),
    ):
        with pytest.raises(InputError, match=said):
            diff(DiffOptions(a, b, inputs))
    with pytest.raises(InputError, match="--samples"):
        diff(DiffOptions(str(int8_file), str(int8_file), inputs, samples=0))


def test_a_path_with_a_colon_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c:net.onnx").touch()
    assert parsed("c:net.onnx") == ("", Path("c:net.onnx"))
    assert parsed("interp:net.onnx") == ("interp", Path("net.onnx"))


def test_a_nearly_constant_channel_does_not_flatter() -> None:
    """Two channels, about 1 and about 0, that hardly move: as a whole they have a mean
    and a spread.
    """
    rng = np.random.default_rng(0)
    want = np.stack([1 - 0.01 * rng.random(1000), 0.01 * rng.random(1000)], -1)
    tally = Tally()
    tally.add(want, want + 0.002 * rng.standard_normal(want.shape))
    assert tally.sqnr_db() > 45
    assert tally.centred_sqnr_db() > 45
    assert 0 < tally.channels_sqnr_db() < 10


@pytest.mark.parametrize(("factor", "by"), [(1.5, 0), (1.0, 3)])
def test_another_scale_or_zero_point_of_one_result_is_named(
    factor: float, by: int
) -> None:
    """Where all agree on it no value is wrong, only rounded otherwise: between two int8
    networks that is seen.
    """
    _, int8, tries = small()
    for at in range(1, 5):
        twin = int8.copy()
        v = twin.ops[at].output
        q = v.type.quant
        assert q is not None
        v.type = v.type.with_quant(
            Quant((float(np.float32(q.scale[0] * factor)),), (q.zero_point[0] + by,))
        )
        found = compared(InterpSide("a", int8), InterpSide("b", twin), tries[:2], 0)
        assert found.culprit is not None
        assert found.culprit.value == v.name
        assert found.culprit.finding == ("gain" if factor != 1 else "offset")


def test_a_manifest_that_says_less_than_the_library_reads(
    int8_file: Path, tmp_path: Path
) -> None:
    bundle = edgec.compile(int8_file, output=tmp_path / "m.edgec", cc="gcc").path
    lying = tmp_path / "lying.edgec"
    with zipfile.ZipFile(bundle) as whole, zipfile.ZipFile(lying, "w") as out:
        for name in whole.namelist():
            data = whole.read(name)
            if name == "manifest.json":
                manifest = json.loads(data)
                manifest["segments"][0]["inputs"] = []
                data = json.dumps(manifest).encode()
            out.writestr(name, data)
    with pytest.raises(
        BundleError, match="other inputs or outputs than the manifest says"
    ):
        BundleSide("lying", lying, "c")
