"""Random graphs of the registry's samples: any op behind any other, of other shapes, types and ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from edgec.ir import Array, Builder, Graph, OpDef, Quant, Sample, TensorType, Value
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
"""Samples of a graph; what brings one's output to the type of another's input comes on top."""
PORTS = 8
"""Inputs and outputs of a graph, at most: as many as tests.schedule.runner has."""
_LARGEST = 6000
"""Elements of a tensor, at most."""
_DIMS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17)
_TRIES = 4


@cache
def samples() -> dict[str, tuple[Sample, ...]]:
    """What a graph can be made of, by kind: all that can be written as C."""
    found = {kind: tuple(cls.samples()) for kind, cls in sorted(OpDef.registry.items()) if cls.has_kernel()}
    return {kind: some for kind, some in found.items() if some}


@dataclass
class _Maker:
    """A graph under construction. pool: all values so far that an op may read."""

    rng: np.random.Generator
    build: Builder
    pool: list[Value]

    def pick(self, options: list[T] | tuple[T, ...]) -> T:
        """One of them."""
        return options[self.rng.integers(len(options))]

    def add(self) -> None:
        """One op after a sample, of other shapes where the op takes them, reading what there is."""
        of = samples()
        sample = self.pick(of[self.pick(tuple(of))])
        args = next((a for a in (self.varied(sample) for _ in range(_TRIES)) if a is not None), sample.args)
        ops, inputs = len(self.build.graph.ops), len(self.build.graph.inputs)
        try:
            self.write(sample, [self.operand(sample, args, i) for i in range(len(args))])
        except (ValueError, VerifyError):  # what was made for it is there for no one
            del self.build.graph.ops[ops:], self.build.graph.inputs[inputs:]

    def write(self, sample: Sample, values: list[Value]) -> None:
        """The op; raises ValueError or VerifyError where it does not take these."""
        types = outputs(sample, [v.type for v in values])
        results = [self.build.value("v", t) for t in types]
        op = self.build.write(sample.spec, values, results)
        alone = Graph("op", [v for v in dict.fromkeys(values) if v.const is None], results, [op])
        verify(alone, "partitioned")
        self.pool += [v for v in results if not _of_the_border(v.type)]

    def varied(self, sample: Sample) -> tuple[Arg, ...] | None:
        """Its operands in other shapes: dimensions renamed, some 1, one more in front; None where the op refuses."""
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
        return tuple(made) if all(t.size <= _LARGEST for t in (*types, *(a.type for a in made))) else None

    def operand(self, sample: Sample, args: tuple[Arg, ...], i: int) -> Value:
        """A constant, what an op made, or an input."""
        arg, spec = args[i], sample.spec
        if arg.const:
            return self.build.const(arg.data if arg.data is not None else self.array(arg.type), "c", arg.type.quant)
        if spec.role(i) == "act" and arg.data is None:
            if self.pool and self.rng.random() < 0.75 and not _of_the_border(arg.type):
                value = self.pick(self.pool[-3:] if self.rng.random() < 0.6 else self.pool)
                if self.rng.random() < 0.5 and fits(sample, args, i, value.type):
                    return value
                if arg.type.size and value.type.size:
                    return self.brought(value, arg.type)
            if self.rng.random() < 0.15:
                return self.build.const(self.array(arg.type), "c", arg.type.quant)
        if len(self.build.graph.inputs) >= PORTS or arg.data is not None:
            return self.build.const(arg.data if arg.data is not None else self.array(arg.type), "c", arg.type.quant)
        value = self.build.input("x", arg.type)
        self.pool += [] if _of_the_border(arg.type) else [value]
        return value

    def array(self, t: TensorType) -> Array:
        """Random elements."""
        return random_array(t, self.rng)

    def brought(self, x: Value, to: TensorType) -> Value:
        """The elements of a value as another type: another scale, repeated or cut off, in another shape."""
        b = self.build
        if (x.type.dtype, x.type.quant) != (to.dtype, to.quant):
            if to.quant is not None and to.quant.axis is not None:
                raise ValueError("scales of channels")
            if to.is_quantized:
                if not x.type.is_quantized and x.type.dtype != "float32":
                    x = b.add(Cast("float32"), [x], "cast")
                x = b.add(Quantize(to.dtype), [x], "quantize", to.quant)
            else:
                x = b.add(Dequantize(), [x], "dequantize") if x.type.is_quantized else x
                x = x if x.type.dtype == to.dtype else b.add(Cast(to.dtype), [x], "cast")
        if x.type.shape == to.shape:
            return x
        x = b.add(Reshape((x.type.size,)), [x], "flat")
        if x.type.size < to.size:
            times = -(-to.size // x.type.size)
            x = b.add(Concat(0), [x] * times, "repeated") if times < 4 else b.add(Tile((times,)), [x], "repeated")
        if x.type.size > to.size:
            begin = int(self.rng.integers(x.type.size - to.size + 1))
            x = b.add(Slice((begin,), (to.size,), (1,)), [x], "cut")
        return b.add(Reshape(to.shape), [x], "shaped")


def outputs(sample: Sample, inputs: list[TensorType]) -> list[TensorType]:
    """The types of a sample's outputs; raises ValueError where it does not take these inputs."""
    types = sample.spec.infer(*inputs)
    quant = sample.output_quant
    return [t if quant is None or t.dtype not in ("int8", "uint8") else t.with_quant(quant) for t in types]


def fits(sample: Sample, args: tuple[Arg, ...], i: int, given: TensorType) -> bool:
    """Whether operand `i` can be of this type as it is."""
    if (given.dtype, given.quant) != (args[i].type.dtype, args[i].type.quant):
        return False
    try:
        types = [given if k == i else a.type for k, a in enumerate(args)]
        return all(t.size <= _LARGEST for t in outputs(sample, types))
    except ValueError:
        return False


def _of_the_border(t: TensorType) -> bool:
    """Whether only inputs and outputs of a graph may be of this type."""
    return t.dtype == "uint8" and t.is_quantized


def _stretched(quant: Quant | None, shape: tuple[int, ...]) -> Quant | None:
    """Scales for as many channels as there are now."""
    if quant is None or quant.axis is None:
        return quant
    n = shape[quant.axis] if quant.axis < len(shape) else 0
    if n == 0:
        return None
    repeats = -(-n // len(quant.scale))
    return Quant((quant.scale * repeats)[:n], (quant.zero_point * repeats)[:n], quant.axis)


def random_graph(seed: int, number: int) -> Graph:
    """The graph of a case. Each case of a seed has its own random numbers."""
    rng = np.random.default_rng([seed, number])
    build = Builder(f"case{number}")
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
    return graph if graph.ops else random_graph(seed, number + (1 << 32))
