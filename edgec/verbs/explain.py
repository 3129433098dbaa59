"""`explain`: where each operation of a model runs, and why, before anything is
compiled.
"""

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

from edgec.compiler.host import Host
from edgec.compiler.lower import Lowered, lower
from edgec.compiler.native import native_compiler
from edgec.compiler.options import (
    COMPILE_RECIPE,
    EXPLAIN_RECIPE,
    CompileOptions,
    Options,
)
from edgec.compiler.place import cpu_cost
from edgec.errors import UnsupportedError
from edgec.frontends.operators import read_operators
from edgec.frontends.stated_task import stated_task
from edgec.frontends.task_file import task_file
from edgec.ir import Graph
from edgec.ir.source import SourceOperator
from edgec.ops.opaque import Opaque
from edgec.passes._int16 import without_bounds
from edgec.passes.pipeline import available, optimize
from edgec.quantize.change.convert import assumed, evenly
from edgec.steps import Progress


@np.errstate(over="ignore", invalid="ignore")  # as in `lower`
def explain_model(
    model: Path, options: Options, progress: Progress = lambda text: None
) -> ExplainReport:
    """The report on a model file, next to what the stock compiler would make of it.

    A float model without calibration data is judged with assumed scales. A .tflite file
    is explained even if it holds what edgec cannot compile; `ExplainReport.obstacle` says
    what.
    """
    given = task_file(model)
    head = stated_task(model).head if given.task is None else None
    preprocess = given.with_preprocess(options.preprocess)
    options = replace(options, preprocess=preprocess)
    whole_options = CompileOptions(**vars(options))
    try:
        host = Host(native_compiler(None), progress)
        lowered = lower(model, whole_options, host, head=head, assume=True)
    except UnsupportedError as e:
        if model.suffix.lower() != ".tflite" or options.input_shapes:
            raise
        return _of_operators(model, options, e.what)
    progress("compare")
    operators = read_operators(model) if model.suffix.lower() == ".tflite" else ()
    target, cpu = lowered.target, cpu_cost(lowered.target)
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
    return explain(lowered.partition, cpu, origin)


def report(lowered: Lowered) -> ExplainReport:
    """The report on a model that is already lowered; it says nothing of the stock
    compiler.
    """
    origin = Origin(
        lowered.graph.name,
        lowered.target.name,
        lowered.model.assumed,
        rewritten=lowered.model.rewritten,
        remarks=_remarks(lowered),
    )
    return explain(lowered.partition, cpu_cost(lowered.target), origin)


def _remarks(lowered: Lowered) -> tuple[str, ...]:
    """How calibration photos became inputs, what of the file was left out, and what a
    person asked for.
    """
    asked = lowered.wishes.everything and lowered.partition.link is not None
    return (
        *(
            lowered.read.preprocess_notes()
            if (lowered.model.floats is not None)
            else ()
        ),
        *lowered.notes,
        *(
            [
                "--edgetpu all: what the Edge TPU can run is there, "
                "also what the CPU is faster at"
            ]
            if asked
            else []
        ),
    )


def _recipe_remark(lowered: Lowered, options: Options) -> tuple[str, ...]:
    """Which recipe made the model int8, where nobody chose one and a compile would use
    another.
    """
    if not (lowered.model.floats is not None) or options.quantize is not None:
        return ()
    return (
        f"quantized by --quantize {EXPLAIN_RECIPE}, in seconds; "
        f"compile uses {COMPILE_RECIPE}, which may leave a few "
        f"operations in float32: --quantize {COMPILE_RECIPE} shows that",
    )


def _without_rewrites(lowered: Lowered, options: Options) -> Graph:
    """The graph that would be partitioned if there were no rewrites for the Edge TPU;
    int8 if that one is.
    """
    if not ((lowered.model.floats is not None) or lowered.model.assumed):
        return lowered.graph
    passes_off = set(options.disable) & set(available())
    return optimize(assumed(optimize(_to_scale(lowered), passes_off)), passes_off)


def _to_scale(lowered: Lowered) -> Graph:
    """The graph of the file, to be given scales of int8."""
    graph = lowered.read.graph.copy()
    without_bounds(graph)
    return graph


def _stock(
    lowered: Lowered, operators: tuple[SourceOperator, ...], options: Options
) -> Stock | None:
    """Of the file if the stock compiler can take it, else of the one that the usual
    converter would make of it.
    """
    if not lowered.target.coral:
        return None
    cpu = cpu_cost(lowered.target)
    link = LINKS[lowered.target.board.coral]
    if operators and not ((lowered.model.floats is not None) or lowered.model.assumed):
        return stock_of_file(operators, cpu, link)
    passes_off = (set(options.disable) & set(available())) | converter.UNDONE
    plain = converter.float_form(optimize(_to_scale(lowered), passes_off))
    return stock_of_graph(
        converter.int8_form(evenly(plain)),
        cpu,
        link,
        _QUANTIZER if operators else _ONNX2TF,
    )


_QUANTIZER = "the file as TFLite's int8 quantizer writes it"
_ONNX2TF = "the file as onnx2tf and TFLite's int8 quantizer write it"


def _obstacle(graph: Graph) -> str | None:
    unread = dict.fromkeys(
        op.spec.name for op in graph.ops if isinstance(op.spec, Opaque)
    )
    return f"it cannot read {', '.join(unread)}" if unread else None


def _of_operators(model: Path, options: Options, obstacle: str) -> ExplainReport:
    """Of a file that edgec can only look at, operator by operator."""
    operators = read_operators(model)
    target = Target.parse(options.target)
    cpu = cpu_cost(target)
    link = LINKS[target.board.coral] if target.coral else None
    stock = stock_of_file(operators, cpu, link) if link else None
    baseline = cpu_only(whole(operators)[0], cpu)
    judged = judge(operators, calibrated=options.calibrate is not None)
    origin = Origin(model.stem, target.name, False, obstacle, baseline, stock, judged)
    return unplaced(origin, baseline, link)
