"""The first half of a compile, from a model file to placed segments.

`explain` shares it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from edgec_devices.boards import ArchTarget, Target
from edgec_devices.options import path_of
from edgec_partitioner.choice import Wishes
from edgec_partitioner.partition import Partition
from edgec_partitioner.rounding import as_tflite

from edgec.compiler.float_width import check_width, listed, with_float16
from edgec.compiler.host import Host
from edgec.compiler.judge import LabelledData
from edgec.compiler.native import native_compiler, runner
from edgec.compiler.optimise import optimise
from edgec.compiler.place import left_in_float, place, pricer, unwritten, wishes_of
from edgec.compiler.quantize import FinalModel, QuantizeOptions, Quantizer
from edgec.compiler.read import ReadModel, ReadOptions, read
from edgec.compiler.samples import SampleReader, Samples
from edgec.frontends.ultralytics import Head
from edgec.ir import Graph, Refusal
from edgec.options.compile import CHIP, CompileOptions
from edgec.passes.recognize_quantized import described
from edgec.schedule.cores import Core, cores_of
from edgec.toolchain.edgetpu.own import OWN


@dataclass(frozen=True)
class Lowered:
    """A model on its way to code.

    Attributes:
        target: the board, with or without an Edge TPU.
        read: the model of the file.
        samples: the samples to calibrate and to verify with.
        wide: the model in its final precision, but for float16.
        model: the model in its final precision.
        wishes: the wishes about the share of the Edge TPU.
        partition: the segments, and where each runs.
        described: the int8 graph that an ONNX file describes in floats; the code must
            agree with it instead of the graph as read.
    """

    target: Target
    read: ReadModel
    samples: Samples
    wide: FinalModel
    model: FinalModel
    wishes: Wishes
    partition: Partition
    described: Graph | None = None

    @property
    def graph(self) -> Graph:
        """The graph that is partitioned."""
        return self.model.graph

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes on the file, its state and its precision."""
        notes = (*self.read.notes, *self.read.state_notes(), *self.model.notes)
        if self.described is not None:
            notes = (*notes, *notes_on_quantized_file(self.described))
        return notes

    def cores(self, target: ArchTarget, threads: int = 1) -> tuple[Core, ...]:
        """Return the cores that the code for a target is written for, the best first.

        threads: the largest number of threads.
        """
        cores = cores_of(self.target.board, target, threads)
        choice = self.model.float16
        if choice is None:
            return cores
        return tuple(replace(core, winograd_f16=choice.winograd) for core in cores)

    def without(self, refused: Mapping[str, Refusal]) -> Lowered:
        """Return the model partitioned again, with more operations on the CPU.

        refused: the refusals by edgetpu_compiler, by the first outputs of operations.
        """
        # Refusals of earlier rounds stay, or the loop would turn in circles.
        every = {**self.wishes.refused, **refused}
        wishes = replace(self.wishes, refused=every)
        partition = place(self.graph, self.target, wishes)
        return replace(self, wishes=wishes, partition=partition)

    def with_float32(
        self, ops: Collection[str], options: CompileOptions, host: Host
    ) -> Lowered:
        """Return the model with more operations in float32, partitioned again.

        They could not be verified in float16.

        Args:
            ops: the operations, by their first outputs; none: all
            options: the options of the compile
            host: the C compiler of this machine
        """
        if ops:
            model = with_float16(self.wide, options, self.read, self.samples, host, ops)
            remark = f"float32 after verification, as float16 has too few bits: {listed(ops)}"
        else:
            model = self.wide
            remark = "floats stay float32: with float16 the outputs cannot be verified"

        model = replace(model, notes=(*model.notes, remark))
        partition = place(model.graph, self.target, self.wishes)
        return replace(self, model=model, partition=partition)


# NaN and infinity of the file are reported by `read`: numpy need not warn too.
@np.errstate(over="ignore", invalid="ignore")
def lower(
    model: Path,
    options: CompileOptions,
    host: Host | None = None,
    *,
    head: Head | None = None,
    assume: bool = False,
    labelled: LabelledData | None = None,
) -> Lowered:
    """Lower a model file to segments.

    Args:
        model: the model file.
        options: the options of the compile.
        host: the C compiler of this machine, and the functions for progress and dumps;
            None: zig, and none.
        head: the possible end of a network before a head with box selection; the network
            ends there if the head cannot be int8, or cannot be read.
        assume: whether the model is only looked at: a float model without calibration
            gets made-up scales, and an unknown operator of a .tflite file is opaque.
        labelled: labelled pictures to choose by; None: there are none.

    Raises EdgecError.
    """
    host = host or Host(native_compiler(None))
    target = Target.parse(options.target, options.also)
    # Impossible options are errors before minutes of work.
    options.check()
    check_width(options)
    quantizing = QuantizeOptions.of(options, model.name, assume)
    wishes = replace(wishes_of(options), as_chip=options.rounding == CHIP)

    host.say("read")
    model_read = read(model, ReadOptions.of(options, head, assume))
    host.dump("import", model_read.graph)

    host.say("optimise")
    canonical = optimise(model_read.graph, quantizing.passes_off, host.dump)

    host.say("load samples")
    run = partial(runner, compiler=host.compiler, say=host.say)
    reader = SampleReader(canonical, model_read.preprocess, run)
    samples = reader.read(path_of(options.calibrate), path_of(options.validate))

    # The recipe weighs accuracy against time, so it needs the cost of a placement
    # before the graph is placed.
    price = pricer(target, wishes, quantizing.passes_off)
    judge = None
    if labelled is not None:
        judge = labelled.judge(model_read, canonical, samples)
        judge.compare_with(run(canonical, judge.pictures))
    quantizer = Quantizer(target, quantizing, price, host, judge)
    wide = quantizer.quantize(canonical, samples)
    if wide.quantized is not None:
        refused = left_in_float(wide.quantized)
        wishes = replace(wishes, refused=refused)

    final = with_float16(wide, options, model_read, samples, host)

    if options.edgetpu_compiler == OWN:
        refused = {**wishes.refused, **unwritten(final.graph)}
        wishes = replace(wishes, refused=refused)

    host.say("partition")
    partition = place(final.graph, target, wishes)
    # Such a file computes in floats between scales, so its own outputs differ from int8
    # arithmetic by rounding steps: the int8 form is the reference instead.
    stated = None
    if wide.taken_as_it_is and described(model_read.graph):
        stated = wide.graph.copy()
        # Code for a target with an Edge TPU rounds as TFLite does throughout.
        stated = as_tflite(stated) if target.coral else stated
    return Lowered(
        target=target,
        read=model_read,
        samples=samples,
        wide=wide,
        model=final,
        wishes=wishes,
        partition=partition,
        described=stated,
    )


_INT8_NOTE = (
    "the file is quantized as ONNX has it: {int8} operations became int8; "
    "convolutions, matrix products, sums, "
    "products, means, averages, resizes and functions round as onnxruntime does on Arm "
    "(a float, ties to even); "
    "softmax and averages into a scale of their own, and for an Edge TPU all, "
    "as TFLite does, so that each of these "
    "may differ by one step from onnxruntime"
)
_MAX_KINDS = 4
"""The kinds of float operations that a note lists."""


def notes_on_quantized_file(graph: Graph) -> tuple[str, ...]:
    """Return the notes on the precision of a model from a quantized ONNX file.

    graph: the optimised graph, in which operations that the file describes in floats
    between scales have their int8 forms.
    """
    int8_results = 0
    floats: Counter[str] = Counter()
    for op in graph.ops:
        # Conversions compute nothing that has a precision of its own.
        if op.kind in ("quantize", "dequantize"):
            continue
        for v in op.outputs:
            if v.type.dtype == "int8" and v.type.is_quantized:
                int8_results += 1
        if any(v.type.dtype == "float32" for v in op.outputs):
            floats[op.kind] += 1

    int8_note = _INT8_NOTE.format(int8=int8_results)
    if not floats:
        return (int8_note,)
    kinds = ", ".join(f"{n} x {kind}" for kind, n in floats.most_common(_MAX_KINDS))
    if len(floats) > _MAX_KINDS:
        kinds += ", …"
    float_note = (
        f"{floats.total()} operations have no int8 form there and stay float: {kinds}"
    )
    return (int8_note, float_note)
