"""The check after each compile: every segment against `interp`, the whole against the
model as the file has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgec_partitioner.segments import Segment
from edgec_partitioner.source import judge
from edgec_runtime import Bundle, Session
from edgec_runtime.bundle.extracted import extract

from edgec.comparing.distance import distance
from edgec.compiler import finite
from edgec.compiler.as_board import check_as_board
from edgec.compiler.lower import Lowered
from edgec.compiler.native import NativeGraph
from edgec.compiler.op_by_op import op_by_op
from edgec.compiler.segment_checks import SegmentChecker, float_limit, rounds_floats
from edgec.frontends.operators import read_operators
from edgec.ir import Array, Graph, Value, interp
from edgec.quantize.accuracy import Tally
from edgec.quantize.layers import worst_layer
from edgec.quantize.verification import Verification
from edgec.steps import Progress, each

_BUDGET = 20e9
"""Multiply-accumulates that outputs are compared on: about ten seconds of C, and a
count, not a time, so that the same inputs give the same bundle.
"""
_MOST = 100
_HEAVY = 1e9
"""A model of more multiply-accumulates runs through interp once, any other twice."""


def verify_bundle(
    bundle: Bundle,
    lowered: Lowered,
    min_cosine: float | None,
    say: Progress = lambda text: None,
) -> Verification:
    """Run the bundle on the samples in every way that this machine can, and compare.

    Each segment is compared with `interp` on the first sample or two; the outputs of a
    model that edgec quantized are compared with those of its float form on as many as
    the model's size allows. min_cosine: how like that form it must be; None for a model
    that edgec did not quantize, which must agree with what was imported within
    rounding.
    """
    samples = lowered.samples.verify
    segments = lowered.partition.segments
    exact, count = _counts(lowered)
    judge = SegmentChecker()
    tallies = dict[str, Tally]()
    unlike = list[str]()
    reference = _Reference(lowered)
    worst = None
    not_finite = ""
    with Session(bundle, tpu="c") as session:
        for i in range(count):
            if i >= exact and not reference.of_any_sample:
                break
            say(f"verify {i + 1}/{count}")
            sample = samples[i]
            if lowered.model.floats is not None and i == 0:
                values = dict[str, Array]()
            else:
                values = None
            if i < exact:
                got = _run(session, segments, sample, "C", judge, values)
            else:
                got = _outputs(session, sample)
            want = reference.exactly(sample) if i < exact else reference(sample)
            if lowered.model.floats is None:
                law = lowered.described or lowered.read.graph
                unlike += _unlike(
                    law,
                    sample,
                    got,
                    want if law is lowered.read.graph else interp(law, sample),
                )
            elif values is not None:
                parts = {s.name: s.graph for s in segments}
                floats = lowered.model.floats
                worst = worst_layer(parts, values, floats.graph, floats.run, sample)
            if not not_finite and (unlike or not finite.is_finite(want)):
                not_finite = str(finite.first(lowered.read.graph, sample) or "")
            for name, y in want.items():
                tallies.setdefault(name, Tally()).add(y, got[name])
    on_tpu = [s for s in segments if s.place == "edgetpu"]
    if on_tpu:
        with Session(bundle, tpu="interpreter") as session:
            for i in each(range(exact), exact, "verify TFLite", say):
                _run(session, on_tpu, samples[i], "TFLite", judge)
    not_run = check_as_board(bundle, lowered, judge, say)
    mixed = [s for s in segments if rounds_floats(s.graph)]
    for i in each(range(exact if mixed else 0), exact, "verify op by op", say):
        judge.add(op_by_op(bundle, mixed, samples[i]))
    merged = judge.worst()
    whole = {name: t.result() for name, t in tallies.items()}
    failures = [
        f"{c.segment} as {c.how} is {c.error:.3g} from interp, {c.limit:.3g} allowed"
        for c in merged
        if not c.ok
    ]
    failures += _unmapped(bundle, segments, lowered.wishes.optimistic)
    if min_cosine is not None:
        low = [(n, a.cosine) for n, a in whole.items() if not a.cosine >= min_cosine]
        unlike += [
            f"output {n} has cosine {c:.8g} with the float model, {min_cosine} needed"
            for n, c in low
        ]
    used = next(iter(tallies.values())).samples if tallies else 0
    calibrated = lowered.model.floats.samples if lowered.model.floats is not None else 0
    return Verification(
        used,
        exact,
        lowered.samples.source,
        calibrated,
        lowered.samples.seen,
        reference.how,
        merged,
        whole,
        lowered.model.floats is not None,
        worst,
        not_run,
        tuple(failures),
        tuple(unlike),
        not_finite,
    )


def _counts(lowered: Lowered) -> tuple[int, int]:
    """On how many samples segments are compared with interp, and on how many outputs
    are compared.
    """
    macs = max(1, sum(op.spec.macs(op) for op in lowered.read.graph.ops))
    given = len(lowered.samples.verify)
    exact = min(given, 1 if macs > _HEAVY else 2)
    return exact, min(given, max(exact, min(_MOST, int(_BUDGET // macs))))


class _Reference:
    """The outputs that a model should have: by interp, and by the float form's C once
    that agrees with interp.
    """

    def __init__(self, lowered: Lowered) -> None:
        self._imported = lowered.read.graph
        self._run = (
            lowered.model.floats.reference if lowered.model.floats is not None else None
        )

    @property
    def of_any_sample(self) -> bool:
        """Whether it need not be interp: there is a faster way, and it agreed so far."""
        return self._run is not None

    @property
    def how(self) -> str:
        """What most outputs are from."""
        return "C" if isinstance(self._run, NativeGraph) else "interp"

    def exactly(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        """By interp, of the model as imported, or what agrees with it."""
        want = interp(self._imported, sample)
        if self._run is not None:
            got = self._run(sample, None)
            if not list(_unlike(self._imported, sample, got, want)):
                return got
            self._run = None
        return want

    def __call__(self, sample: Mapping[str, Array]) -> dict[str, Array]:
        assert self._run is not None, "the float form does not agree with interp"
        return self._run(sample, None)


def _run(
    session: Session,
    segments: Sequence[Segment],
    sample: Mapping[str, Array],
    how: str,
    judge: SegmentChecker,
    values: dict[str, Array] | None = None,
) -> dict[str, Array]:
    """One inference; each segment is judged on the very inputs that it got. values:
    gets all int8 results by name.
    """

    def keep(v: Value, array: Array) -> None:
        if values is not None and v.type.dtype == "int8":
            values[v.name] = array

    outputs = _outputs(session, sample)
    for s in segments:
        judge(s, session.tensor, how, keep)
    return outputs


def _outputs(session: Session, sample: Mapping[str, Array]) -> dict[str, Array]:
    """Of one inference, with what would be kept for the next."""
    outputs = session.run(sample)
    return {
        **outputs,
        **{s.output: session.tensor(s.output) for s in session.manifest.state},
    }


def _unmapped(
    bundle: Bundle, segments: Sequence[Segment], optimistic: bool
) -> Iterator[str]:
    """What the support rules say against the emitted segments, read back as
    edgetpu_compiler will read them.
    """
    for s in segments:
        if s.place == "edgetpu":
            for o in judge(
                read_operators(extract(bundle, f"segments/{s.name}.tflite"))
            ):
                if o.verdict == "cpu" or (o.verdict == "uncertain" and not optimistic):
                    yield (
                        f"operator {o.index} of {s.name} ({o.opcode}) would not "
                        "map: "
                        f"{o.rule}: {o.seen}"
                    )


def _unlike(
    original: Graph,
    sample: Mapping[str, Array],
    got: Mapping[str, Array],
    want: Mapping[str, Array],
) -> Iterator[str]:
    """What differs from the graph as imported by more than rounding."""
    for v in original.outputs:
        y = want[v.name]
        error = distance(got[v.name], want[v.name])
        if y.dtype.kind == "f":
            limit = float_limit(original, sample, v.name, y, error)
        else:
            limit = 0.0
        if error > limit:
            yield (
                f"output {v.name} is {error:.3g} from the model as imported, "
                f"{limit:.3g} allowed"
            )
