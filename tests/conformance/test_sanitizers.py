"""The generated C of every op under both sanitizers: the samples of a kind are the segments of one program."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.emit.c import CSRC, segment_source
from edgec.emit.program import SegmentEntry, model_source
from edgec.ir import Graph, OpDef, TensorType
from edgec.schedule.cores import PLAIN, Core, core
from tests.harness import X86, has, sample_graph

FLAGS = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-DEK_PROGRAM"]
FLAGS += ["-DEK_ARENAS_APART"]  # or what leaves an arena lands in a larger one
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]

KINDS = sorted(kind for kind, cls in OpDef.registry.items() if cls.has_kernel())


def _write_program(graphs: list[Graph], folder: Path, on: Core) -> None:
    """seg<i>.c and model.c: independent segments with tensors of their own."""
    tensors: dict[str, TensorType] = {}
    entries: list[SegmentEntry] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for i, graph in enumerate(graphs):
        source = segment_source(graph, f"seg{i}", on, text="all")
        (folder / f"seg{i}.c").write_text(source.text)
        names = [[f"{i}/{v.name}" for v in values] for values in (graph.inputs, graph.outputs)]
        for v, name in zip([*graph.inputs, *graph.outputs], names[0] + names[1], strict=True):
            tensors[name] = v.type
        ports = tuple(names[0]), tuple(names[1])
        entries.append(SegmentEntry(f"seg{i}", "cpu", *ports, source.plan.size, len(source.functions)))
        inputs += names[0]
        outputs += names[1]
    (folder / "model.c").write_text(model_source("samples", tensors, entries, inputs, outputs))


@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_samples_run_clean(kind: str, tmp_path: Path) -> None:
    graphs = [sample_graph(sample) for sample in OpDef.registry[kind].samples()]
    if not graphs:
        pytest.skip(f"{kind} is read from files as other ops")
    _run_clean(graphs, tmp_path, PLAIN, [])


@pytest.mark.cc
@pytest.mark.slow
@pytest.mark.parametrize("name", X86)
def test_variants_run_clean_on_x86(name: str, tmp_path: Path) -> None:
    """The samples that this core computes by kernels of its own."""
    feature, flags = X86[name]
    if not has(feature):
        pytest.skip(f"this processor has no {feature}")
    samples = [sample_graph(sample) for kind in KINDS for sample in OpDef.registry[kind].samples()]
    own = ("avx2/", "vnni/")
    found = [g for g in samples if any(h.startswith(own) for h in segment_source(g, "seg", core(name)).headers)]
    assert found
    _run_clean(found, tmp_path, core(name), flags)


def _run_clean(graphs: list[Graph], folder: Path, on: Core, flags: list[str]) -> None:
    _write_program(graphs, folder, on)
    sources = [*sorted(folder.glob("*.c")), CSRC / "main.c"]
    command = ["gcc", *FLAGS, *flags, *SANITIZE, f"-I{CSRC}", *map(str, sources), "-lm", "-o", str(folder / "main")]
    compiled = subprocess.run(command, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr[-3000:]
    done = subprocess.run([folder / "main", "--runs", "1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
