"""The C of a trial: several ways to compute one call, each a function of a profile,
held against the plain kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgec.emit.c import Writer, text_of
from edgec.emit.entries import entry_functions
from edgec.emit.memory import plan_offsets
from edgec.emit.program import SegmentEntry, model_source
from edgec.emit.weights import WeightsFile
from edgec.ir import Graph, KernelCall, Pointer, TensorType, Value
from edgec.schedule.cores import Core
from edgec.schedule.liveness import Lifetime, tensors
from edgec.schedule.views import Place

SEGMENT = "trial"
OFF = "off"
"""The output: for each candidate how far it is off."""

ELSEWHERE = -1.0
"""Its value where the machine is not of the core that the candidates are for."""

_PLAIN = 2
_EACH = 2
"""Functions of the plain call, and of each candidate: the call itself, and what looks
at its result.
"""

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
    """texts, flags: as of TargetSources. weights: the file. tensors: of the model, by
    name. arena: bytes. graph: sha256 of the C.
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
        """The place in a profile of a candidate, the plain call being -1."""
        return 0 if candidate < 0 else _PLAIN + _EACH * candidate


def trial_source(
    call: KernelCall, candidates: Sequence[KernelCall], core: Core
) -> TrialSource:
    """A model with one segment that computes a plain call, with what follows it, and
    then each candidate.

    Where not all machines of the core's target are such a core, others compute nothing
    and say ELSEWHERE.
    """
    chain = [KernelCall(c.kernel, c.operands) for c in (call, *call.then)]
    written = [tensors([c])[-1] for c in chain]
    inputs = [v for v in dict.fromkeys(tensors(chain)) if v not in written]
    off = Value(OFF, TensorType((len(candidates),), "float32"))
    graph = Graph(SEGMENT, inputs, [off])
    want = Value("want", written[-1].type)
    places = {v: Place(v) for v in (*inputs, *written, want, off)}
    writer = Writer(graph, places, WeightsFile())
    here = f"{SEGMENT}_here" if core.detect else SEGMENT
    marks = _marks(writer, chain, candidates, written[-1], want)
    lives = [
        Lifetime(v.name, v.type.nbytes, 0, len(marks))
        for v in dict.fromkeys((*written, want))
    ]
    plan = plan_offsets(lives + writer.scratches)
    headers = sorted({c.header for c in writer.calls} | {"ek_base.h"})
    writer.bodies.insert(
        0, "#define EK_NO_INLINE __attribute__((noinline, unused))\n" + _CHECKS
    )
    texts = {
        f"{here}.c": text_of(writer, plan, headers, here)
        + entry_functions(here, marks, 1)
    }
    choices = [(here, core.detect)] if core.detect else []
    if core.detect:
        texts["elsewhere.c"] = '#include "ek_base.h"\n' + entry_functions(
            "elsewhere", _elsewhere(len(candidates), marks), 1
        )
        choices.append(("elsewhere", ""))
    names = tuple(v.name for v in inputs)
    types = {v.name: v.type for v in (*inputs, off)}
    entry = SegmentEntry(
        SEGMENT, "cpu", names, (OFF,), plan.size, len(marks), tuple(choices)
    )
    made_of = hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()
    texts["model.c"] = model_source(
        SEGMENT, types, [entry], names, (OFF,), writer.weights.data, graph=made_of
    )
    flags = {f"{here}.c": core.flags} if core.detect else {}
    return TrialSource(
        texts, flags, writer.weights.data, types, names, plan.size, made_of
    )


def _marks(
    writer: Writer,
    chain: Sequence[KernelCall],
    candidates: Sequence[KernelCall],
    got: Value,
    want: Value,
) -> list[tuple[str, ...]]:
    """The statements of each function of the profile."""
    a = writer.ptr(Pointer(want))
    b = writer.ptr(Pointer(got))
    n = got.type.nbytes
    check = "trial_off_f32" if got.type.dtype == "float32" else "trial_off_bits"
    near = [
        f"trial_touch({writer.ptr(Pointer(v))}, {v.type.nbytes});"
        for v in writer.graph.inputs
    ]
    plain = [writer.alone(f"plain{i}", c) for i, c in enumerate(chain)]
    marks = [
        (f"trial_begin({b}, {n});", *near, *plain),
        (f"trial_keep({a}, {b}, {n});", *near),
    ]
    for i, c in enumerate(candidates):
        off = f"((float *)out[0])[{i}] = {check}({a}, {b}, {n});"
        marks += [(writer.alone(f"candidate{i}", c),), (off, *near)]
    return marks


def _elsewhere(candidates: int, marks: Sequence[object]) -> list[tuple[str, ...]]:
    told = tuple(f"((float *)out[0])[{i}] = {ELSEWHERE}f;" for i in range(candidates))
    return [told, *[()] * (len(marks) - 1)]
