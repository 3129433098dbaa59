"""Random graphs: samples of all ops behind each other, in other shapes, types and ranks; and
networks of images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from benchmarks.fuzzing.networks import network
from edgec.ir import (
    Array,
    Builder,
    Graph,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ir.verify import VerifyError, verify
from edgec.ops.broadcast import Tile
from edgec.ops.cast import Cast
from edgec.ops.concat import Concat
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Reshape
from edgec.ops.slice import Slice
from tests.harness import random_array

T = TypeVar("T")

MOST_OPS = 7
"""The most samples of a graph; ops that adapt the type of an output come on top."""
PORTS = 8
"""The most inputs and outputs of a graph: as many as tests.schedule.runner has."""
_LARGEST = 6000
"""The most elements of a tensor."""
_DIMS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
_TRIES = 4
_NETWORKS = 0.2
"""The share of graphs that are networks of images."""
_MORE_OUTPUTS = 0.07
"""The share of graphs in which an input or a constant is an output too."""


@cache
def samples() -> dict[str, tuple[Sample, ...]]:
    """Return the samples by kind of all ops that have a kernel."""
    found = {
        kind: tuple(cls.samples())
        for kind, cls in sorted(OpDef.registry.items())
        if cls.has_kernel()
    }
    return {kind: some for kind, some in found.items() if some}


@dataclass
class _Maker:
    """A graph under construction.

    Attributes:
        rng: the random numbers
        build: takes the ops
        pool: the values that an op may read
    """

    rng: np.random.Generator
    build: Builder
    pool: list[Value]

    def pick(self, options: list[T] | tuple[T, ...]) -> T:
        """Return one of some options."""
        return options[self.rng.integers(len(options))]

    def add(self) -> None:
        """Add an op of a sample, in other shapes if it takes them, which reads values of
        the pool.
        """
        of = samples()
        sample = self.rescaled(self.pick(of[self.pick(tuple(of))]))
        args = next(
            (a for a in (self.varied(sample) for _ in range(_TRIES)) if a is not None),
            sample.args,
        )
        ops = len(self.build.graph.ops)
        inputs = len(self.build.graph.inputs)
        try:
            values: list[Value] = []
            for i in range(len(args)):
                values.append(self.operand(sample, args, i, values))
            self.write(sample, values)
        except (ValueError, VerifyError):  # what was made for it is there for no one
            del self.build.graph.ops[ops:], self.build.graph.inputs[inputs:]

    def write(self, sample: Sample, values: list[Value]) -> None:
        """Add the op; raise ValueError or VerifyError if it does not take these values."""
        types = outputs(sample, [v.type for v in values])
        results = [self.build.value("v", t) for t in types]
        op = self.build.write(sample.spec, values, results)
        alone = Graph(
            "op", [v for v in dict.fromkeys(values) if v.const is None], results, [op]
        )
        verify(alone, "partitioned")
        self.pool += [v for v in results if not _of_the_border(v.type)]

    def rescaled(self, sample: Sample) -> Sample:
        """Return a sample, sometimes with odd or extreme scales and zero points.

        The scale of a bias stays the product of two.
        """
        acts = [
            a.type
            for i, a in enumerate(sample.args)
            if sample.spec.role(i) == "act" and a.type.is_quantized
        ]
        whole = all(
            t.quant is not None and t.quant.axis is None and t.dtype == "int8"
            for t in acts
        )
        if (
            not acts
            or not whole
            or self.rng.random() < 0.6
            or sample.spec.quant is QuantRule.FLOAT
        ):
            return sample
        same = self.quant()
        one = sample.spec.quant is QuantRule.SAME
        new = [same if one or i == 0 else self.quant() for i in range(len(sample.args))]
        args = []
        for i, arg in enumerate(sample.args):
            if sample.spec.role(i) == "act" and arg.type.is_quantized:
                args.append(replace(arg, type=arg.type.with_quant(new[i])))
            elif sample.spec.role(i) == "bias" and arg.type.quant is not None:
                weight = sample.args[1].type.quant
                assert weight is not None
                scales = tuple(
                    float(np.float32(new[0].scale[0]) * np.float32(s))
                    for s in weight.scale
                )
                args.append(
                    replace(
                        arg,
                        type=arg.type.with_quant(
                            Quant(scales, (0,) * len(scales), weight.axis and 0)
                        ),
                    )
                )
            else:
                args.append(arg)
        given = sample.output_quant
        if given is not None and sample.spec.quant is not QuantRule.FIXED:
            given = same if one else self.quant()
        return replace(sample, args=tuple(args), output_quant=given)

    def quant(self) -> Quant:
        """Return a scale of about 1/50, sometimes tiny or huge, and any zero point."""
        far = self.rng.random() < 0.2
        scale = 10.0 ** (
            self.rng.uniform(-7, 4) if far else self.rng.uniform(-2.5, -0.5)
        )
        return Quant.per_tensor(
            float(np.float32(scale)),
            int(self.pick((-128, 127, 0, int(self.rng.integers(-128, 128))))),
        )

    def varied(self, sample: Sample) -> tuple[Arg, ...] | None:
        """Return the operands of a sample in other shapes; None if the op refuses them."""
        sizes = {d: int(self.pick(_DIMS)) for a in sample.args for d in a.type.shape}
        kept = self.rng.random() < 0.5
        front = (int(self.pick((1, 2, 3))),) if self.rng.random() < 0.15 else ()
        made = []
        for arg in sample.args:
            if arg.data is not None:
                made.append(arg)
                continue
            shape = front + tuple(d if kept else sizes[d] for d in arg.type.shape)
            if self.rng.random() < 0.15:
                shape = tuple(1 if self.rng.random() < 0.5 else d for d in shape)
            if self.rng.random() < 0.1:
                shape = shape[1:]
            quant = _stretched(arg.type.quant, shape)
            if arg.type.quant is not None and quant is None:
                return None
            made.append(replace(arg, type=TensorType(shape, arg.type.dtype, quant)))
        try:
            types = outputs(sample, [a.type for a in made])
        except ValueError:
            return None
        if all(t.size <= _LARGEST for t in (*types, *(a.type for a in made))):
            return tuple(made)
        return None

    def operand(
        self, sample: Sample, args: tuple[Arg, ...], i: int, before: list[Value]
    ) -> Value:
        """Return an operand: a constant, a value of the pool, an input, or an earlier
        operand of the op again. Some channels of weights are dead.
        """
        arg = args[i]
        spec = sample.spec
        if arg.const:
            array = arg.data if arg.data is not None else self.array(arg.type)
            if (
                arg.data is None
                and spec.role(i) == "weight"
                and array.ndim
                and self.rng.random() < 0.1
            ):
                array[self.rng.random(array.shape[0]) < 0.5] = 0
            return self.build.const(array, "c", arg.type.quant)
        if (
            before
            and arg.data is None
            and spec.role(i) == "act"
            and self.rng.random() < 0.1
        ):
            value = self.pick(before)
            if value.const is None and fits(sample, args, i, value.type):
                return value
        if spec.role(i) == "act" and arg.data is None:
            if self.pool and self.rng.random() < 0.75 and not _of_the_border(arg.type):
                value = self.pick(
                    self.pool[-3:] if self.rng.random() < 0.6 else self.pool
                )
                if self.rng.random() < 0.5 and fits(sample, args, i, value.type):
                    return value
                if arg.type.size and value.type.size:
                    return self.brought(value, arg.type)
            if self.rng.random() < 0.15:
                return self.build.const(self.array(arg.type), "c", arg.type.quant)
        if len(self.build.graph.inputs) >= PORTS or arg.data is not None:
            return self.build.const(
                arg.data if arg.data is not None else self.array(arg.type),
                "c",
                arg.type.quant,
            )
        value = self.build.input("x", arg.type)
        self.pool += [] if _of_the_border(arg.type) else [value]
        return value

    def array(self, t: TensorType) -> Array:
        """Return an array of random elements."""
        return random_array(t, self.rng)

    def brought(self, x: Value, to: TensorType) -> Value:
        """Return the elements of a value as another type: in another scale, repeated or
        cut off, and in another shape.
        """
        b = self.build
        if (x.type.dtype, x.type.quant) != (to.dtype, to.quant):
            if to.quant is not None and to.quant.axis is not None:
                raise ValueError("scales of channels")
            if to.is_quantized:
                # as front-ends read int16
                if x.type.is_quantized and "int16" in (x.type.dtype, to.dtype):
                    x = b.add(Dequantize(), [x], "dequantize")
                if not x.type.is_quantized and x.type.dtype != "float32":
                    x = b.add(Cast("float32"), [x], "cast")
                x = b.add(Quantize(to.dtype), [x], "quantize", to.quant)
            else:
                x = b.add(Dequantize(), [x], "dequantize") if x.type.is_quantized else x
                if x.type.dtype == to.dtype:
                    x = x
                else:
                    x = b.add(Cast(to.dtype), [x], "cast")
        if x.type.shape == to.shape:
            return x
        x = b.add(Reshape((x.type.size,)), [x], "flat")
        if x.type.size < to.size:
            times = -(-to.size // x.type.size)
            if times < 4:
                x = b.add(Concat(0), [x] * times, "repeated")
            else:
                x = b.add(Tile((times,)), [x], "repeated")
        if x.type.size > to.size:
            begin = int(self.rng.integers(x.type.size - to.size + 1))
            x = b.add(Slice((begin,), (to.size,), (1,)), [x], "cut")
        return b.add(Reshape(to.shape), [x], "shaped")


def outputs(sample: Sample, inputs: list[TensorType]) -> list[TensorType]:
    """Return the types of a sample's outputs; raise ValueError if it refuses the inputs."""
    types = sample.spec.infer(*inputs)
    quant = sample.output_quant
    return [
        t
        if quant is None or t.dtype not in ("int8", "uint8", "int16")
        else t.with_quant(quant)
        for t in types
    ]


def fits(sample: Sample, args: tuple[Arg, ...], i: int, given: TensorType) -> bool:
    """Return whether operand `i` can be of this type."""
    if (given.dtype, given.quant) != (args[i].type.dtype, args[i].type.quant):
        return False
    try:
        types = [given if k == i else a.type for k, a in enumerate(args)]
        return all(t.size <= _LARGEST for t in outputs(sample, types))
    except ValueError:
        return False


def _of_the_border(t: TensorType) -> bool:
    """Return whether only inputs and outputs of a graph may be of this type."""
    return t.dtype == "uint8" and t.is_quantized


def _stretched(quant: Quant | None, shape: tuple[int, ...]) -> Quant | None:
    """Return the scales for another number of channels."""
    if quant is None or quant.axis is None:
        return quant
    n = shape[quant.axis] if quant.axis < len(shape) else 0
    if n == 0:
        return None
    repeats = -(-n // len(quant.scale))
    return Quant(
        (quant.scale * repeats)[:n], (quant.zero_point * repeats)[:n], quant.axis
    )


_NAMES = (
    'a"b',
    "*/",
    "\\",
    "x\ny",
    "\u202e",
    "é",
    "%s",
    "a b",
    "//",
    "int",
    "0",
    "out[0]",
    "\x1b[31m",
    "'",
    "y" * 300,
)


def _name_oddly(graph: Graph, rng: np.random.Generator) -> None:
    """Give some values the odd names that files may have."""
    values = list(graph.values())
    for name, at in zip(_NAMES, rng.permutation(len(values)), strict=False):
        values[at].name = name


def _more_outputs(graph: Graph, rng: np.random.Generator) -> None:
    """Make an input, a constant or an output sometimes an output again."""
    read = {v for op in graph.ops for v in op.inputs if v.const is not None}
    plain = [v for v in read if v.type.quant is None or v.type.quant.axis is None]
    anchors = rng.normal(size=(1, 6, 4)).astype(np.float32)
    plain.append(Builder(graph).const(anchors, "anchors"))
    plain = [v for v in plain if not _of_the_border(v.type)]
    for some in (graph.inputs, plain[-1:], plain, graph.outputs):
        if some and rng.random() < _MORE_OUTPUTS and len(graph.outputs) < PORTS:
            at = int(rng.integers(len(graph.outputs) + 1))
            graph.outputs.insert(at, some[rng.integers(len(some))])


def random_graph(seed: int, number: int) -> Graph:
    """Return the graph of a case; each case of a seed has its own random numbers."""
    rng = np.random.default_rng([seed, number])
    name = f"case{number}"
    if rng.random() < _NETWORKS:
        graph = network(name, rng, PORTS)
    else:
        graph = _of_samples(name, rng)
    if not graph.ops:
        return random_graph(seed, number + (1 << 32))
    _more_outputs(graph, rng)
    if rng.random() < 0.05:
        _name_oddly(graph, rng)
    return graph


def _of_samples(name: str, rng: np.random.Generator) -> Graph:
    """Return a graph of samples, which may have no op."""
    build = Builder(name)
    maker = _Maker(rng, build, [])
    for _ in range(int(rng.integers(1, MOST_OPS + 1))):
        maker.add()
    graph = build.graph
    users = graph.users()
    made = [v for op in graph.ops for v in op.outputs]
    ends = [v for v in made if v not in users]
    between = [v for v in made if v in users and rng.random() < 0.1]
    graph.outputs = (ends[::-1] + between)[:PORTS]
    graph.drop_unused()
    graph.inputs = [v for v in graph.inputs if v in graph.users()]
    return graph
