"""`explain`: where each operation of a model runs, and why, before it is compiled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from edgec_devices.boards import Target
from edgec_partitioner import converter
from edgec_partitioner.comparison import (
    Stock,
    cpu_only,
    stock_of_file,
    stock_of_graph,
    uncounted,
    whole,
)
from edgec_partitioner.cost import LINKS
from edgec_partitioner.explain import ExplainReport, Origin, explain, unplaced
from edgec_partitioner.source import judge

from edgec.catalogue.fetching import local_file
from edgec.compiler.host import Host
from edgec.compiler.lower import Lowered, lower
from edgec.compiler.native import native_compiler
from edgec.compiler.place import cpu_cost
from edgec.errors import InputError, UnsupportedError, did_you_mean
from edgec.frontends.operators import read_operators
from edgec.frontends.task_file import task_file
from edgec.frontends.task_metadata import stated_task
from edgec.ir import Graph
from edgec.ir.source import SourceOperator
from edgec.ops.opaque import Opaque
from edgec.options.compile import (
    COMPILE_RECIPE,
    EXPLAIN_RECIPE,
    CompileOptions,
    Options,
    with_task_file,
)
from edgec.passes._int16 import without_bounds
from edgec.passes.pipeline import available, optimize
from edgec.quantize.change.convert import assumed, evenly
from edgec.schedule.alternatives import ScheduledCall, scheduled_calls
from edgec.schedule.cores import cores_of
from edgec.schedule.rates import NOT_IN_C
from edgec.steps import Progress

_QUANTIZER = "the file as TFLite's int8 quantizer writes it"
_ONNX2TF = "the file as onnx2tf and TFLite's int8 quantizer write it"
"""The file that the stock compiler would be given, where it cannot take this one."""


# As in `lower`: constants are folded whose elements may overflow.
@np.errstate(over="ignore", invalid="ignore")
def explain_model(
    model: Path,
    options: Options,
    progress: Progress = lambda text: None,
    schedule: str | None = None,
) -> ExplainReport:
    """Return the report on a model file, beside what the stock compiler would do.

    A float model without calibration data is judged with assumed scales. A .tflite file
    is explained even if it holds what edgec cannot compile; `ExplainReport.obstacle`
    names it.

    schedule: the names of operations, a pattern, whose kernels are reported.
    """
    # Only then there may be a task file beside it.
    model = local_file(model, progress)
    # As a compile reads the model: a task file states preprocessing and head.
    task = task_file(model)
    head = stated_task(model).head if task.task is None else None
    options = with_task_file(options, task)
    is_tflite = model.suffix.lower() == ".tflite"
    try:
        host = Host(native_compiler(None), progress)
        whole_options = CompileOptions(**vars(options))
        lowered = lower(model, whole_options, host, head=head, assume=True)
    except UnsupportedError as e:
        if not is_tflite or options.input_shapes:
            raise
        # The file itself can still be judged, without edgec's own rewrites.
        return _of_operators(model, options, e.what)

    progress("compare")
    operators = read_operators(model) if is_tflite else ()
    target = lowered.target
    cpu = cpu_cost(target)
    # The baseline is the CPU alone, without what was done for the Edge TPU.
    plain = _without_rewrites(lowered, options)
    stock = _stock(lowered, operators, options)
    origin = Origin(
        model=lowered.graph.name,
        target=target.name,
        assumed_quantization=lowered.model.assumed,
        obstacle=_obstacle(lowered.read.graph),
        baseline=cpu_only(plain, cpu, uncounted(plain, stock)),
        stock=stock,
        operators=judge(operators, calibrated=options.calibrate is not None),
        rewritten=lowered.model.rewritten,
        remarks=(*_remarks(lowered), *_recipe_remark(lowered, options)),
    )

    explained = explain(lowered.partition, cpu, origin)
    if schedule is None:
        return explained
    return replace(explained, schedule=_schedule(lowered, schedule))


def _schedule(lowered: Lowered, pattern: str) -> tuple[ScheduledCall, ...]:
    """Return the kernels of the operations that match. Raises InputError without any."""
    board = lowered.target.board
    # A Pi's bundle may have code for several cores; the last one runs on any.
    core = cores_of(board, board.targets[0])[0]
    graph = lowered.partition.graph
    try:
        calls = tuple(scheduled_calls(graph, core, pattern))
    except NOT_IN_C as e:
        raise UnsupportedError(
            f"not all of the model can be written as C: {e}",
            at="--schedule",
            hint="edgec compile says which operation that is",
        ) from e
    if not calls:
        names = [op.outputs[0].name for op in graph.ops]
        raise InputError(
            f"no operation that computes something is called "
            f"{pattern}{did_you_mean(pattern, names)}",
            at="--schedule",
            hint="edgec explain --ops shows the names; * and ? stand for any characters",
        )
    return calls


def report(lowered: Lowered) -> ExplainReport:
    """Return the report on a lowered model, without the stock compiler."""
    cpu = cpu_cost(lowered.target)
    origin = Origin(
        lowered.graph.name,
        lowered.target.name,
        lowered.model.assumed,
        # The CPU alone would compute nothing twice.
        baseline=cpu_only(lowered.graph, cpu),
        rewritten=lowered.model.rewritten,
        remarks=_remarks(lowered),
    )
    return explain(lowered.partition, cpu, origin)


def _remarks(lowered: Lowered) -> tuple[str, ...]:
    """Return remarks on preprocessing, on parts of the file, and on --edgetpu all."""
    remarks: list[str] = []
    # Only calibration has photos that became inputs.
    if lowered.model.quantized is not None:
        remarks += lowered.read.preprocess_notes()
    remarks += lowered.notes
    has_stick = lowered.partition.link is not None
    if lowered.wishes.everything and has_stick:
        remarks.append(
            "--edgetpu all: what the Edge TPU can run is there, "
            "also what the CPU is faster at"
        )

    return tuple(remarks)


def _recipe_remark(lowered: Lowered, options: Options) -> tuple[str, ...]:
    """Return the remark that a compile would use another recipe by default."""
    if lowered.model.quantized is None or options.quantize is not None:
        return ()
    return (
        f"quantized by --quantize {EXPLAIN_RECIPE}, in seconds; "
        f"compile uses {COMPILE_RECIPE}, which may leave a few "
        f"operations in float32: --quantize {COMPILE_RECIPE} shows that",
    )


def _is_int8(lowered: Lowered) -> bool:
    """Return whether edgec made the model int8, by calibration or by assumption."""
    return lowered.model.quantized is not None or lowered.model.assumed


def _without_rewrites(lowered: Lowered, options: Options) -> Graph:
    """Return the graph without rewrites for the Edge TPU, int8 if the other one is."""
    if not _is_int8(lowered):
        return lowered.graph

    # The rewrites cannot be undone: the file's graph goes the same way without them.
    passes_off = set(options.disable) & set(available())
    plain = optimize(_before_scales(lowered), passes_off)

    return optimize(assumed(plain), passes_off)


def _before_scales(lowered: Lowered) -> Graph:
    """Return the graph of the file, to be given scales of int8."""
    graph = lowered.read.graph.copy()
    without_bounds(graph)
    return graph


def _stock(
    lowered: Lowered, operators: tuple[SourceOperator, ...], options: Options
) -> Stock | None:
    """Return what the stock compiler makes of the file.

    Of a file that it cannot take it is what it makes of the usual converter's result.
    None for a target without an Edge TPU.

    operators: those of a .tflite file.
    """
    if not lowered.target.coral:
        return None

    cpu = cpu_cost(lowered.target)
    link = LINKS[lowered.target.board.coral]
    if operators and not _is_int8(lowered):
        return stock_of_file(operators, cpu, link)

    # Converters do not know edgec's own rewrites.
    passes_off = (set(options.disable) & set(available())) | converter.UNDONE
    plain = converter.float_form(optimize(_before_scales(lowered), passes_off))
    converted = converter.int8_form(evenly(plain))

    return stock_of_graph(converted, cpu, link, _QUANTIZER if operators else _ONNX2TF)


def _obstacle(graph: Graph) -> str | None:
    """Return which operations of the file edgec cannot read, if there are any."""
    names = [op.spec.name for op in graph.ops if isinstance(op.spec, Opaque)]
    unread = dict.fromkeys(names)
    return f"it cannot read {', '.join(unread)}" if unread else None


def _of_operators(model: Path, options: Options, obstacle: str) -> ExplainReport:
    """Return the report on a file that edgec can only look at, operator by operator.

    obstacle: why it cannot be lowered.
    """
    operators = read_operators(model)
    target = Target.parse(options.target)
    cpu = cpu_cost(target)
    link = LINKS[target.board.coral] if target.coral else None
    stock = stock_of_file(operators, cpu, link) if link else None
    baseline = cpu_only(whole(operators)[0], cpu)
    judged = judge(operators, calibrated=options.calibrate is not None)
    origin = Origin(model.stem, target.name, False, obstacle, baseline, stock, judged)

    return unplaced(origin, baseline, link, cpu)
