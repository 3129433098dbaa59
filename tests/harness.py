"""Running one graph in every way that must agree: interp, generated C, the emitted
TFLite on the reference kernels.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from edgec.emit.c import CSRC, CSource, segment_source
from edgec.emit.elements import inclusion
from edgec.emit.tflite import write_tflite
from edgec.float16.convert import can_be_float16
from edgec.ir import Array, Builder, Graph, Op, Sample, TensorType
from edgec.ir.float16 import narrowed, rounded
from edgec.ir.interp import initial
from edgec.schedule.cores import PLAIN, Core
from edgec.toolchain.cc import Compiler

FLOAT_TOLERANCE = 1e-5
LIBRARY = "seg.so"
NO_REFERENCE = {
    "sum": "its reference kernel reads int8 as uint8",
    "elu": "it has none",
    "ceil": "it has none",
    "round": "it has none",
    "depth_to_space": "it has none for int8",
}
"""Ops for which LiteRT's builtin kernel is the law, and why."""


X86 = {
    "x86_64_v3": ("avx2", ["-march=x86-64-v3"]),
    "x86_64_v4_vnni": (
        "avx512_vnni",
        ["-march=x86-64-v4", "-mavx512vnni"],
    ),
}
"""Cores of this machine: what Linux calls the last of their features, and what gcc must
be told.
"""


def has(feature: str) -> bool:
    """Whether this processor has a feature, as Linux names it; no where it is unknown."""
    path = Path("/proc/cpuinfo")
    return path.exists() and feature in path.read_text().split()


def random_array(t: TensorType, rng: np.random.Generator) -> Array:
    """Random data of a type: normal floats, all integers of the quantized range, small
    biases and indices.
    """
    if t.np_dtype.kind == "f":
        return rng.normal(size=t.shape).astype(t.dtype)
    if t.dtype == "bool":
        return rng.integers(0, 2, t.shape).astype(bool)
    info = np.iinfo(t.np_dtype)
    low, high = (info.min, info.max) if t.dtype in ("int8", "uint8") else (-100, 100)
    return rng.integers(max(low, info.min), high + 1, t.shape).astype(t.dtype)


def sample_graph(sample: Sample, seed: int = 0) -> Graph:
    """The graph of one sample: its non-constant args are the inputs."""
    rng = np.random.default_rng(seed)
    build = Builder("sample")
    values = []
    for i, arg in enumerate(sample.args):
        if arg.const:
            data = arg.data if arg.data is not None else random_array(arg.type, rng)
            values.append(build.const(data, f"c{i}", arg.type.quant))
        else:
            values.append(build.input(f"x{i}", arg.type))
    outputs = build.add_multi(sample.spec, values, "y")
    for y in outputs:
        if sample.output_quant is not None:
            y.type = y.type.with_quant(sample.output_quant)
    build.graph.outputs = list(outputs)
    return build.graph


def has_floats(graph: Graph) -> bool:
    """Whether any value of a graph is float32."""
    return any(v.type.dtype == "float32" for v in graph.values())


def float16_graph(graph: Graph) -> Graph | None:
    """A graph of floats with float16 in place of every float32.

    None without floats, or if csrc lacks a kernel for an op.
    """
    if not has_floats(graph) or not all(map(can_be_float16, graph.ops)):
        return None
    half = graph.copy()
    for v in half.values():
        v.type = narrowed(v.type)
        if v.const is not None:
            v.const = rounded(v.const)
    return half


def random_inputs(graph: Graph, seed: int = 1) -> dict[str, Array]:
    """Random data for every input of a graph."""
    rng = np.random.default_rng(seed)
    return {v.name: random_array(v.type, rng) for v in graph.inputs}


_EXTREMES: Mapping[str, Array] = {
    "largest": np.array([3e38, -3e38, 1, -1, 0.5, 0]),
    "large": np.array([1e20, -1e20, 1e5, -1e4, 100, -100]),
    "denormal": np.array([1e-39, 1e-40, -1e-40, 1e-45, 0]),
}
"""Numbers at which a formula overflows or underflows on the way, though its result is
finite.
"""

MANY_OPS = 40
"""So many ops of a graph are named in a failure."""

LARGE_MEAN = "large mean"


def extreme_inputs(graph: Graph, seed: int = 5) -> dict[str, dict[str, Array]]:
    """Inputs by what is extreme about their floats; none for a graph without float
    inputs.

    Sums of products get no numbers near the largest, and those of two computed operands
    no large ones: whether they overflow on the way depends on the order in which one
    adds.
    """
    floats = [v for v in graph.inputs if v.type.dtype == "float32"]
    if not floats:
        return {}
    rng = np.random.default_rng(seed)
    others = random_inputs(graph)
    if sums_products(graph):
        left_out = {"largest"} if len(floats) < 2 else {"largest", "large"}
    else:
        left_out = set()
    found = {
        LARGE_MEAN: {
            v.name: 1000 + 0.1 * rng.standard_normal(v.type.shape) for v in floats
        }
    }
    for name, numbers in _EXTREMES.items():
        if name not in left_out:
            found[name] = {v.name: rng.choice(numbers, v.type.shape) for v in floats}
    return {
        name: {**others, **{n: x.astype(np.float32) for n, x in data.items()}}
        for name, data in found.items()
    }


_NAN_PARTS = {"one NaN": 0.0, "some NaN": 0.2, "all NaN": 1.0}
"""The shares of elements that are NaN, beside the one that always is."""


NAN = {"arm": np.nan, "x86": -np.nan}
"""What a processor makes of 0 / 0; they differ in the sign."""


def with_nan(
    x: Array, part: float, rng: np.random.Generator, nan: float = NAN["x86"]
) -> Array:
    """A copy of floats where one element is NaN, and any other with a probability."""
    is_nan = rng.random(x.shape) < part
    if x.size:
        is_nan.flat[rng.integers(x.size)] = True
    return np.where(is_nan, np.array(nan, x.dtype), x)


def nan_inputs(
    graph: Graph, nan: float = NAN["x86"], seed: int = 6
) -> dict[str, dict[str, Array]]:
    """Inputs by how much of their floats is NaN; none for a graph without float inputs."""
    floats = [v.name for v in graph.inputs if v.type.np_dtype.kind == "f"]
    if not floats:
        return {}
    rng = np.random.default_rng(seed)
    usual = random_inputs(graph)
    return {
        name: {**usual, **{n: with_nan(usual[n], part, rng, nan) for n in floats}}
        for name, part in _NAN_PARTS.items()
    }


def but_for_nan_of_zeros(
    graph: Graph, functions: Iterable[str], got: Array, want: Array
) -> Array:
    """A result of the reference with NaN where kernels may have it, and not elsewhere.

    NaN times a weight of zero is not the same in all of them (docs/accuracy.md):
    Winograd's transforms, and groups that share a vector, have such products where the
    graph has none; kernels of sparse weights leave them out.
    """
    names = " ".join(functions)
    adds_products = "winograd" in names or any(map(_has_groups, graph.ops))
    if adds_products and want.dtype.kind == "f":
        want = np.where(np.isnan(got), got, want)
    if "sparse" in names:
        want = np.where(np.isnan(want), got, want)
    return want


def _has_groups(op: Op) -> bool:
    """Whether an op is a convolution of several groups."""
    if op.kind != "conv2d":
        return False
    x, w = (v.type.shape for v in op.inputs[:2])
    return x[3] != w[3]


_WEIGHTED = (
    "transform_landmarks",
    "resize_bilinear",
    "resize_cubic",
    "grid_sample",
    "roi_align",
)
"""Kinds whose sums of weighted elements are not counted as multiply-accumulates."""


def sums_products(graph: Graph) -> bool:
    """Whether an op adds up products, so that its rounding errors are those of its
    terms and not of its result.
    """
    return any(op.spec.macs(op) or op.kind in _WEIGHTED for op in graph.ops)


def assert_near(
    graph: Graph, got: Mapping[str, Array], want: Mapping[str, Array], case: str
) -> None:
    """Integers bit for bit; floats within 1e-5 of the range of the finite ones, or four
    units of the last place.

    Of sums of products the largest magnitude counts in place of the range. Numbers
    below the normal ones may be zero: generated code has the processor flush them. What
    is not finite is the same in both. case: what a failure is of.
    """
    for name, y in want.items():
        mine = got[name]
        finite = np.isfinite(y) if y.dtype.kind == "f" else np.zeros(y.shape, bool)
        np.testing.assert_array_equal(mine[~finite], y[~finite], err_msg=case)
        if finite.any():
            exact = y[finite].astype(np.float64)
            largest = np.abs(y[finite]).max()
            span = float(largest) if sums_products(graph) else float(np.ptp(exact))
            allowed = max(
                1e-5 * span,
                4 * float(np.spacing(largest)),
                float(np.finfo(np.float32).tiny),
            )
            difference = np.abs(mine[finite].astype(np.float64) - exact)
            assert np.isfinite(difference).all(), (
                f"{case}: not finite where {exact[~np.isfinite(difference)][0]} is"
            )
            assert difference.max() <= allowed, (
                f"{case}: {difference.max()} of {span}, {allowed} allowed"
            )


def run_c(
    graph: Graph,
    inputs: Mapping[str, Array],
    compiler: Compiler | None = None,
    core: Core = PLAIN,
) -> dict[str, Array]:
    """Compile the graph's C and run it in this process."""
    source = segment_source(graph, "seg", core)
    with tempfile.TemporaryDirectory() as tmp:
        build_library(source.text, Path(tmp), compiler or Compiler.native("gcc"))
        return run_segment(
            Path(tmp) / LIBRARY, source, graph, {**initial(graph), **inputs}
        )


_DECLARED = re.compile(
    r"^(?:static const \w+|EK_OP void|    (?=\w+ = \d+,)) ?(\w+)", re.MULTILINE
)
"""The names that a generated file has for itself: its constants, functions and offsets."""


def inclusions(sources: Sequence[CSource]) -> list[str]:
    """The lines by which one C text has every header of several."""
    headers = {h for source in sources for h in source.headers}
    return [inclusion(h) for h in sorted(headers)]


def joined(sources: Sequence[CSource]) -> str:
    """One C text of several: the files follow each other as they are, and the
    preprocessor gives the names of each an end of their own.
    """
    text = inclusions(sources)
    for source in sources:
        names = sorted(set(_DECLARED.findall(source.text)))
        text += [f"#define {name} {name}_of_{source.name}\n" for name in names]
        text += [source.text, *(f"#undef {name}\n" for name in names)]
    return "".join(text)


def build_library(text: str, folder: Path, compiler: Compiler) -> None:
    """LIBRARY, of one C text, in a folder that is there."""
    (folder / "seg.c").write_text(text)
    compiler.compile(folder / "seg.c", [CSRC], folder / "seg.o", ["-O1"])
    compiler.link_library([folder / "seg.o"], folder / LIBRARY)


def run_segment(
    library: Path, source: CSource, graph: Graph, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Run a segment of a library, `source` of `graph`, in this process."""
    run = getattr(ctypes.CDLL(str(library)), f"edgec_{source.name}_run")
    args = [np.ascontiguousarray(inputs[v.name]) for v in graph.inputs]
    outs = [np.full(v.type.shape, 77, v.type.np_dtype) for v in graph.outputs]
    scratch = np.zeros(source.plan.size + 64, np.uint8)
    arena = ctypes.c_void_p(scratch.ctypes.data + -scratch.ctypes.data % 64)
    stored = np.zeros(len(source.weights.data) + 64, np.uint8)
    at = -stored.ctypes.data % 64
    stored[at : at + len(source.weights.data)] = np.frombuffer(
        source.weights.data, np.uint8
    )
    weights = ctypes.c_void_p(stored.ctypes.data + at)
    pointers = [
        (ctypes.c_void_p * max(1, len(a)))(*[x.ctypes.data for x in a])
        for a in (args, outs)
    ]
    assert run(arena, weights, *pointers) == 0
    return {v.name: y for v, y in zip(graph.outputs, outs, strict=True)}


def run_tflite(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Emit the graph as TFLite and run it on LiteRT's reference kernels."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    builtin = any(op.kind in NO_REFERENCE for op in graph.ops)
    if builtin:
        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    else:
        resolver = OpResolverType.BUILTIN_REF
    interpreter = Interpreter(
        model_content=write_tflite(graph), experimental_op_resolver_type=resolver
    )
    interpreter.allocate_tensors()
    for detail, v in zip(interpreter.get_input_details(), graph.inputs, strict=True):
        interpreter.set_tensor(detail["index"], inputs[v.name])
    interpreter.invoke()
    details = interpreter.get_output_details()
    return {
        v.name: interpreter.get_tensor(d["index"])
        for d, v in zip(details, graph.outputs, strict=True)
    }


def assert_agree(
    got: Mapping[str, Array],
    want: Mapping[str, Array],
    tolerance: float = FLOAT_TOLERANCE,
    of: Graph | None = None,
) -> None:
    """Integers bit for bit; floats within `tolerance` of the output's largest
    magnitude.

    of: the graph that was run, which a failure names by its ops: a test that runs many
    in a loop gives it.
    """
    case = "" if of is None else ", ".join(map(repr, of.ops[:MANY_OPS]))
    for name, y in want.items():
        assert got[name].shape == y.shape
        assert got[name].dtype == y.dtype
        if y.dtype.kind == "f":
            # Differences of float16 would themselves be rounded to float16.
            wide = y.astype(np.result_type(y, np.float32))
            scale = max(1e-6, float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0)))
            np.testing.assert_allclose(
                got[name].astype(wide.dtype),
                wide,
                rtol=tolerance,
                atol=tolerance * scale,
                err_msg=case,
            )
        else:
            np.testing.assert_array_equal(got[name], y, err_msg=case)
