"""Stage 8 of a compile: verification.

Every segment is compared with `interp`, and the outputs of all with the model as read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgec_devices.links.emulated import Emulated
from edgec_partitioner.segments import Segment
from edgec_partitioner.source import judge
from edgec_runtime import Bundle, DeviceError, Session
from edgec_runtime.bundle.extraction import extract
from edgec_runtime.session.session import machine_target

from edgec.compiler import nonfinite
from edgec.compiler.lower import Lowered
from edgec.compiler.native import NativeGraph
from edgec.compiler.op_by_op import op_by_op
from edgec.compiler.segment_checks import (
    FLOAT16_TOLERANCE,
    SegmentChecker,
    amplified_error,
    computes_float16,
    decides_by_floats,
    float_limit,
    selects_by_floats,
)
from edgec.compiler.whole_tflite import check_whole
from edgec.emit.tflite import MODEL_TFLITE
from edgec.errors import EdgecError
from edgec.frontends.operators import read_operators
from edgec.ir import Array, Graph, Value, interp
from edgec.ir.interp import initial
from edgec.measure.agreement import Agreement, Tally
from edgec.measure.distance import distance, root_mean_square
from edgec.ops.softmax import LITERT_SUM
from edgec.quantize.observe.calibration import Sample
from edgec.quantize.observe.layers import LayerNoise, worst_layer
from edgec.quantize.observe.verification import Verification
from edgec.steps import Progress, each

COMPARED_MACS = 20e9
"""Multiply-accumulates over all samples of a comparison: about ten seconds of C.

It is a count and no time, so the same inputs give the same bundle.
"""
MAX_COMPARED_SAMPLES = 100
"""Samples of a comparison of outputs."""
HEAVY_MACS = 1e9
"""A model of more multiply-accumulates runs through `interp` once, any other twice."""


def verify_bundle(
    bundle: Bundle,
    lowered: Lowered,
    min_cosine: float | None,
    say: Progress = lambda text: None,
) -> Verification:
    """Run the bundle on the samples in all ways of this machine, and compare.

    Each segment is compared with `interp` on the first sample or two. The outputs of a
    model that edgec quantized are compared with its float form on as many samples as the
    model's size allows.

    min_cosine: the least cosine between the outputs of both forms; None for a model that
    edgec did not quantize. Such a model must agree with its file within rounding.
    """
    segments = lowered.partition.segments
    checker = SegmentChecker()
    exact, count = _sample_counts(lowered)

    outputs = _OutputComparison(lowered, checker)
    with Session(bundle, tpu="c") as session:
        outputs.compare(session, exact, count, say)

    not_run = [_check_as_tflite(bundle, lowered, checker, exact, say)]
    not_run.append(check_as_board(bundle, lowered, checker, say))
    # Such segments amplify the last bit of a float, so their own limit is a wide one.
    mixed = [
        s for s in segments if decides_by_floats(s.graph) or computes_float16(s.graph)
    ]
    float16_ops: dict[str, None] = {}
    for i in each(range(exact if mixed else 0), exact, "verify op by op", say):
        ops = op_by_op(bundle, mixed, lowered.samples.verify[i])
        checker.add(ops.checks)
        float16_ops.update(dict.fromkeys(ops.float16))

    worst_checks = checker.worst()
    in_float16 = {s.name for s in segments if computes_float16(s.graph)}
    failures: list[str] = []
    float16 = list(outputs.float16)
    for check in worst_checks:
        if not check.ok:
            lines = float16 if check.segment in in_float16 else failures
            lines.append(str(check))
    failures += _unmapped(bundle, segments, lowered.wishes.optimistic)
    whole = outputs.agreements()
    unlike = [*outputs.unlike, *_too_unlike(whole, min_cosine)]
    quantized = lowered.model.quantized
    return Verification(
        outputs.samples,
        exact,
        lowered.samples.source,
        quantized.samples if quantized is not None else 0,
        lowered.samples.seen,
        outputs.reference.how,
        worst_checks,
        whole,
        quantized is not None,
        outputs.worst,
        "; ".join(filter(None, not_run)),
        tuple(failures),
        tuple(unlike),
        tuple(float16),
        tuple(float16_ops),
        outputs.not_finite,
    )


def _sample_counts(lowered: Lowered) -> tuple[int, int]:
    """Return the number of samples for segments, and the number for outputs."""
    macs = sum(op.spec.macs(op) for op in lowered.read.graph.ops)
    macs = max(1, macs)
    given = len(lowered.samples.verify)
    # `interp` takes seconds for a heavy model, and for each sample.
    exact = min(given, 1 if macs > HEAVY_MACS else 2)
    affordable = min(MAX_COMPARED_SAMPLES, int(COMPARED_MACS // macs))
    return exact, min(given, max(exact, affordable))


@dataclass
class _OutputComparison:
    """The outputs of a bundle's C beside the expected ones.

    Attributes:
        lowered: the model.
        checker: compares segments with `interp` on the first samples.
        reference: gives the expected outputs.
        unlike: the differences from the model as read beyond rounding.
        float16: the differences of a float16 model from float32 that are too large.
        worst: the op with the largest quantization noise of its own; None if edgec did
            not quantize.
        not_finite: the first value with NaN or infinity, if the outputs have some or
            differ; "" otherwise.
    """

    lowered: Lowered
    checker: SegmentChecker
    reference: _Reference = field(init=False)
    unlike: list[str] = field(default_factory=list)
    float16: list[str] = field(default_factory=list)
    worst: LayerNoise | None = None
    not_finite: str = ""
    _tallies: dict[str, Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reference = _Reference(self.lowered)

    @property
    def samples(self) -> int:
        """The number of samples that outputs were compared on."""
        return next((t.samples for t in self._tallies.values()), 0)

    def agreements(self) -> dict[str, Agreement]:
        """Return the agreement of each output over all samples."""
        return {name: tally.result() for name, tally in self._tallies.items()}

    def compare(self, session: Session, exact: int, count: int, say: Progress) -> None:
        """Run `count` samples; segments are compared too on the first `exact`."""
        for i in range(count):
            # More samples by `interp` alone would take too long.
            if i >= exact and not self.reference.of_any_sample:
                break
            say(f"verify {i + 1}/{count}")
            sample = self.lowered.samples.verify[i]
            if i < exact:
                self._compare_exactly(session, sample, first=i == 0)
            else:
                got = _outputs(session, sample)
                in_file = None if self._has_chip else got
                self._take_in(sample, got, in_file, self.reference(sample))

    def _compare_exactly(self, session: Session, sample: Sample, first: bool) -> None:
        """Compare every segment, then the outputs, on one sample."""
        segments = self.lowered.partition.segments
        quantized = self.lowered.model.quantized
        # The worst op hardly differs between samples, and all values take much memory.
        keeps = first and quantized is not None
        values: dict[str, Array] | None = {} if keeps else None
        got = _run(session, segments, sample, "C", self.checker, values)
        want = self.reference.exactly(sample)
        if quantized is not None and values is not None:
            graphs = {s.name: s.graph for s in segments}
            self.worst = worst_layer(
                graphs, values, quantized.float_graph, quantized.float_run, sample
            )
        in_file = self._in_tflite(sample) if self._has_chip else got
        self._take_in(sample, got, in_file, want)

    @property
    def _has_chip(self) -> bool:
        """Whether some C has the Edge TPU's arithmetic, and not that of the file."""
        segments = self.lowered.partition.segments
        is_chip = self.lowered.wishes.as_chip
        return is_chip and any(s.place == "edgetpu" for s in segments)

    def _in_tflite(self, sample: Sample) -> dict[str, Array]:
        """Return the outputs of all segments with the arithmetic of TFLite."""
        values = {**initial(self.lowered.graph), **sample}
        for s in self.lowered.partition.segments:
            inputs = {v.name: values[v.name] for v in s.graph.inputs}
            values.update(interp(s.in_tflite, inputs))
        return values

    def _take_in(
        self,
        sample: Sample,
        got: Mapping[str, Array],
        in_file: Mapping[str, Array] | None,
        want: Mapping[str, Array],
    ) -> None:
        """Add the outputs of one sample to the figures.

        in_file: the outputs with the arithmetic of the model as read; None: they are not
        compared exactly.
        """
        original = self.lowered.read.graph
        if self.lowered.model.quantized is None and in_file is not None:
            # An ONNX file may describe int8 in floats; the code agrees with the int8.
            described = self.lowered.described
            if self.lowered.model.float16 is not None:
                self.float16 += _too_unlike_float32(original, got, want)
            elif described is None:
                self.unlike += _unlike(original, sample, in_file, want)
            else:
                wanted = interp(described, sample)
                self.unlike += _unlike(described, sample, in_file, wanted)
        # Looking for the first such value runs the whole model: only if it explains.
        differs = self.unlike or self.float16
        if not self.not_finite and (differs or not nonfinite.is_finite(want)):
            self.not_finite = str(nonfinite.first(original, sample) or "")
        for name, y in want.items():
            self._tallies.setdefault(name, Tally()).add(y, got[name])


class _Reference:
    """The expected outputs of a model.

    `interp` computes them, or the float form's C as long as it agrees with `interp`.
    """

    def __init__(self, lowered: Lowered) -> None:
        self._imported = lowered.read.graph
        self._run = lowered.model.reference

    @property
    def of_any_sample(self) -> bool:
        """Whether there is a faster way than `interp` with the same results so far."""
        return self._run is not None

    @property
    def how(self) -> str:
        """The name of the executor of most outputs."""
        return "C" if isinstance(self._run, NativeGraph) else "interp"

    def exactly(self, sample: Sample) -> dict[str, Array]:
        """Return the outputs by `interp`, or by the faster way if both agree."""
        want = interp(self._imported, sample)
        if self._run is not None:
            got = self._run(sample, None)
            if not list(_unlike(self._imported, sample, got, want)):
                # Later samples come from this way too, and errors are added up.
                return got
            # Results that differ on this sample are no reference for others.
            self._run = None
        return want

    def __call__(self, sample: Sample) -> dict[str, Array]:
        assert self._run is not None, "the float form does not agree with interp"
        return self._run(sample, None)


def _check_as_tflite(
    bundle: Bundle,
    lowered: Lowered,
    checker: SegmentChecker,
    exact: int,
    say: Progress,
) -> str:
    """Run all .tflite files of the bundle on a TFLite interpreter.

    Return the note on files that were not run, with the reason; "" if all were.
    """
    segments = lowered.partition.segments
    on_edgetpu = [s for s in segments if s.place == "edgetpu"]
    # All segments ran as C before.
    written = segments if MODEL_TFLITE in bundle.manifest.files else on_edgetpu
    if names := [s.name for s in written if s.name in checker.ends_litert]:
        return (
            f"as TFLite: a softmax of {', '.join(names)} is so flat on these samples "
            f"(a sum of {LITERT_SUM} or more) that LiteRT ends its process"
        )
    check_whole(bundle, lowered, checker, exact)
    if not on_edgetpu:
        return ""
    in_tflite = [replace(s, graph=s.in_tflite) for s in on_edgetpu]
    with Session(bundle, tpu="interpreter") as session:
        for i in each(range(exact), exact, "verify TFLite", say):
            sample = lowered.samples.verify[i]
            _run(session, in_tflite, sample, "TFLite", checker)
    return ""


def _run(
    session: Session,
    segments: Sequence[Segment],
    sample: Sample,
    how: str,
    checker: SegmentChecker,
    values: dict[str, Array] | None = None,
) -> dict[str, Array]:
    """Run one inference, and check each segment on the inputs that it had.

    values: a dict for all int8 results, by name.
    """

    def keep(v: Value, array: Array) -> None:
        if values is not None and v.type.dtype == "int8":
            values[v.name] = array

    outputs = _outputs(session, sample)
    # With its own inputs, a segment is not blamed for an error of the one before.
    for s in segments:
        checker(s, session.tensor, how, keep)
    return outputs


def _outputs(session: Session, sample: Sample) -> dict[str, Array]:
    """Return the outputs of one inference, and the state for the next."""
    outputs = session.run(sample)
    state = session.manifest.state
    return {**outputs, **{s.output: session.tensor(s.output) for s in state}}


def _too_unlike(
    agreements: Mapping[str, Agreement], min_cosine: float | None
) -> Iterator[str]:
    """Yield a line on each output with a lower cosine than needed."""
    if min_cosine is None:
        return
    for name, a in agreements.items():
        # "not >=" instead of "<": a NaN cosine fails too.
        if not a.cosine >= min_cosine:
            yield (
                f"output {name} has cosine {a.cosine:.8g} with the float model, "
                f"{min_cosine} needed"
            )


def _too_unlike_float32(
    original: Graph, got: Mapping[str, Array], want: Mapping[str, Array]
) -> Iterator[str]:
    """Yield the outputs of a float16 model that are unlike those of float32.

    How like they are is said by the choice of float16 and by the agreements: this is
    the limit beyond which something is wrong.
    """
    if selects_by_floats(original):
        return
    for v in original.outputs:
        y = want[v.name]
        if y.dtype.kind != "f":
            continue
        error = root_mean_square(got[v.name], y)
        if error > FLOAT16_TOLERANCE:
            yield (
                f"output {v.name} in float16 is {error:.3g} from float32, "
                f"{FLOAT16_TOLERANCE:g} allowed"
            )


def _unmapped(
    bundle: Bundle, segments: Sequence[Segment], optimistic: bool
) -> Iterator[str]:
    """Yield operators of the emitted segments that the support rules refuse."""
    # The file is read back, since it may have operators that the graph has not, as the
    # conversions at borders.
    for s in segments:
        if s.place != "edgetpu":
            continue
        path = extract(bundle, f"segments/{s.name}.tflite")
        for o in judge(read_operators(path)):
            refused = o.verdict == "cpu"
            if refused or (o.verdict == "uncertain" and not optimistic):
                yield (
                    f"operator {o.index} of {s.name} ({o.opcode}) would not "
                    f"map: {o.rule}: {o.seen}"
                )


def _unlike(
    original: Graph,
    sample: Sample,
    got: Mapping[str, Array],
    want: Mapping[str, Array],
) -> Iterator[str]:
    """Yield the outputs that differ from the graph as read beyond rounding."""
    for v in original.outputs:
        y = want[v.name]
        error = distance(got[v.name], y)
        limit = 0.0
        if y.dtype.kind == "f":
            limit = float_limit(original, sample, v.name, y, error)
        # The op that selects is compared by itself, op by op.
        if error > limit and selects_by_floats(original):
            error, limit = amplified_error(original, sample, v.name, got[v.name], y)
        if error > limit:
            yield (
                f"output {v.name} is {error:.3g} from the model as imported, "
                f"{limit:.3g} allowed"
            )


MAX_EMULATED_MACS = 2e9
"""The limit of emulated multiply-accumulates in float: some 15 seconds.

It is a count and no time, so the same inputs give the same bundle.
"""
INTEGER_SHARE = 1 / 8
"""The time of an integer multiply-accumulate, as a part of a float one's."""


def check_as_board(
    bundle: Bundle, lowered: Lowered, checker: SegmentChecker, say: Progress
) -> str:
    """Run the program for the board's first target on the first sample.

    Each segment is checked. Return the note on code that was not run, with the reason;
    "" if all was, or if the board's code is this machine's.

    Raises EdgecError if the program fails.
    """
    board = lowered.target.board
    target = board.targets[0]
    if target.name == machine_target():
        return ""
    how = f"{target.qemu_cpu} code"
    # A missing emulator is no error, as most machines have none: the report says so.
    device = Emulated(board)
    reason = _too_much(lowered) or device.lacks(bundle)
    if reason:
        return f"as {how}: {reason}"
    say("emulate")
    sample = lowered.samples.verify[0]
    try:
        tensors = {**sample, **device.segments(bundle, sample)}
    except DeviceError as e:
        raise EdgecError(
            f"verification failed: as {how}, {e.what}",
            at=lowered.graph.name,
            hint="report it with the model",
        ) from e
    # The sample has the inputs of the first segment, the device returned all others.
    for s in lowered.partition.segments:
        checker(s, tensors.__getitem__, how)
    return ""


def _too_much(lowered: Lowered) -> str:
    """Return why a model is too large to be emulated, or ""."""
    # qemu emulates floats in software, so integers are far cheaper.
    weighted = 0.0
    macs = 0
    for s in lowered.partition.segments:
        for op in s.graph.ops:
            count = op.spec.macs(op)
            is_float = op.outputs[0].type.np_dtype.kind == "f"
            weighted += count * (1 if is_float else INTEGER_SHARE)
            macs += count
    if weighted <= MAX_EMULATED_MACS:
        return ""
    again = f"edgec run --on emulated:{lowered.target.board.name}"
    return f"its {macs / 1e9:.1f} G MACs are too many for an emulator ({again} runs it)"
