"""Blocks of pixels to channels and back, and to the batch and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
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
    """A reshape, a transpose and a reshape of an NHWC image, done as one gather."""

    block: int

    quant: ClassVar[QuantRule] = QuantRule.SAME

    def split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The input's shape with its blocks as dimensions of their own (rank 6)."""
        raise NotImplementedError

    def order(self) -> tuple[int, ...]:
        """The permutation of these dimensions."""
        raise NotImplementedError

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The output's shape; raises ValueError when the image does not divide."""
        raise NotImplementedError

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[N, H', W', C']."""
        if x[0].rank != 4 or self.block < 1:
            raise ValueError(f"blocks of {self.block} of {x[0]}; an image has rank 4")
        return (x[0].with_shape(self.result(x[0].shape)),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """reshape, transpose, reshape."""
        blocks = x[0].reshape(self.split(x[0].shape)).transpose(self.order())
        return [np.ascontiguousarray(blocks).reshape(yt[0].shape)]

    def c(self, op: Op) -> KernelCall:
        """A strided gather."""
        dims = self.split(op.inputs[0].type.shape)
        strides = element_strides(dims)
        return gather(
            op, [dims[p] for p in self.order()], [strides[p] for p in self.order()]
        )

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """The block size is in the options."""
        op.build.write(cls(op.options.blockSize), [op.input(0)], op.outputs)

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """Version 2 is int8."""
        version = 2 if op.inputs[0].type.dtype == "int8" else 1
        table = "".join(word.capitalize() for word in self.kind.split("_")) + "Options"
        return TfliteCode(self.tflite[0], (table, {"blockSize": self.block}), version)

    @classmethod
    def block_samples(
        cls, specs: Sequence[_Blocks], shape: tuple[int, ...]
    ) -> Iterator[Sample]:
        """Float and int8 of each."""
        for spec in specs:
            for t in (
                TensorType(shape),
                TensorType(shape, "int8", Quant.per_tensor(0.1, 3)),
            ):
                yield Sample(
                    spec,
                    (Arg(t),),
                    label=f"{'_'.join(map(str, vars(spec).values()))}_{t.dtype}",
                )


@dataclass(frozen=True)
class DepthToSpace(_Blocks):
    """Channels to blocks of pixels; `mode` is ONNX's: DCR (as TFLite, the block
    outermost in the channels) or CRD.
    """

    mode: str = "DCR"

    kind = "depth_to_space"
    onnx = ("DepthToSpace",)
    tflite = ("DEPTH_TO_SPACE",)

    def split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Channels as [block, block, C'] or [C', block, block]."""
        n, h, w, c = shape
        b = self.block
        rest = c // self.block**2
        return (n, h, w, b, b, rest) if self.mode == "DCR" else (n, h, w, rest, b, b)

    def order(self) -> tuple[int, ...]:
        """[N, H, block, W, block, C']."""
        return (0, 1, 3, 2, 4, 5) if self.mode == "DCR" else (0, 1, 4, 2, 5, 3)

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The image grows by the block."""
        n, h, w, c = shape
        if c % self.block**2 or self.mode not in ("DCR", "CRD"):
            raise ValueError(
                f"{c} channels do not divide into blocks of {self.block} (mode {self.mode})"
            )
        return (n, h * self.block, w * self.block, c // self.block**2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """NCHW."""
        spec = cls(node.attrs["blocksize"], node.attrs.get("mode", "DCR"))
        return from_nhwc(
            node.build,
            node.build.add(spec, [to_nhwc(node.build, node.input(0))], node.name),
        )

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """TFLite has the DCR order only."""
        return super().to_tflite(op) if self.mode == "DCR" else None

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Both modes."""
        return cls.block_samples([cls(2), cls(3), cls(2, "CRD")], (1, 2, 3, 36))


@dataclass(frozen=True)
class SpaceToDepth(_Blocks):
    """Blocks of pixels to channels; `mode` is ONNX's: DCR (as TFLite, the block
    outermost in the channels) or CRD.
    """

    mode: str = "DCR"

    kind = "space_to_depth"
    onnx = ("SpaceToDepth",)
    tflite = ("SPACE_TO_DEPTH",)
    edgetpu_versions = {"SPACE_TO_DEPTH": Versions(2)}
    edgetpu: ClassVar[bool] = True

    def split(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """[N, H', block, W', block, C]."""
        n, h, w, c = shape
        return (n, h // self.block, self.block, w // self.block, self.block, c)

    def order(self) -> tuple[int, ...]:
        """[N, H', W', block, block, C] or [N, H', W', C, block, block]."""
        return (0, 1, 3, 2, 4, 5) if self.mode == "DCR" else (0, 1, 3, 5, 2, 4)

    def result(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The image shrinks by the block."""
        n, h, w, c = shape
        if h % self.block or w % self.block or self.mode not in ("DCR", "CRD"):
            raise ValueError(
                f"an image of {h}x{w} does not divide into blocks of {self.block} "
                f"(mode {self.mode})"
            )
        return (n, h // self.block, w // self.block, c * self.block**2)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """NCHW."""
        spec = cls(node.attrs["blocksize"], node.attrs.get("mode", "DCR"))
        return from_nhwc(
            node.build,
            node.build.add(spec, [to_nhwc(node.build, node.input(0))], node.name),
        )

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Two block sizes, both modes."""
        return cls.block_samples([cls(2), cls(3), cls(2, "CRD")], (1, 6, 12, 3))

    def to_tflite(self, op: Op) -> TfliteCode | None:
        """TFLite has the DCR order only."""
        return super().to_tflite(op) if self.mode == "DCR" else None

    @edgetpu_rule(fix="export SpaceToDepth with mode=DCR, or as Reshape and Transpose")
    def _block_outermost(self, op: Op) -> str | None:
        """SPACE_TO_DEPTH: the block must be outermost in the channels."""
        return None if self.mode == "DCR" else f"mode {self.mode}"


@dataclass(frozen=True)
class SpaceToBatch(OpDef):
    """Reads TFLite's SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND (of images) as pads,
    transposes and slices.
    """

    kind = "space_to_batch"
    tflite = ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Constant block shape, and constant pads or crops."""
        x = op.input(0)
        out = op.outputs[0]
        block = [int(d) for d in op.const(1).reshape(-1)]
        edges = [(int(a), int(b)) for a, b in op.const(2).reshape(-1, 2)]
        if len(block) != 2 or x.type.rank != 4:
            raise ValueError(f"blocks of {block} of {x.type}; edgec reads images")
        (by, bx), b, name = block, op.build, out.name
        if op.name == "SPACE_TO_BATCH_ND":
            x = b.add(Pad(((0, 0), *edges, (0, 0))), [x], f"{name}_pad")
            n, h, w, c = x.type.shape
            y = b.add(Reshape((n, h // by, by, w // bx, bx, c)), [x], f"{name}_blocks")
            y = b.add(Transpose((2, 4, 0, 1, 3, 5)), [y], f"{name}_order")
            b.write(Reshape((n * by * bx, h // by, w // bx, c)), [y], [out])
            return
        n, h, w, c = x.type.shape
        y = b.add(Reshape((by, bx, n // (by * bx), h, w, c)), [x], f"{name}_blocks")
        y = b.add(Transpose((2, 3, 0, 4, 1, 5)), [y], f"{name}_order")
        y = b.add(Reshape((n // (by * bx), h * by, w * bx, c)), [y], f"{name}_image")
        kept = {
            i: (lo, y.type.shape[i] - lo - hi, 1) for i, (lo, hi) in enumerate(edges, 1)
        }
        write_slice(b, y, slice_axes(y.type, kept), out)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """None: it is read, and never part of a graph."""
        return iter(())
