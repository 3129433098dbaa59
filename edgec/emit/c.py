"""Graph → C: one file per segment, with a function that runs it, and its constants.

Weights are binary, in the segment's part of the bundle's weights file, whose address
the caller gives. Scalars and tables with a value for each channel are static arrays in
the text: the C compiler computes with them (signs of shifts, masks, how far to unroll),
which is worth 3 % of the instructions of MobileNet v2. There is no other global.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec.emit.entries import entry_functions
from edgec.emit.memory import ArenaPlan, plan_offsets
from edgec.emit.weights import WeightsFile
from edgec.emit.writer import Text as Text
from edgec.emit.writer import Writer, file_text
from edgec.errors import InternalError, UnsupportedError
from edgec.ir import Graph, KernelCall, Op, Value
from edgec.ir.c_headers import CSRC as CSRC
from edgec.ir.verify import lacks_scale
from edgec.schedule.completion import complete
from edgec.schedule.cores import PLAIN, Core
from edgec.schedule.liveness import lifetimes, tensors
from edgec.schedule.steps import DEFAULT, Scheduled, apply_variant, schedule
from edgec.schedule.variant import Choose, Rules
from edgec.schedule.views import Places


@dataclass(frozen=True)
class CSource:
    """One generated file.

    Attributes:
        name: the segment
        text: the C
        headers: the headers of csrc that it includes
        plan: the plan of its arena
        calls: for each op of the graph its position among `functions`; None for a copy
            that needs no code
        within: for each op the position of the function whose time includes it, which
            differs from `calls` for fused ops
        functions: the names that its profile reports, in order: every op that computes
            something, the same on all cores whatever is fused there
        constants: bytes of its constant arrays
        weights: the file with the arrays that are not in the text
        places: the places of the values
        complete: how many functions must have run before a value is complete; of values
            that are never held in parts
        plain_calls: the calls of plain kernels that it computes, with the names of
            their functions
        spans: for each op the part of the weights file with its constants; only of a
            source with a file of its own and text="none"
    """

    name: str
    text: str
    headers: tuple[str, ...]
    plan: ArenaPlan
    calls: tuple[int | None, ...]
    within: tuple[int | None, ...]
    functions: tuple[str, ...]
    constants: int
    weights: WeightsFile
    places: Places
    complete: Mapping[Value, int]
    plain_calls: tuple[tuple[str, KernelCall], ...]
    spans: Mapping[int, tuple[int, int]]


def segment_source(
    graph: Graph,
    name: str,
    core: Core = PLAIN,
    weights: WeightsFile | None = None,
    text: Text = "small",
    rules: Rules = DEFAULT,
) -> CSource:
    """Return the C of one segment for a core.

    Its functions are edgec_<name>_run and edgec_<name>_profile, which marks the
    beginning of each op (ek_model.h). They write the results of ops alone: an output of
    the segment that is an input or a constant is left to the caller, and a value that is
    several outputs is written to the first. Raises UnsupportedError for an op without a kernel.

    Args:
        graph: the segment
        name: its name
        core: the core that runs it
        weights: the file that its weights are added to; without one it has its own
        text: the constants that are written as text. "all": each is an array of its
            own, so that a sanitizer sees reads beyond its end. "none": graphs that differ in
            nothing but constants have the same text (`constants_again`).
        rules: the parts of a schedule that are allowed
    """
    # Without its scale, an op would fail while it makes its calls.
    check_types(graph)
    scheduled = schedule(graph, core, rules)
    if weights is None:
        weights = WeightsFile(apart=text == "none")

    writer = Writer(graph, scheduled.places, weights, text, core.threads)
    statements: dict[int, list[str]] = {}
    for step in scheduled.steps:
        for call in step.calls:
            _check_kernel(call, graph.ops[step.ops[0]])
        statements[step.at] = writer.step(step)

    # Scratch memory is known only after all functions are written.
    border = {*graph.inputs, *graph.outputs}
    used = [tensors(step.calls) for step in scheduled.steps]
    lives = lifetimes(used, scheduled.places, border)
    plan = plan_offsets(lives + writer.scratches)

    # Denormal floats are slow on x86.
    flushes_denormals = "avx2" in core.isa and _has_floats(graph)
    headers = {kernel.header for kernel in writer.calls} | {"ek_base.h"}
    if core.threads > 1:
        headers.add("ek_share.h")
    if flushes_denormals:
        headers.add("ek_denormals.h")

    marks = [statements.get(i, ()) for i in scheduled.ops]
    entries = entry_functions(name, marks, core.threads, flushes_denormals)

    # In an order that does not depend on hashes, so that builds can be repeated.
    sorted_headers = sorted(headers)
    positions = _Positions(graph, scheduled)
    return CSource(
        name=name,
        text=file_text(writer, plan, sorted_headers, name) + entries,
        headers=tuple(sorted_headers),
        plan=plan,
        calls=positions.calls(),
        within=positions.within(),
        functions=tuple(_function_name(graph, i) for i in scheduled.ops),
        constants=writer.constant_bytes,
        weights=writer.weights,
        places=scheduled.places,
        complete=complete(graph, scheduled),
        plain_calls=_plain_calls(graph, scheduled),
        spans=writer.spans,
    )


class _Positions:
    """The positions of the ops of a graph among the functions of its profile."""

    def __init__(self, graph: Graph, scheduled: Scheduled) -> None:
        self._ops = range(len(graph.ops))
        self._steps = scheduled.steps
        self._positions = {op: i for i, op in enumerate(scheduled.ops)}

    def calls(self) -> tuple[int | None, ...]:
        """Return the position of each op; None for copies that are not needed."""
        return tuple(self._positions.get(op) for op in self._ops)

    def within(self) -> tuple[int | None, ...]:
        """Return the position of the function that computes each op."""
        computed: dict[int, int | None] = {}
        for step in self._steps:
            for op in step.ops:
                computed[op] = self._positions.get(step.at)

        return tuple(computed.get(op) for op in self._ops)


def _has_floats(graph: Graph) -> bool:
    """Return whether a graph computes floats."""
    outputs = [value for op in graph.ops for value in op.outputs]
    return any(value.type.dtype == "float32" for value in outputs)


def _function_name(graph: Graph, op: int) -> str:
    """Return the name of an op in a profile."""
    return f"op{op}_{graph.ops[op].kind}"


def _plain_calls(
    graph: Graph, scheduled: Scheduled
) -> tuple[tuple[str, KernelCall], ...]:
    """Return the calls of plain kernels, with the names of their functions."""
    calls: list[tuple[str, KernelCall]] = []
    for step in scheduled.plain_steps:
        for call in step.calls:
            calls.append((_function_name(graph, step.at), call))

    return tuple(calls)


def constants_again(
    source: CSource, op: Op, at: int, core: Core, choose: Choose
) -> bytes:
    """Return the bytes of an op's span in the weights file, for other constants.

    Args:
        source: of text="none", written for the core by rules that fuse nothing
        op: an op in the place of that at position `at`, with constants of the same
            shapes
        at: the position in the graph
        core: the core
        choose: chooses the variants, as for the source
    """
    calls = [apply_variant(call, core, choose) for call in op.calls()]
    weights = WeightsFile(apart=True)
    writer = Writer(Graph(""), source.places, weights, "none", core.threads)
    writer.whole("again", calls)

    # Constants of other shapes would shift everything behind them.
    first, last = source.spans[at]
    data = writer.weights.data
    if len(data) != last - first:
        raise InternalError(
            f"the constants of {op!r} take {len(data)} bytes, not {last - first}"
        )

    return data


def check_kernels(graph: Graph) -> None:
    """Raise UnsupportedError for an op that cannot be written as C.

    No C is written for that.
    """
    check_types(graph)
    for op in graph.ops:
        # Opaque ops are those of models that are only looked at.
        if op.spec.opaque:
            continue

        # An element type without a suffix has no kernels at all.
        try:
            calls = op.calls()
        except ValueError as e:
            raise _no_kernel(op) from e
        for call in calls:
            _check_kernel(call, op)


def check_types(graph: Graph) -> None:
    """Raise UnsupportedError for int8 without a scale where a kernel needs one."""
    for op in graph.ops:
        if lacks_scale(op):
            raise _no_kernel(op)


def _check_kernel(call: KernelCall, op: Op) -> None:
    """Raise UnsupportedError where csrc does not have the kernel of a call."""
    if not call.kernel.is_defined:
        raise _no_kernel(op)


def _no_kernel(op: Op) -> UnsupportedError:
    """Return the error for an op without a kernel, which names its types."""
    types = sorted({_type_text(value) for value in (*op.inputs, *op.outputs)})
    return UnsupportedError(
        f"edgec has no C kernel for {op.kind} of {', '.join(types)}",
        f"{op.source} ({op.kind})",
        "compute it in float32, or leave it to the program around the model",
    )


def _type_text(value: Value) -> str:
    """Return the element type of a value, for a message."""
    return value.type.dtype + (" without a scale" if value.type.is_plain_int8 else "")
