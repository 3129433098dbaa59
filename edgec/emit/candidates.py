"""The C of a trial: several ways to compute one call, compared with the plain kernel.

Each way is a function of a profile, which the trial times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgec.emit.entries import entry_functions
from edgec.emit.memory import plan_offsets
from edgec.emit.program import ModelTable, SegmentEntry
from edgec.emit.weights import WeightsFile
from edgec.emit.writer import Writer, file_text
from edgec.ir import Graph, KernelCall, Pointer, TensorType, Value
from edgec.schedule.cores import Core
from edgec.schedule.liveness import Lifetime, tensors
from edgec.schedule.views import Place

SEGMENT = "trial"
OFF = "off"
"""Name of the output: for each candidate the difference from the plain kernel."""

ELSEWHERE = -1.0
"""The output on a machine that is not the core of the candidates."""

PLAIN_FUNCTIONS = 2
CANDIDATE_FUNCTIONS = 2
"""Functions of the plain call, and of each candidate: the call itself, and the check of
its result.
"""

_NO_INLINE = "#define EK_NO_INLINE __attribute__((noinline, unused))\n"

_CHECKS = """/* A result is computed over bytes that no kernel reads: unwritten ones differ. */
static void trial_begin(void *got, size_t bytes) { memset(got, 0x55, bytes); }

static EK_NO_INLINE void trial_keep(void *want, void *got, size_t bytes) {
    memcpy(want, got, bytes);
    memset(got, 0x55, bytes);
}

/* What the next candidate reads is as near as it was for the one before. */
static EK_NO_INLINE void trial_touch(const void *x, size_t bytes) {
    const volatile unsigned char *p = x;
    for (size_t i = 0; i < bytes; i += 64) (void)p[i];
}

/* Bytes that differ. */
static EK_NO_INLINE float trial_off_bits(const void *want, void *got, size_t bytes) {
    const unsigned char *a = want, *b = got;
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) n += a[i] != b[i];
    memset(got, 0x55, bytes);
    return (float)n;
}

/* The largest difference, in parts of the largest magnitude; NaN counts as the largest float. */
static EK_NO_INLINE float trial_off_f32(const void *want, void *got, size_t bytes) {
    const float *a = want, *b = got;
    float most = 0.0f, range = 1e-30f;
    for (size_t i = 0; i < bytes / 4; i++) {
        if (!memcmp(a + i, b + i, 4)) continue;
        const float d = fabsf(a[i] - b[i]);
        if (!(d <= 3e38f)) most = 3e38f;
        if (d > most) most = d;
    }
    for (size_t i = 0; i < bytes / 4; i++)
        if (fabsf(a[i]) > range && fabsf(a[i]) < 1e12f) range = fabsf(a[i]);
    memset(got, 0x55, bytes);
    return most / range;
}

"""


@dataclass(frozen=True)
class TrialSource:
    """The sources of a trial.

    Attributes:
        texts: the C files by name
        flags: compiler flags of single files, beside those of the target
        weights: the weights file
        tensors: the inputs and the output of the model
        inputs: the names of the inputs
        arena: bytes of the arena
        graph: sha256 of the C
    """

    texts: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...]]
    weights: bytes
    tensors: Mapping[str, TensorType]
    inputs: tuple[str, ...]
    arena: int
    graph: str

    @staticmethod
    def function(candidate: int) -> int:
        """Return the position in a profile of a candidate; -1: the plain call."""
        if candidate < 0:
            return 0

        return PLAIN_FUNCTIONS + CANDIDATE_FUNCTIONS * candidate


def trial_source(
    call: KernelCall, candidates: Sequence[KernelCall], core: Core
) -> TrialSource:
    """Return a model that computes a plain call, and then each candidate for it.

    The calls that follow the plain one are computed after it. Where a target has other
    machines than the core, these compute nothing, and report ELSEWHERE.
    """
    # What a candidate computes at once, plain kernels compute one after the other.
    chain = [KernelCall(c.kernel, c.operands) for c in (call, *call.then)]
    results = [tensors([c])[-1] for c in chain]
    inputs = [v for v in dict.fromkeys(tensors(chain)) if v not in results]
    differences = Value(OFF, TensorType((len(candidates),), "float32"))
    expected = Value("want", results[-1].type)

    values = (*inputs, *results, expected, differences)
    places = {value: Place(value) for value in values}
    graph = Graph(SEGMENT, inputs, [differences])
    writer = Writer(graph, places, WeightsFile())
    marks = _marks(writer, chain, candidates, results[-1], expected)

    # All results live until the end: each candidate writes the last one anew.
    buffers = dict.fromkeys((*results, expected))
    lives = [Lifetime(v.name, v.type.nbytes, 0, len(marks)) for v in buffers]
    plan = plan_offsets(lives + writer.scratches)
    headers = sorted({kernel.header for kernel in writer.calls} | {"ek_base.h"})
    writer.bodies.insert(0, _NO_INLINE + _CHECKS)

    here = f"{SEGMENT}_here" if core.detect else SEGMENT
    text = file_text(writer, plan, headers, here) + entry_functions(here, marks, 1)
    texts = {f"{here}.c": text}
    sources: list[tuple[str, str]] = []
    if core.detect:
        sources = [(here, core.detect), ("elsewhere", "")]
        nothing = _elsewhere(len(candidates), marks)
        elsewhere = entry_functions("elsewhere", nothing, 1)
        texts["elsewhere.c"] = '#include "ek_base.h"\n' + elsewhere

    names = tuple(value.name for value in inputs)
    segment = SegmentEntry(
        name=SEGMENT,
        place="cpu",
        inputs=names,
        outputs=(OFF,),
        arena=plan.size,
        functions=len(marks),
        cores=tuple(sources),
    )
    types = {value.name: value.type for value in (*inputs, differences)}
    weights = writer.weights.data
    digest = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()
    texts["model.c"] = ModelTable(
        SEGMENT, types, [segment], names, (OFF,), weights, graph=digest
    ).source()
    return TrialSource(
        texts=texts,
        flags={f"{here}.c": core.flags} if core.detect else {},
        weights=weights,
        tensors=types,
        inputs=names,
        arena=plan.size,
        graph=digest,
    )


def _marks(
    writer: Writer,
    chain: Sequence[KernelCall],
    candidates: Sequence[KernelCall],
    result: Value,
    expected: Value,
) -> list[tuple[str, ...]]:
    """Return the statements of each function of the profile.

    Every call has two functions: one with the call alone, which is timed, and one that
    looks at its result and restores the caches.
    """
    expected_pointer = writer.pointer(Pointer(expected))
    got = writer.pointer(Pointer(result))
    nbytes = result.type.nbytes
    is_float = result.type.dtype == "float32"
    check = "trial_off_f32" if is_float else "trial_off_bits"
    touches: list[str] = []
    for value in writer.graph.inputs:
        pointer = writer.pointer(Pointer(value))
        touches.append(f"trial_touch({pointer}, {value.type.nbytes});")

    plain = [writer.alone(f"plain{i}", c) for i, c in enumerate(chain)]
    marks = [
        (f"trial_begin({got}, {nbytes});", *touches, *plain),
        (f"trial_keep({expected_pointer}, {got}, {nbytes});", *touches),
    ]
    for i, candidate in enumerate(candidates):
        statement = writer.alone(f"candidate{i}", candidate)
        compare = (
            f"((float *)out[0])[{i}] = {check}({expected_pointer}, {got}, {nbytes});"
        )
        marks += [(statement,), (compare, *touches)]

    return marks


def _elsewhere(candidates: int, marks: Sequence[object]) -> list[tuple[str, ...]]:
    """Return the statements of the functions for a machine that is another core."""
    reports: list[str] = []
    for i in range(candidates):
        reports.append(f"((float *)out[0])[{i}] = {ELSEWHERE}f;")

    # The profile has as many functions on all machines.
    return [tuple(reports), *[()] * (len(marks) - 1)]
