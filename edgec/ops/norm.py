"""Normalisations, channels last, float32: per channel by constants, per image and
channel (or group), per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import (
    Array,
    Builder,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Sample,
    Scratch,
    Struct,
    Table,
    TensorType,
    Value,
)
from edgec.ir.opdef import Arg
from edgec.ops.common import axis_of, real_types, scale_channels
from edgec.ops.shape import transpose

_F = np.float32


@dataclass(frozen=True)
class BatchNorm(OpDef):
    """(x - mean) / sqrt(var + eps) * scale + bias on the last axis; inputs x, scale,
    bias, mean, var.

    Computed as x * k + b, where k and b are constants.
    """

    eps: float = 1e-5

    kind = "batch_norm"
    onnx = ("BatchNormalization",)
    roles = ("act", "weight")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the image."""
        real_types(self, *x, int8=False)
        if len(x) != 5 or any(t.shape != x[0].shape[-1:] for t in x[1:]):
            raise ValueError(
                f"{', '.join(map(str, x[1:]))} do not fit the last axis of {x[0]}"
            )
        return (x[0],)

    def line(self, constants: Sequence[Array]) -> tuple[Array, Array]:
        """k and b of x * k + b, float32, from scale, bias, mean and var."""
        scale, bias, mean, var = (a.astype(np.float64) for a in constants)
        # a negative variance gives what is not a number, as in ONNX
        with np.errstate(all="ignore"):
            k = scale / np.sqrt(var + self.eps)
            return k.astype(_F), (bias - mean * k).astype(_F)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32."""
        k, b = self.line(x[1:])
        return [(x[0] * k + b).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Inference only: mean and variance are constants."""
        if node.attrs.get("training_mode", 0):
            raise ValueError("training_mode; export the model for inference")
        if not node.attrs.get("spatial", 1):
            raise ValueError(
                "spatial=0: mean and variance of each element; "
                "edgec has those of each channel"
            )
        node.attrs.ignore("momentum")  # of training
        *_, variance = (node.const(i) for i in range(1, 5))
        parameters = [node.input(i) for i in range(1, 5)]
        eps = node.attrs.get("epsilon", 1e-5)
        if variance is not None and (variance + eps < 0).any():
            raise ValueError(
                f"a variance of {variance.min():.6g}, whose root is not a number; "
                "train the model again"
            )
        return channels_last(node, cls(eps), parameters)

    def c(self, op: Op) -> KernelCall:
        """ek_scale_channels_f32."""
        constants = [v.const for v in op.inputs[1:] if v.const is not None]
        k, b = self.line(constants)
        return scale_channels(op, Table(k, "k"), Table(b, "b"))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """An image and a row."""
        rng = np.random.default_rng(0)
        for shape in ((1, 4, 5, 6), (3, 7)):
            ch = TensorType(shape[-1:])
            args = [Arg(TensorType(shape)), *(Arg(ch, True) for _ in range(3))]
            var = rng.uniform(0.1, 3, ch.shape).astype(_F)
            yield Sample(cls(), (*args, Arg(ch, True, var)), label=f"rank{len(shape)}")


@dataclass(frozen=True)
class InstanceNorm(OpDef):
    """[N, …, C] normalised over its inner axes for every image and channel; inputs x,
    scale, bias ([C] each).

    With `groups` the channels of a group are normalised together (group normalisation);
    0 is a group for each.
    """

    eps: float = 1e-5
    groups: int = 0

    kind = "instance_norm"
    onnx = ("InstanceNormalization", "GroupNormalization")
    roles = ("act", "weight")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the image."""
        real_types(self, *x, int8=False)
        if (
            len(x) != 3
            or x[0].rank < 2
            or any(t.shape != x[0].shape[-1:] for t in x[1:])
        ):
            raise ValueError(
                f"{', '.join(map(str, x[1:]))} do not fit the last axis of {x[0]}"
            )
        if self.groups and x[0].shape[-1] % self.groups:
            raise ValueError(f"{x[0].shape[-1]} channels in {self.groups} groups")
        return (x[0],)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Mean and variance in double."""
        n = x[0].shape[0]
        ch = x[0].shape[-1]
        groups = self.groups or ch
        blocks = x[0].astype(np.float64).reshape(n, -1, groups, ch // groups)
        centred = blocks - blocks.mean((1, 3), keepdims=True)
        normal = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + self.eps)
        return [(normal.reshape(x[0].shape) * x[1] + x[2]).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """InstanceNormalization; GroupNormalization, whose parameters are one per group
        before opset 21.
        """
        scale = node.input(1)
        bias = node.input(2)
        groups = node.attrs.get("num_groups", 0)
        channels = node.input(0).type.shape[1]
        node.attrs.ignore("stash_type")  # the sums are taken in double
        if groups and node.opset < 21:
            scale, bias = (
                _per_channel(node.build, v, channels // groups) for v in (scale, bias)
            )
        return channels_last(
            node, cls(node.attrs.get("epsilon", 1e-5), groups), [scale, bias]
        )

    def c(self, op: Op) -> KernelCall:
        """Sums of a run of pixels in float, of runs in double.

        The scratch memory holds three doubles of each channel, or by vectors two
        doubles and three floats.
        """
        shape = op.inputs[0].type.shape
        n = shape[0]
        ch = shape[-1]
        dims = {
            "n": n,
            "pixels": prod(shape[1:-1]),
            "c": ch,
            "group": ch // self.groups if self.groups else 1,
        }
        spec = Struct("ek_norm_t", **dims, eps=self.eps)
        return KernelCall.of(
            "ek_instance_norm_f32", *op.inputs, op.output, Scratch(28 * ch), spec
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Images, a batch, groups, a line."""
        for label, shape, groups in (
            ("image", (1, 9, 7, 6), 0),
            ("batch", (2, 4, 5, 40), 0),
            ("groups", (2, 5, 4, 12), 3),
            ("line", (1, 70, 5), 0),
        ):
            ch = Arg(TensorType(shape[-1:]), True)
            yield Sample(
                cls(groups=groups), (Arg(TensorType(shape)), ch, ch), label=label
            )


@dataclass(frozen=True)
class LayerNorm(OpDef):
    """Rows (the last `axes` dimensions), each normalised; inputs x, scale and,
    optional, bias of a row.
    """

    axes: int = 1
    eps: float = 1e-5

    kind = "layer_norm"
    onnx = ("LayerNormalization",)
    roles = ("act", "weight")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """The shape of the input."""
        real_types(self, *x, int8=False)
        row = x[0].shape[x[0].rank - self.axes :]
        if not 0 < self.axes <= x[0].rank or any(t.shape != row for t in x[1:]):
            raise ValueError(
                f"{', '.join(map(str, x[1:]))} do not fit the last {self.axes} "
                f"dimensions of {x[0]}"
            )
        return (x[0],)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """Mean and variance in double."""
        axes = tuple(range(-self.axes, 0))
        centred = x[0] - x[0].mean(axes, np.float64, keepdims=True)
        normal = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + self.eps)
        return [(normal * x[1] + (x[2] if len(x) > 2 else 0)).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Scale and bias broadcast to the row."""
        x = node.input(0)
        node.attrs.ignore("stash_type")  # the sums are taken in double
        axes = x.type.rank - axis_of(node.attrs.get("axis", -1), x.type.rank)
        row = x.type.shape[x.type.rank - axes :]
        parameters = [node.input(1), *([node.input(2)] if node.optional(2) else [])]
        for i, v in enumerate(parameters):
            if v.type.shape != row:
                array = node.const(i + 1)
                assert array is not None
                parameters[i] = node.build.const(
                    np.ascontiguousarray(np.broadcast_to(array, row)), v.name
                )
        return node.build.add(
            cls(axes, node.attrs.get("epsilon", 1e-5)), [x, *parameters], node.name
        )

    def c(self, op: Op) -> KernelCall:
        """ek_layer_norm_f32; without a bias zeros."""
        x, scale, *bias = op.inputs
        row = scale.type.size
        zeros = bias[0] if bias else Table(np.zeros(row, _F), "zeros")
        spec = Struct(
            "ek_layer_norm_t", rows=x.type.size // max(1, row), n=row, eps=self.eps
        )
        return KernelCall.of("ek_layer_norm_f32", x, scale, zeros, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Tokens, and two axes without a bias."""
        row = Arg(TensorType((24,)), True)
        yield Sample(cls(), (Arg(TensorType((1, 7, 24))), row, row), label="tokens")
        yield Sample(
            cls(2),
            (Arg(TensorType((3, 4, 5))), Arg(TensorType((4, 5)), True)),
            label="two_axes",
        )


def channels_last(node: OnnxNode, spec: OpDef, parameters: Sequence[Value]) -> Value:
    """An op on the last axis applied to axis 1 of the node's first input."""
    b = node.build
    x = node.input(0)
    rank = x.type.rank
    if rank < 3:
        return b.add(spec, [x, *parameters], node.name)
    y = b.add(spec, [transpose(b, x, (0, *range(2, rank), 1)), *parameters], node.name)
    return transpose(b, y, (0, rank - 1, *range(1, rank - 1)))


def _per_channel(b: Builder, v: Value, repeats: int) -> Value:
    """A constant per group as one per channel."""
    if v.const is None:
        raise ValueError(
            f"{v.name} is computed at run time; edgec needs it to be constant"
        )
    return b.const(np.repeat(v.const, repeats), v.name)
