"""Generated C under the sanitizers, with inputs that no network was trained on: clean,
and `interp`'s integers.

    python -m tests.conformance.sanitizing [--kinds quantize,cast] [--cores x86_64_v3]   # make sanitize-ops

Every sample of every op is a segment of one program for each kind. 1 if anything is
found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.emit.c import CSRC, CSource, segment_source
from edgec.emit.program import ModelTable, SegmentEntry
from edgec.ir import Array, Graph, OpDef, TensorType, interp
from edgec.schedule.cores import PLAIN, Core, core
from tests.harness import X86, float16_graph, has, random_array, sample_graph

FLAGS = [
    "-std=c11",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",
    "-DEK_PROGRAM",
]
FLAGS += ["-DEK_ARENAS_APART"]  # or what leaves an arena lands in a larger one
SANITIZE = [
    "-fsanitize=address,undefined,float-cast-overflow",
    "-fno-sanitize-recover=all",
]
KINDS = sorted(kind for kind, cls in OpDef.registry.items() if cls.has_kernel())

_FLOATS = {
    "nan": [np.nan],
    "infinite": [np.inf, -np.inf],
    "denormal": [1e-45, -1e-45, 1e-39, 0.0, -0.0],
    "extreme": [3.4e38, -3.4e38, 1e30, -1e10],
    "some nan": [np.nan, 0.5, -2.0, 1e-45, np.inf, 7.0, -np.inf, 100.0],
}
CASES = ("usual", *_FLOATS, "bits")
"""What inputs hold.

Of integers: their ends, where floats are of a kind; `bits`: any bits at all.
"""


def samples_of(kind: str) -> list[Graph]:
    """The graphs of a kind's samples, and of each with float16 that has kernels for it."""
    wide = [sample_graph(sample) for sample in OpDef.registry[kind].samples()]
    halves = [float16_graph(graph) for graph in wide]
    return [*wide, *(graph for graph in halves if graph is not None)]


def hostile(t: TensorType, case: str, rng: np.random.Generator) -> Array:
    """Elements of a type."""
    if case == "usual" or t.dtype == "bool":
        return random_array(t, rng)
    if t.np_dtype.kind == "f":
        if case == "bits":
            return (
                rng.integers(0, 256, (*t.shape, t.np_dtype.itemsize), np.uint8)
                .view(t.np_dtype)
                .reshape(t.shape)
            )
        with np.errstate(over="ignore"):
            return rng.choice(np.array(_FLOATS[case]).astype(t.np_dtype), t.shape)
    info = np.iinfo(t.np_dtype)
    if case == "bits":
        return rng.integers(info.min, info.max, t.shape, t.np_dtype, endpoint=True)
    return rng.choice(
        np.array([info.min, info.max, 0, 1, info.max - 1], t.np_dtype), t.shape
    )


def write_program(graphs: Sequence[Graph], folder: Path, on: Core) -> None:
    """seg<i>.c and model.c: independent segments with tensors of their own."""
    tensors: dict[str, TensorType] = {}
    entries: list[SegmentEntry] = []
    inputs: list[str] = []
    outputs: list[str] = []
    for i, graph in enumerate(graphs):
        source = segment_source(graph, f"seg{i}", on, text="all")
        (folder / f"seg{i}.c").write_text(source.text)
        names = [
            [f"{i}/{v.name}" for v in values]
            for values in (graph.inputs, graph.outputs)
        ]
        for v, name in zip(
            [*graph.inputs, *graph.outputs], names[0] + names[1], strict=True
        ):
            tensors[name] = v.type
        ports = tuple(names[0]), tuple(names[1])
        entries.append(
            SegmentEntry(
                f"seg{i}", "cpu", *ports, source.plan.size, len(source.functions)
            )
        )
        inputs += names[0]
        outputs += names[1]
    (folder / "model.c").write_text(
        ModelTable("samples", tensors, entries, inputs, outputs).source()
    )


def own_variant(source: CSource) -> bool:
    """Whether a core of this machine computes it by kernels of its own."""
    return any(h.startswith(("avx2/", "vnni/", "simd/")) for h in source.headers)


def build(graphs: Sequence[Graph], folder: Path, on: Core, flags: Sequence[str]) -> str:
    """`main` of the folder; what gcc said, if it failed."""
    write_program(graphs, folder, on)
    sources = [*sorted(folder.glob("*.c")), CSRC / "main.c"]
    command = [
        "gcc",
        *FLAGS,
        *flags,
        *SANITIZE,
        f"-I{CSRC}",
        *map(str, sources),
        "-lm",
        "-o",
        str(folder / "main"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr[-3000:] if done.returncode else ""


def found(
    graphs: Sequence[Graph],
    folder: Path,
    on: Core,
    flags: Sequence[str],
    cases: Sequence[str],
) -> Iterator[str]:
    """What a sanitizer says of these graphs' C, and where its integers are not those of
    `interp`, case by case.
    """
    if said := build(graphs, folder, on, flags):
        yield said
        return
    for case in cases:
        rng = np.random.default_rng(CASES.index(case))
        given = [{v.name: hostile(v.type, case, rng) for v in g.inputs} for g in graphs]
        yield from (f"{case}: {what}" for what in _run(graphs, given, folder))


def _run(
    graphs: Sequence[Graph], given: Sequence[Mapping[str, Array]], folder: Path
) -> Iterator[str]:
    files = []
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for i, (g, inputs) in enumerate(zip(graphs, given, strict=True)):
        for j, v in enumerate(g.inputs):
            files.append(str(folder / f"in{i}_{j}.npy"))
            np.save(
                files[-1], np.ascontiguousarray(inputs[v.name]).reshape(v.type.shape)
            )
    command = [
        str(folder / "main"),
        "--runs",
        "1",
        "--output",
        str(out),
        *(["--input", *files] if files else []),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if done.returncode:
        yield done.stderr[-3000:]
        return
    number = 0
    for i, (g, inputs) in enumerate(zip(graphs, given, strict=True)):
        with np.errstate(all="ignore"):
            want = interp(g, inputs)
        for v in g.outputs:
            got = np.load(out / f"output{number}.npy")
            number += 1
            if v.type.np_dtype.kind != "f" and not np.array_equal(got, want[v.name]):
                at = np.flatnonzero(got.reshape(-1) != want[v.name].reshape(-1))
                pair = got.reshape(-1)[at[0]], want[v.name].reshape(-1)[at[0]]
                yield (
                    f"sample {i}, {g.ops[-1]!r}: {len(at)} other integers, "
                    f"first {pair[0]} for {pair[1]}"
                )


def cores(names: Sequence[str]) -> Iterator[tuple[Core, list[str]]]:
    """Those that this machine runs, with gcc's flags."""
    for name in names:
        if name == "plain":
            yield PLAIN, []
        elif has(X86[name][0]):
            yield core(name), X86[name][1]


def main() -> int:
    """Prints what is found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="of ops, with commas")
    parser.add_argument(
        "--cores", default=",".join(("plain", *X86)), help="with commas"
    )
    given = parser.parse_args()
    bad = 0
    runs = 0
    for kind in given.kinds.split(","):
        graphs = samples_of(kind)
        for on, flags in cores(given.cores.split(",")) if graphs else ():
            some = [
                g
                for g in graphs
                if on is PLAIN or own_variant(segment_source(g, "seg", on))
            ]
            if not some:
                continue
            with tempfile.TemporaryDirectory(prefix="edgec-") as tmp:
                runs += len(some) * len(CASES)
                for what in found(some, Path(tmp), on, flags, CASES):
                    bad += 1
                    print(f"{kind} on {on.name}: {what}", flush=True)
    print(f"{runs} samples by cases: {bad} found")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
