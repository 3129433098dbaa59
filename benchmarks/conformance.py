"""ONNX's own node tests through edgec's generated C, as a table: passed, failed, out of
scope, by operator.

python -m benchmarks.conformance [--cases PATTERN] [--device INTERP]        # make
conformance

Writes build/conformance.json and build/conformance.md. Results are kept in
build/conformance/ under a digest of edgec's sources, so that a run that was stopped
goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

from edgec.emit.c import CSource, segment_source
from edgec.errors import EdgecError
from edgec.ir import Array, Graph, interp
from edgec.onnx_backend import Prepared, in_eight_bits
from edgec.toolchain.cc import Compiler
from tests.harness import LIBRARY, build_library, joined, run_segment

ROOT = Path(__file__).parents[1]
_BATCH = 24
"""Cases for one C compile."""
_PRECISION = {"float16": 2e-3}
"""Of the result's range; what is shorter than float32 is equal to its own precision."""
_TOLERANCE = 1e-4
AS_ONNXRUNTIME = "as onnxruntime, not as the case has it"


@dataclass
class Result:
    """What became of a case. outcome: passed, failed or out of scope. how: in C at run
    time, with inputs that count as constants, or computed when it was compiled. reason:
    also what a case that passed differs from.
    """

    name: str
    operator: str
    outcome: str
    how: str = ""
    reason: str = ""


@dataclass
class Case:
    """A node test: a model, inputs and what they give."""

    name: str
    operator: str
    model: ModelProto
    inputs: Sequence[Any]
    outputs: Sequence[Any]


def cases() -> list[Case]:
    """All of the installed onnx package."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [
            Case(t.name, _operator(t.name, t.model), t.model, *t.data_sets[0])
            for t in load_model_tests(kind="node")
        ]


def _operator(name: str, model: ModelProto) -> str:
    """Return the operator under test; "(expanded)" for the test of a function's body."""
    if "_expanded" not in name:
        return str(max(model.graph.node, key=lambda n: n.op_type != "Constant").op_type)
    return "(expanded)"


# ---- scope
# --------------------------------------------------------------------------------------
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomUniform")
_TRAINING = ("ai.onnx.preview.training",)
_SMALL = ("FLOAT8", "INT4", "INT2", "FLOAT4", "BFLOAT16", "COMPLEX")


def out_of_scope(case: Case) -> str:
    """Why a case is none of edgec's business; empty: it is in scope."""
    nodes = [n for f in (case.model.graph, *case.model.functions) for n in f.node]
    for node in nodes:
        if node.domain in _TRAINING or (
            node.op_type == "BatchNormalization" and "training" in case.name
        ):
            return "training"
        if node.domain == "ai.onnx.ml":
            return "classical machine learning (ai.onnx.ml)"
        if node.op_type == "Dropout" and "train" in case.name:
            return "random: dropout in training"
        if node.op_type.startswith(_RANDOM):
            return "random"
        if node.op_type.startswith(
            ("Sequence", "SplitToSequence", "ConcatFromSequence")
        ):
            return "sequences"
        if node.op_type.startswith("Optional"):
            return "optional"
        if node.op_type.startswith("String") or node.op_type in (
            "RegexFullMatch",
            "TfIdfVectorizer",
        ):
            return "strings"
    opset = max(
        o.version for o in case.model.opset_import if o.domain in ("", "ai.onnx")
    )
    if opset < 7:
        return f"opset {opset}"
    for info in (*case.model.graph.input, *case.model.graph.output):
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            return {"sequence_type": "sequences", "optional_type": "optional"}.get(
                kind or "", kind or "no type"
            )
        name = TensorProto.DataType.Name(info.type.tensor_type.elem_type)
        if name == "STRING":
            return "strings"
        if name.startswith(("UINT4", "UINT2", *_SMALL)):
            return f"element type {name.lower()}"
    for node in nodes:
        if node.op_type == "If" and "cond" in (i.name for i in case.model.graph.input):
            return "run-time control flow"
        if node.op_type == "Scan" and opset < 9:
            return "run-time control flow of opset 8"
        if node.op_type == "ImageDecoder":
            return "pictures as files"
        for a in node.attribute:
            if a.name == "to" and TensorProto.DataType.Name(a.i).startswith(
                ("UINT4", "UINT2", *_SMALL)
            ):
                return f"element type {TensorProto.DataType.Name(a.i).lower()}"
            if a.name in ("value_string", "value_strings"):
                return "strings"
    return ""


# ---- running
# --------------------------------------------------------------------------------------
@dataclass
class _Ready:
    """A case on its way through C."""

    case: Case
    graph: Graph
    feeds: dict[str, Array]
    how: str


def _array(x: Any) -> Array:
    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else np.asarray(x)


def _prepare(case: Case, device: str) -> _Ready | Result:
    scope = out_of_scope(case)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prepared = Prepared(case.model, device)
            names = [i.name for i in case.model.graph.input]
            feeds = {
                n: _array(a)
                for n, a in zip(names, case.inputs, strict=False)
                if not scope or _plain(a)
            }
            special = prepared.specialised(feeds)
    except EdgecError as e:
        return Result(
            case.name,
            case.operator,
            "out of scope" if scope else "failed",
            reason=scope or e.what,
        )
    except Exception as e:
        reason = f"{type(e).__name__}: {e}"[:300]
        return Result(
            case.name,
            case.operator,
            "crashed",
            reason=f"{scope}: {reason}" if scope else reason,
        )
    how = "run time" if special.graph.ops else "compile time"
    if special.constants and special.graph.ops:
        how = f"run time, but {', '.join(special.constants)}"
    feeds = {n: in_eight_bits(a) for n, a in feeds.items()}
    return _Ready(case, special.graph, feeds, how)


def _plain(a: Any) -> bool:
    return isinstance(a, (np.ndarray, np.generic, TensorProto))


def _judge(ready: _Ready, got: dict[str, Array]) -> Result:
    case = ready.case
    wanted = {
        info.name: in_eight_bits(_array(y))
        for info, y in zip(case.model.graph.output, case.outputs, strict=False)
    }
    reason = _differences(got, wanted)
    if (
        reason
        and (other := _by_onnxruntime(ready)) is not None
        and not _differences(got, other)
    ):
        return Result(
            case.name, case.operator, "passed", ready.how, f"{AS_ONNXRUNTIME}: {reason}"
        )
    return Result(
        case.name, case.operator, "failed" if reason else "passed", ready.how, reason
    )


def _differences(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> str:
    """Of the first output that differs; empty: none does.

    Integers are equal, floats as far as their precision goes.
    """
    for name, want in wanted.items():
        y = got[name]
        if (want.shape, want.dtype) != (y.shape, y.dtype):
            return f"{name} is {y.dtype}{list(y.shape)}, not {want.dtype}{list(want.shape)}"
        if want.dtype.kind in "biu" and not np.array_equal(want, y):
            return f"{name} differs in {int((want != y).sum())} of {want.size} elements"
        if (
            want.dtype.kind not in "biu"
            and want.size
            and (reason := _difference(name, y.astype(np.float64), want))
        ):
            return reason
    return ""


def _by_onnxruntime(ready: _Ready) -> dict[str, Array] | None:
    """What onnxruntime gives: ONNX's outputs are rounded in some cases, and of another
    reading in others.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            ready.case.model.SerializeToString(),
            options,
            providers=["CPUExecutionProvider"],
        )
        return dict(
            zip(
                (o.name for o in session.get_outputs()),
                session.run(None, ready.feeds),
                strict=True,
            )
        )
    except Exception:  # an operator, a type or an opset that it does not have
        return None


def _difference(name: str, y: Array, given: Array) -> str:
    want = given.astype(np.float64)
    tolerance = _PRECISION.get(str(given.dtype), _TOLERANCE)
    finite = want[np.isfinite(want)]
    scale = float(np.abs(finite).max(initial=1e-6))
    if np.allclose(y, want, rtol=0, atol=tolerance * scale, equal_nan=True):
        return ""
    return f"{name} differs by up to {np.nanmax(np.abs(y - want)):.3g} of {scale:.3g}"


def _by_c(
    ready: Sequence[_Ready], outputs: Sequence[CSource], folder: Path
) -> list[Result]:
    library = folder / LIBRARY
    found = []
    for r, source in zip(ready, outputs, strict=True):
        feeds = {
            v.name: np.ascontiguousarray(r.feeds[v.name], v.type.np_dtype)
            for v in r.graph.inputs
        }
        got = run_segment(library, source, r.graph, feeds)
        got |= {v.name: v.const for v in r.graph.outputs if v.const is not None}
        got |= {v.name: feeds[v.name] for v in r.graph.outputs if v.name in feeds}
        found.append(_judge(r, got))
    return found


def batch(some: Sequence[Case], device: str) -> list[Result]:
    """The results of some cases, which share one C compile."""
    done: list[Result] = []
    ready: list[_Ready] = []
    for case in some:
        made = _prepare(case, device)
        if isinstance(made, Result):
            done.append(made)
        elif device == "INTERP":
            done.append(_judge(made, interp(made.graph, made.feeds)))
        else:
            ready.append(made)
    kept = []
    sources = []
    for i, r in enumerate(ready):
        try:
            sources.append(segment_source(r.graph, f"seg{i}"))
            kept.append(r)
        except EdgecError as e:
            done.append(Result(r.case.name, r.case.operator, "failed", r.how, e.what))
        except Exception as e:
            done.append(
                Result(
                    r.case.name,
                    r.case.operator,
                    "crashed",
                    r.how,
                    f"{type(e).__name__}: {e}"[:300],
                )
            )
    return [*done, *_compiled(kept, sources)]


def _compiled(ready: list[_Ready], sources: list[CSource]) -> list[Result]:
    """Halved until what does not compile stands alone."""
    if not ready:
        return []
    with tempfile.TemporaryDirectory() as tmp:
        try:
            build_library(joined(sources), Path(tmp), Compiler.native("gcc"))
            return _by_c(ready, sources, Path(tmp))
        except (AssertionError, KeyError) as e:
            if len(ready) == 1:
                error = re.search(r"error: (.*)", str(e))
                reason = f"the C does not compile: {error.group(1) if error else e}"[
                    :300
                ]
                return [
                    Result(
                        ready[0].case.name,
                        ready[0].case.operator,
                        "crashed",
                        ready[0].how,
                        reason,
                    )
                ]
    half = len(ready) // 2
    return _compiled(ready[:half], sources[:half]) + _compiled(
        ready[half:], sources[half:]
    )


# ---- the table
# --------------------------------------------------------------------------------------
_CASES: list[Case] = []


def _load() -> None:
    _CASES.extend(cases())


def _task(indices: Sequence[int], device: str) -> list[Result]:
    return batch([_CASES[i] for i in indices], device)


def run(names: re.Pattern[str] | None, device: str, store: Path) -> list[Result]:
    """All cases whose name matches, in two processes; what a stopped run has found is
    taken from `store`.
    """
    _load()
    if store.exists():
        known = {r["name"]: Result(**r) for r in json.loads(store.read_text())}
    else:
        known = {}
    todo = [
        i
        for i, c in enumerate(_CASES)
        if c.name not in known and (names is None or names.search(c.name))
    ]
    batches = [todo[i : i + _BATCH] for i in range(0, len(todo), _BATCH)]
    found = dict(known)
    while batches:
        with ProcessPoolExecutor(2) as pool:
            tasks = [(b, pool.submit(_task, b, device)) for b in batches]
            batches = []
            for indices, task in tasks:
                try:
                    results = task.result()
                except BrokenProcessPool:  # the C of a case ended its process
                    if len(indices) > 1:
                        batches += [
                            indices[: len(indices) // 2],
                            indices[len(indices) // 2 :],
                        ]
                        continue
                    case = _CASES[indices[0]]
                    results = [
                        Result(
                            case.name,
                            case.operator,
                            "crashed",
                            reason="the process ended",
                        )
                    ]
                found |= {r.name: r for r in results}
                if names is None:
                    store.parent.mkdir(parents=True, exist_ok=True)
                    store.write_text(json.dumps([asdict(r) for r in found.values()]))
    return [found[c.name] for c in _CASES if c.name in found]


def digest() -> str:
    """Of all that a result hangs on."""
    made = hashlib.sha256()
    for path in sorted(
        [
            *(ROOT / "edgec").rglob("*.py"),
            *(ROOT / "runtime").rglob("*.h"),
            Path(__file__),
        ]
    ):
        made.update(path.read_bytes())
    return made.hexdigest()[:16]


def markdown(results: Sequence[Result]) -> Iterator[str]:
    """The table."""
    counts = Counter(r.outcome for r in results)
    yield f"# ONNX's {len(results)} node tests through edgec\n\n"
    yield ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()) + ".\n"
    passed = [r for r in results if r.outcome == "passed"]
    in_c = [r for r in passed if r.how.startswith("run time")]
    frozen = sum("," in r.how for r in in_c)
    yield (
        f"In C, at run time: {len(in_c)}, in {frozen} of them with some inputs as "
        "constants. "
    )
    yield (
        f"The other {len(passed) - len(in_c)} have no op left: "
        "all is known when "
        "they are compiled.\n"
    )
    other = sum(r.reason.startswith(AS_ONNXRUNTIME) for r in passed)
    yield (
        f"{other} of those that passed give what onnxruntime gives, "
        "which is not what the case has.\n"
    )
    operators = {r.operator for r in in_c} - {"(expanded)"}
    yield f"{len(operators)} operators have a case that passes in C.\n\n"
    yield "| operator | in C | when compiled | failed | out of scope | why |\n"
    yield "| --- | ---: | ---: | ---: | ---: | --- |\n"
    for operator in sorted({r.operator for r in results}):
        own = [r for r in results if r.operator == operator]
        n = Counter(r.outcome for r in own)
        c = sum(r in in_c for r in own)
        why = "; ".join(
            sorted({r.reason.replace("|", "/")[:120] for r in own if r.reason})[:4]
        )
        failed = n["failed"] + n["crashed"]
        yield (
            f"| {operator} | {c} | {n['passed'] - c} | {failed} | "
            f"{n['out of scope']} | {why} |\n"
        )


def main() -> int:
    """Run, write, print; 1 where a case in scope fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cases", type=re.compile, help="only those whose name matches"
    )
    parser.add_argument("--device", default="CPU", choices=("CPU", "INTERP"))
    args = parser.parse_args()
    build = ROOT / "build"
    results = run(
        args.cases,
        args.device,
        build / "conformance" / f"{args.device}-{digest()}.json",
    )
    text = "".join(markdown(results))
    build.mkdir(exist_ok=True)
    (build / "conformance.json").write_text(
        json.dumps([asdict(r) for r in results], indent=1)
    )
    (build / "conformance.md").write_text(text)
    bad = [r for r in results if r.outcome in ("failed", "crashed")]
    print(text.split("\n\n| operator")[0])
    for r in bad:
        print(f"{r.outcome} {r.name}: {r.reason}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
