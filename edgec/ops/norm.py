"""Normalizations of float32 tensors with the channels last.

y = (x - mean) / sqrt(variance + eps) * scale + bias, where mean and variance are
constants for each channel (BatchNorm), those of an image and channel or channel group
(InstanceNorm), or those of a row (LayerNorm). Semantics: ONNX BatchNormalization,
InstanceNormalization, GroupNormalization and LayerNormalization.
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
    Table,
    TensorType,
    Value,
)
from edgec.ir.c_structs import InstanceNormParams, LayerNormParams
from edgec.ir.opdef import Arg
from edgec.ops.common import (
    REAL_KERNELS,
    axis_of,
    float_kernel,
    real_types,
    scale_channels,
)
from edgec.ops.shape import transpose

INSTANCE_NORM = float_kernel("instance_norm", "ek_norm_f32.h", REAL_KERNELS)

LAYER_NORM = float_kernel("layer_norm", "ek_norm_f32.h", REAL_KERNELS)

_F = np.float32


@dataclass(frozen=True)
class BatchNorm(OpDef):
    """Batch normalization on the last axis; inputs x, scale, bias, mean, variance.

    It is computed as x * k + b with constants k = scale / sqrt(variance + eps) and
    b = bias - mean * k (Ioffe & Szegedy 2015, arXiv:1502.03167).

    Attributes:
        eps: added to the variance
    """

    eps: float = 1e-5

    kind = "batch_norm"
    onnx = ("BatchNormalization",)
    roles = ("act", "weight")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x.

        Raises ValueError unless each parameter is one number for each channel.
        """
        real_types(self, *x, int8=False)
        image, *parameters = x

        # Scale, bias, mean and variance are vectors of the channels.
        channels = image.shape[-1:]
        if len(parameters) != 4 or any(t.shape != channels for t in parameters):
            raise ValueError(
                f"{', '.join(map(str, parameters))} do not fit the last axis of {image}"
            )

        return (image,)

    def line(self, constants: Sequence[Array]) -> tuple[Array, Array]:
        """Return k and b of x * k + b in float32, from scale, bias, mean and variance.

        A negative variance gives numbers that are not one, as in ONNX.
        """
        # In double, and rounded once to float32.
        scale, bias, mean, variance = (a.astype(np.float64) for a in constants)
        with np.errstate(all="ignore"):
            k = scale / np.sqrt(variance + self.eps)
            b = bias - mean * k
            return k.astype(_F), b.astype(_F)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute x * k + b in float32."""
        k, b = self.line(x[1:])
        return [(x[0] * k + b).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read BatchNormalization for inference: mean and variance are constants."""
        if node.attrs.get("training_mode", 0):
            raise ValueError("training_mode; export the model for inference")

        if not node.attrs.get("spatial", 1):
            raise ValueError(
                "spatial=0: mean and variance of each element; "
                "edgec has those of each channel"
            )

        # It matters in training only.
        node.attrs.ignore("momentum")

        # Computed parameters are refused.
        *_, variance = [node.const(i) for i in range(1, 5)]
        parameters = [node.input(i) for i in range(1, 5)]
        eps = node.attrs.get("epsilon", 1e-5)
        if variance is not None and (variance + eps < 0).any():
            raise ValueError(
                f"a variance of {variance.min():.6g}, whose root is not a number; "
                "train the model again"
            )

        return channels_last(node, cls(eps), parameters)

    def c(self, op: Op) -> KernelCall:
        """Return ek_scale_channels_f32.

        k and b are computed when the C is written.
        """
        constants = [v.const for v in op.inputs[1:] if v.const is not None]
        k, b = self.line(constants)
        return scale_channels(op, Table(k, "k"), Table(b, "b"))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield an image and a batch of rows.

        Variances are positive, between 0.1 and 3.
        """
        rng = np.random.default_rng(0)
        for shape in ((1, 4, 5, 6), (3, 7)):
            channels = TensorType(shape[-1:])
            parameter = Arg(channels, True)
            variance = rng.uniform(0.1, 3, channels.shape).astype(_F)
            args = (
                Arg(TensorType(shape)),
                parameter,
                parameter,
                parameter,
                Arg(channels, True, variance),
            )
            yield Sample(cls(), args, label=f"rank{len(shape)}")


@dataclass(frozen=True)
class InstanceNorm(OpDef):
    """Normalization of [N, …, C] over the inner axes; inputs x, scale [C], bias [C].

    Mean and variance are those of an image and channel (Ulyanov et al. 2016,
    arXiv:1607.08022), or of an image and group of channels (Wu & He 2018,
    arXiv:1803.08494).

    Attributes:
        eps: added to the variance
        groups: number of channel groups; 0 is a group for each channel
    """

    eps: float = 1e-5
    groups: int = 0

    kind = "instance_norm"
    onnx = ("InstanceNormalization", "GroupNormalization")
    roles = ("act", "weight")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x.

        Raises ValueError when scale and bias do not fit the channels, or the channels
        do not divide into the groups.
        """
        real_types(self, *x, int8=False)
        image, *parameters = x
        channels = image.shape[-1:]
        is_fitting = len(parameters) == 2 and image.rank >= 2
        if not is_fitting or any(t.shape != channels for t in parameters):
            raise ValueError(
                f"{', '.join(map(str, parameters))} do not fit the last axis of {image}"
            )

        if self.groups and image.shape[-1] % self.groups:
            raise ValueError(f"{image.shape[-1]} channels in {self.groups} groups")

        return (image,)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute mean and variance in double, over pixels and channels of a group.

        The rank of the image does not matter: its inner axes are joined.
        """
        image, scale, bias = x
        n = image.shape[0]
        channels = image.shape[-1]
        groups = self.groups or channels

        # [N, pixels, group, channel of the group]
        real = image.astype(np.float64)
        blocks = real.reshape(n, -1, groups, channels // groups)
        centred = blocks - blocks.mean((1, 3), keepdims=True)

        # The variance is that of a population: divided by the count.
        variance = (centred**2).mean((1, 3), keepdims=True)
        normal = centred / np.sqrt(variance + self.eps)

        return [(normal.reshape(image.shape) * scale + bias).astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read InstanceNormalization and GroupNormalization.

        The parameters of GroupNormalization are one for each group before opset 21.
        """
        scale = node.input(1)
        bias = node.input(2)
        groups = node.attrs.get("num_groups", 0)
        channels = node.input(0).type.shape[1]
        # The sums are taken in double.
        node.attrs.ignore("stash_type")
        if groups and node.opset < 21:
            repeats = channels // groups
            scale = _per_channel(node.build, scale, repeats)
            bias = _per_channel(node.build, bias, repeats)

        spec = cls(node.attrs.get("epsilon", 1e-5), groups)

        return channels_last(node, spec, [scale, bias])

    def c(self, op: Op) -> KernelCall:
        """Return ek_instance_norm_f32.

        Sums of a run of pixels are taken in float, those of runs in double. The scratch
        memory holds three doubles of each channel, or in vector kernels two doubles and
        three floats: 28 bytes at most.
        """
        n, *size, channels = op.inputs[0].type.shape
        spec = InstanceNormParams(
            n=n,
            pixels=prod(size),
            c=channels,
            group=channels // self.groups if self.groups else 1,
            eps=self.eps,
        )

        return KernelCall.of(
            INSTANCE_NORM,
            *op.inputs,
            op.output,
            Scratch(28 * channels),
            spec,
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield an image, a batch, groups of channels, and a line."""
        cases = (
            ("image", (1, 9, 7, 6), 0),
            ("batch", (2, 4, 5, 40), 0),
            ("groups", (2, 5, 4, 12), 3),
            ("line", (1, 70, 5), 0),
        )
        for label, shape, groups in cases:
            image = Arg(TensorType(shape))
            parameter = Arg(TensorType(shape[-1:]), True)
            args = (image, parameter, parameter)
            yield Sample(cls(groups=groups), args, label=label)


@dataclass(frozen=True)
class LayerNorm(OpDef):
    """Normalization of rows; inputs x, scale and optional bias, of the shape of a row.

    Ba et al. 2016, arXiv:1607.06450.

    Attributes:
        axes: number of the last dimensions that are a row
        eps: added to the variance
    """

    axes: int = 1
    eps: float = 1e-5

    kind = "layer_norm"
    onnx = ("LayerNormalization",)
    roles = ("act", "weight")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of x.

        Raises ValueError when scale or bias do not have the shape of a row.
        """
        real_types(self, *x, int8=False)
        data, *parameters = x

        # A row has the shape of its scale.
        row = data.shape[data.rank - self.axes :]
        has_row = 0 < self.axes <= data.rank
        if not has_row or any(t.shape != row for t in parameters):
            raise ValueError(
                f"{', '.join(map(str, parameters))} do not fit the last {self.axes} "
                f"dimensions of {data}"
            )

        return (data,)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute mean and variance of each row in double.

        An absent bias is 0.
        """
        data, scale, *bias = x

        # A row is the last dimensions.
        axes = tuple(range(-self.axes, 0))
        centred = data - data.mean(axes, np.float64, keepdims=True)
        variance = (centred**2).mean(axes, keepdims=True)
        normal = centred / np.sqrt(variance + self.eps)
        y = normal * scale + (bias[0] if bias else 0)

        return [y.astype(_F)]

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read LayerNormalization; scale and bias are broadcast to the row.

        A row is the dimensions from `axis` on, the last one by default.
        """
        x = node.input(0)
        rank = x.type.rank
        # The sums are taken in double.
        node.attrs.ignore("stash_type")
        axes = rank - axis_of(node.attrs.get("axis", -1), rank)
        row = x.type.shape[rank - axes :]

        # The bias is optional.
        parameters = [node.input(1)]
        if node.optional(2):
            parameters.append(node.input(2))

        for i, value in enumerate(parameters):
            if value.type.shape == row:
                continue
            array = node.const(i + 1)
            assert array is not None
            full = np.ascontiguousarray(np.broadcast_to(array, row))
            parameters[i] = node.build.const(full, value.name)

        spec = cls(axes, node.attrs.get("epsilon", 1e-5))

        return node.build.add(spec, [x, *parameters], node.name)

    def c(self, op: Op) -> KernelCall:
        """Return ek_layer_norm_f32, with zeros for an absent bias.

        Operands: x, scale, bias, output, rows and their length.
        """
        x, scale, *biases = op.inputs
        row = scale.type.size
        bias = biases[0] if biases else Table(np.zeros(row, _F), "zeros")
        spec = LayerNormParams(
            rows=x.type.size // max(1, row),
            n=row,
            eps=self.eps,
        )

        return KernelCall.of(LAYER_NORM, x, scale, bias, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield tokens, and rows of two axes without a bias."""
        row = Arg(TensorType((24,)), True)
        tokens = Arg(TensorType((1, 7, 24)))
        yield Sample(cls(), (tokens, row, row), label="tokens")

        matrices = Arg(TensorType((3, 4, 5)))
        scale = Arg(TensorType((4, 5)), True)
        yield Sample(cls(2), (matrices, scale), label="two_axes")


def channels_last(node: OnnxNode, spec: OpDef, parameters: Sequence[Value]) -> Value:
    """Return `spec`, an op on the last axis, applied to axis 1 of the node's input."""
    b = node.build
    x = node.input(0)
    rank = x.type.rank
    if rank < 3:
        return b.add(spec, [x, *parameters], node.name)

    # ONNX has the channels on axis 1.
    moved = transpose(b, x, (0, *range(2, rank), 1))
    y = b.add(spec, [moved, *parameters], node.name)

    return transpose(b, y, (0, rank - 1, *range(1, rank - 1)))


def _per_channel(b: Builder, v: Value, repeats: int) -> Value:
    """Return a constant with one number for each group as one for each channel."""
    if v.const is None:
        raise ValueError(
            f"{v.name} is computed at run time; edgec needs it to be constant"
        )

    return b.const(np.repeat(v.const, repeats), v.name)
