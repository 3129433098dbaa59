"""Blocks of pixels moved to channels or to the batch, and back.

Semantics: ONNX DepthToSpace and SpaceToDepth; TFLite DEPTH_TO_SPACE, SPACE_TO_DEPTH,
SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND. Each is a reshape, a transpose, a reshape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    ChannelFlow,
    KernelCall,
    OnnxNode,
    Op,
    OpDef,
    Quant,
    QuantRule,
    Sample,
    TensorType,
    TfliteCode,
    TfliteOp,
    Value,
    Versions,
    edgetpu_rule,
)
from edgec.ir.opdef import Arg
from edgec.ops.pad import Pad
from edgec.ops.shape import (
    Reshape,
    Transpose,
    element_strides,
    from_nhwc,
    gather,
    to_nhwc,
)
from edgec.ops.slice import slice_axes, write_slice


@dataclass(frozen=True)
class _Blocks(OpDef):
    """A reshape to rank 6, a transpose and a reshape of an NHWC image, as one gather.

    Attributes:
        block: height and width of a block, in pixels
    """

    block: int

    quant: ClassVar[QuantRule] = QuantRule.SAME
    channel_flow: ClassVar[ChannelFlow] = ChannelFlow.MOVES

    def split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the input's shape with its blocks as dimensions (rank 6)."""
        raise NotImplementedError

    def order(self) -> tuple[int, ...]:
        """Return the permutation of the six dimensions of `split`."""
        raise NotImplementedError

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output's shape; raises ValueError if the image does not divide."""
        raise NotImplementedError

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the output image [N, H', W', C'].

        Raises ValueError unless the input is an image that divides into blocks.
        """
        if x[0].rank != 4 or self.block < 1:
            raise ValueError(f"blocks of {self.block} of {x[0]}; an image has rank 4")

        return (x[0].with_shape(self.result(x[0].shape)),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the reshape, the transpose and the reshape."""
        # The blocks become axes, move, and are joined with their neighbours.
        split = x[0].reshape(self.split(x[0].shape))
        blocks = np.ascontiguousarray(split.transpose(self.order()))

        return [blocks.reshape(yt[0].shape)]

    def c(self, op: Op) -> KernelCall:
        """Return a strided gather.

        Its dimensions are those of `split` in the order of the output.
        """
        dims = self.split(op.inputs[0].type.shape)
        strides = element_strides(dims)
        ordered_dims = [dims[axis] for axis in self.order()]
        ordered_strides = [strides[axis] for axis in self.order()]

        return gather(op, ordered_dims, ordered_strides)

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator, whose block size is in the options."""
        spec = cls(op.options.blockSize)
        op.build.write(spec, [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return the operator; version 2 introduced int8.

        The options table has the operator's name.
        """
        version = 2 if op.inputs[0].type.dtype == "int8" else 1

        # "depth_to_space" has the table DepthToSpaceOptions.
        words = [word.capitalize() for word in self.kind.split("_")]
        options = (f"{''.join(words)}Options", {"blockSize": self.block})
        return TfliteCode(self.tflite[0], options, version)

    @classmethod
    def block_samples(
        cls,
        specs: Sequence[_Blocks],
        shape: tuple[int, ...],
    ) -> Iterator[Sample]:
        """Yield a float and an int8 image for each of `specs`.

        shape: of the image [N, H, W, C]. Labels are made of the attributes.
        """
        quant = Quant.per_tensor(0.1, 3)
        types = (TensorType(shape), TensorType(shape, "int8", quant))
        for spec in specs:
            attributes = "_".join(map(str, vars(spec).values()))
            for image in types:
                label = f"{attributes}_{image.dtype}"
                yield Sample(spec, (Arg(image),), label=label)

    @classmethod
    def _from_nchw(cls, node: OnnxNode, spec: OpDef) -> Value:
        """Apply `spec`, which works on NHWC images, to the node's NCHW input.

        The output is NCHW again.
        """
        # ONNX images are NCHW, the kernels' NHWC.
        image = to_nhwc(node.build, node.input(0))
        y = node.build.add(spec, [image], node.name)
        return from_nhwc(node.build, y)


@dataclass(frozen=True)
class DepthToSpace(_Blocks):
    """Channels moved to blocks of pixels: [N, H, W, b² C] to [N, b H, b W, C].

    Attributes:
        mode: ONNX's order of the input channels: DCR is [block, block, C] (also
            TFLite's), CRD is [C, block, block]
    """

    mode: str = "DCR"

    kind = "depth_to_space"
    any_elements: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True
    onnx = ("DepthToSpace",)
    tflite = ("DEPTH_TO_SPACE",)

    def split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return [N, H, W, block, block, C'], or in CRD [N, H, W, C', block, block]."""
        n, h, w, c = shape
        b = self.block
        out_channels = c // self.block**2

        # DCR is depth, column, row: the block is outermost; CRD has the channels
        # outermost.
        if self.mode == "DCR":
            return (n, h, w, b, b, out_channels)

        return (n, h, w, out_channels, b, b)

    def order(self) -> tuple[int, ...]:
        """Return the permutation that gives [N, H, block, W, block, C']."""
        return (0, 1, 3, 2, 4, 5) if self.mode == "DCR" else (0, 1, 4, 2, 5, 3)

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output's shape, `block` times as high and wide.

        Raises ValueError when the channels do not divide, or for an unknown mode.
        """
        n, h, w, c = shape
        b = self.block
        if c % b**2 or self.mode not in ("DCR", "CRD"):
            raise ValueError(
                f"{c} channels do not divide into blocks of {self.block} (mode {self.mode})"
            )

        return (n, h * b, w * b, c // b**2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read DepthToSpace of an NCHW image."""
        mode = node.attrs.get("mode", "DCR")
        return cls._from_nchw(node, cls(node.attrs["blocksize"], mode))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return DEPTH_TO_SPACE, which has the DCR order only."""
        return super().to_tflite(op) if self.mode == "DCR" else None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield two block sizes and both modes."""
        return cls.block_samples([cls(2), cls(3), cls(2, "CRD")], (1, 2, 3, 36))


@dataclass(frozen=True)
class SpaceToDepth(_Blocks):
    """Blocks of pixels moved to channels: [N, b H, b W, C] to [N, H, W, b² C].

    Attributes:
        mode: ONNX's order of the output channels: DCR is [block, block, C] (also
            TFLite's), CRD is [C, block, block]
    """

    mode: str = "DCR"

    kind = "space_to_depth"
    any_elements: ClassVar[bool] = True
    plain_int8: ClassVar[bool] = True
    onnx = ("SpaceToDepth",)
    tflite = ("SPACE_TO_DEPTH",)
    edgetpu_versions = {"SPACE_TO_DEPTH": Versions(2)}
    edgetpu: ClassVar[bool] = True

    def split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return [N, H', block, W', block, C]."""
        # Rows and columns of a block are axes of their own.
        n, h, w, c = shape
        b = self.block
        return (n, h // b, b, w // b, b, c)

    def order(self) -> tuple[int, ...]:
        """Return the permutation that gives [N, H', W', block, block, C], or in CRD
        [N, H', W', C, block, block].
        """
        return (0, 1, 3, 2, 4, 5) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output's shape, with `block`² times the channels.

        Raises ValueError when the image does not divide, or for an unknown mode.
        """
        n, h, w, c = shape
        b = self.block
        if h % b or w % b or self.mode not in ("DCR", "CRD"):
            raise ValueError(
                f"an image of {h}x{w} does not divide into blocks of {self.block} "
                f"(mode {self.mode})"
            )

        return (n, h // b, w // b, c * b**2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read SpaceToDepth of an NCHW image."""
        mode = node.attrs.get("mode", "DCR")
        return cls._from_nchw(node, cls(node.attrs["blocksize"], mode))

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield two block sizes and both modes."""
        return cls.block_samples([cls(2), cls(3), cls(2, "CRD")], (1, 6, 12, 3))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Return SPACE_TO_DEPTH, which has the DCR order only."""
        return super().to_tflite(op) if self.mode == "DCR" else None

    @edgetpu_rule(fix="export SpaceToDepth with mode=DCR, or as Reshape and Transpose")
    def _block_outermost(self, op: Op) -> str | None:
        """SPACE_TO_DEPTH: the block must be outermost in the channels."""
        return None if self.mode == "DCR" else f"mode {self.mode}"


@dataclass(frozen=True)
class SpaceToBatch(OpDef):
    """Reads TFLite's SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND of images.

    They become pads, transposes and slices; the op itself is never part of a graph.
    """

    kind = "space_to_batch"
    tflite = ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the operator with a constant block shape and constant pads or crops.

        Raises ValueError unless the input is an image and the block has two dimensions.
        """
        x = op.input(0)
        block = [int(size) for size in op.const(1).reshape(-1)]
        edges = [(int(lo), int(hi)) for lo, hi in op.const(2).reshape(-1, 2)]
        if len(block) != 2 or x.type.rank != 4:
            raise ValueError(f"blocks of {block} of {x.type}; edgec reads images")

        # The third input has the pads of one operator and the crops of the other.
        if op.name == "SPACE_TO_BATCH_ND":
            _space_to_batch(op, x, block, edges)
        else:
            _batch_to_space(op, x, block, edges)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield nothing: the op is read as others and never part of a graph."""
        return iter(())


def _space_to_batch(
    op: TfliteOp,
    x: Value,
    block: Sequence[int],
    pads: Sequence[tuple[int, int]],
) -> None:
    """Write SPACE_TO_BATCH_ND: [N, H, W, C] to [by bx N, H / by, W / bx, C]."""
    b = op.build
    out = op.outputs[0]
    name = out.name
    by, bx = block

    x = b.add(Pad(((0, 0), *pads, (0, 0))), [x], f"{name}_pad")

    n, h, w, c = x.type.shape

    # The pixels at each place of the blocks are an image of their own.
    split = Reshape((n, h // by, by, w // bx, bx, c))
    y = b.add(split, [x], f"{name}_blocks")
    y = b.add(Transpose((2, 4, 0, 1, 3, 5)), [y], f"{name}_order")
    b.write(Reshape((n * by * bx, h // by, w // bx, c)), [y], [out])


def _batch_to_space(
    op: TfliteOp,
    x: Value,
    block: Sequence[int],
    crops: Sequence[tuple[int, int]],
) -> None:
    """Write BATCH_TO_SPACE_ND: [by bx N, H, W, C] to [N, by H, bx W, C], cropped."""
    b = op.build
    out = op.outputs[0]
    name = out.name
    by, bx = block

    batch, h, w, c = x.type.shape
    n = batch // (by * bx)

    # The images of a batch are the places of the blocks.
    y = b.add(Reshape((by, bx, n, h, w, c)), [x], f"{name}_blocks")
    y = b.add(Transpose((2, 3, 0, 4, 1, 5)), [y], f"{name}_order")
    y = b.add(Reshape((n, h * by, w * bx, c)), [y], f"{name}_image")

    # The crops undo the pads of SPACE_TO_BATCH_ND.
    ranges = {}
    for axis, (before, after) in enumerate(crops, 1):
        ranges[axis] = (before, y.type.shape[axis] - before - after, 1)

    write_slice(b, y, slice_axes(y.type, ranges), out)
