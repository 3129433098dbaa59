"""MediaPipe's operators that look closer at a part of a face: its place from landmarks,
the part, and the way back.

Of their second versions (mediapipe/util/tflite/operations):
`face_landmark_with_attention.tflite` has them.  Transforms are matrices [1,4,4] of
which the first two rows count, x' = m[0,0] x + m[0,1] y + m[0,3], y likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, isfinite, sin
from typing import ClassVar

import numpy as np

from edgec.ir import Array, KernelCall, Op, OpDef, Sample, Struct, TensorType, TfliteOp
from edgec.ir.opdef import Arg
from edgec.ops.common import custom_options, real_types
from edgec.ops.window import Pair

_F = np.float32
_MATRIX = (1, 4, 4)
_MOST = 4096
"""Pixels of a side of the part."""


@dataclass(frozen=True)
class LandmarksToTransform(OpDef):
    """Landmarks [1,L,3] and indices [K] → [1,4,4]: from a part's pixels to where they
    are among the landmarks.

    The part is the box around the landmarks that the indices name, turned so that from
    landmark `left` to `right` is `angle` (radians), `scale` times as wide and high, of
    `size` pixels (height, width).
    """

    left: int
    right: int
    size: Pair
    scale: tuple[float, float]
    angle: float = 0.0

    kind = "landmarks_to_transform"
    tflite = ("custom Landmarks2TransformMatrix",)
    roles: ClassVar[tuple[str, ...]] = ("act", "index")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[1,4,4]."""
        real_types(self, x[0], int8=False)
        n = x[0].shape[1] if x[0].rank == 3 else 0
        if x[0].shape != (1, n, 3) or not 0 <= self.left < n or not 0 <= self.right < n:
            raise ValueError(
                f"landmarks {x[0]}, turned by {self.left} and {self.right}"
            )
        if x[1].dtype != "int32" or x[1].rank != 1 or x[1].size == 0:
            raise ValueError(f"indices {x[1]}")
        if not all(1 <= s <= _MOST for s in self.size) or not all(
            0 < s < np.inf for s in self.scale
        ):
            raise ValueError(
                f"a part of {self.size} pixels, {self.scale} times as large"
            )
        if not isfinite(self.angle):
            raise ValueError(f"an angle of {self.angle}")
        return (TensorType(_MATRIX),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32."""
        places = x[0][0, :, :2]
        index = np.clip(x[1], 0, x[0].shape[1] - 1)
        across = places[self.right] - places[self.left]
        length = np.hypot(*across)
        u, v = across / length if length > 0 else (_F(1), _F(0))
        c = self._turn[0] * u + self._turn[1] * v
        s = self._turn[1] * u - self._turn[0] * v
        to = np.array([[c, -s], [s, c]], _F)
        turned = places[index] @ to.T
        low = turned.min(0)
        high = turned.max(0)
        pixels = np.array(self.size[::-1], _F)
        y = np.eye(4, dtype=_F)[None]
        y[0, :2, :2] = to.T * (np.array(self.scale, _F) * (high - low) / pixels)
        y[0, :2, 3] = to.T @ ((low + high) / _F(2)) - y[0, :2, :2] @ (pixels / _F(2))
        return [y]

    @property
    def _turn(self) -> tuple[np.float32, np.float32]:
        return _F(cos(self.angle)), _F(sin(self.angle))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Of the second version."""
        given = custom_options(op)
        x = op.input(0)
        index = np.array(given["subset_idxs"], np.int64)
        if index.ndim != 1 or ((index < 0) | (index >= x.type.shape[1])).any():
            raise ValueError(f"subset_idxs {index.tolist()} of {x.type}")
        spec = cls(
            int(given["left_rotation_idx"]),
            int(given["right_rotation_idx"]),
            (int(given["output_height"]), int(given["output_width"])),
            (float(given["scale_x"]), float(given["scale_y"])),
            float(given["target_rotation_radians"]),
        )
        op.build.write(
            spec, [x, op.build.const(index.astype(np.int32), "subset")], op.outputs
        )

    def c(self, op: Op) -> KernelCall:
        """ek_landmarks_to_transform_f32."""
        x, index = op.inputs
        c, s = self._turn
        spec = Struct(
            "ek_landmarks_to_transform_t",
            landmarks=x.type.shape[1],
            subset=index.type.size,
            left=self.left,
            right=self.right,
            height=self.size[0],
            width=self.size[1],
            scale_x=self.scale[0],
            scale_y=self.scale[1],
            cosine=float(c),
            sine=float(s),
        )
        return KernelCall.of("ek_landmarks_to_transform_f32", x, index, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Landmarks in any direction; two at one place; a given angle."""
        index = Arg(
            TensorType((5,), "int32"), True, np.array([0, 3, 1, 3, 6], np.int32)
        )
        for label, spec in (
            ("level", cls(0, 4, (6, 5), (1.5, 1.25))),
            ("angle", cls(5, 2, (3, 8), (1.0, 2.0), 0.6)),
            ("none", cls(2, 2, (4, 4), (1.0, 1.0), -1.0)),
        ):
            yield Sample(spec, (Arg(TensorType((1, 7, 3))), index), label=label)


@dataclass(frozen=True)
class TransformTensor(OpDef):
    """Image [1,H,W,C] and a transform → [1,h,w,C]: bilinear, at where the transform
    sends each pixel's centre.

    Zero where that is beyond the centres of the image's border pixels.
    """

    size: Pair

    kind = "transform_tensor"
    tflite = ("custom TransformTensorBilinear",)
    roles: ClassVar[tuple[str, ...]] = ("act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """[1,h,w,C]."""
        real_types(self, *x, int8=False)
        image, matrix = x
        if (
            image.rank != 4
            or image.shape[0] != 1
            or 0 in image.shape
            or matrix.shape != _MATRIX
        ):
            raise ValueError(f"image {image} and transform {matrix}")
        if not all(1 <= s <= _MOST for s in self.size):
            raise ValueError(f"{self.size} pixels")
        return (TensorType((1, *self.size, image.shape[3])),)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32, as a weighted sum of four pixels."""
        image = x[0][0]
        m = x[1][0]
        rows, columns = np.indices(self.size, dtype=_F) + _F(0.5)
        with np.errstate(all="ignore"):  # a transform may be anything
            at_x, at_y = (
                m[i, 0] * columns + m[i, 1] * rows + m[i, 3] - _F(0.5) for i in (0, 1)
            )
        h, w, _ = image.shape
        inside = (at_x >= 0) & (at_x <= w - 1) & (at_y >= 0) & (at_y <= h - 1)
        at_x = np.where(inside, at_x, _F(0))
        at_y = np.where(inside, at_y, _F(0))
        left = np.floor(at_x).astype(int)
        top = np.floor(at_y).astype(int)
        right = np.minimum(left + 1, w - 1)
        bottom = np.minimum(top + 1, h - 1)
        fx = (at_x - left)[..., None].astype(_F)
        fy = (at_y - top)[..., None].astype(_F)
        upper = (1 - fx) * image[top, left] + fx * image[top, right]
        lower = (1 - fx) * image[bottom, left] + fx * image[bottom, right]
        return [
            np.where(inside[..., None], (1 - fy) * upper + fy * lower, _F(0))[
                None
            ].astype(_F)
        ]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Of the second version."""
        given = custom_options(op)
        spec = cls((int(given["output_height"]), int(given["output_width"])))
        op.build.write(spec, [op.input(0), op.input(1)], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """ek_transform_tensor_f32."""
        _, ih, iw, ch = op.inputs[0].type.shape
        spec = Struct(
            "ek_transform_tensor_t",
            ih=ih,
            iw=iw,
            c=ch,
            oh=self.size[0],
            ow=self.size[1],
        )
        return KernelCall.of("ek_transform_tensor_f32", *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Turned and partly outside; the corners of the image; any matrix."""
        image = Arg(TensorType((1, 6, 7, 3)))
        rng = np.random.default_rng(4)
        for label, rows in (
            ("turned", [[0.91, -0.43, 0, 1.37], [0.39, 0.87, 0, -0.71]]),
            ("whole", [[1, 0, 0, 0], [0, 1, 0, 0]]),
            ("any", rng.normal(size=(2, 4))),
        ):
            matrix = np.concatenate([np.array(rows, _F), np.eye(4, dtype=_F)[2:]])[None]
            yield Sample(
                cls((6, 7)),
                (image, Arg(TensorType(_MATRIX), True, matrix)),
                label=label,
            )


@dataclass(frozen=True)
class TransformLandmarks(OpDef):
    """Landmarks [1,N,2] or [1,N,3] of a part and its transform → where they are; z
    stays.
    """

    kind = "transform_landmarks"
    tflite = ("custom TransformLandmarks",)
    roles: ClassVar[tuple[str, ...]] = ("act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """As the landmarks."""
        real_types(self, *x, int8=False)
        if (
            x[0].rank != 3
            or x[0].shape[0] != 1
            or x[0].shape[2] not in (2, 3)
            or x[1].shape != _MATRIX
        ):
            raise ValueError(f"landmarks {x[0]} and transform {x[1]}")
        return (x[0],)

    def ref(
        self, x: Sequence[Array], xt: Sequence[TensorType], yt: Sequence[TensorType]
    ) -> list[Array]:
        """float32."""
        y = x[0].copy()
        y[0, :, :2] = x[0][0, :, :2] @ x[1][0, :2, :2].T + x[1][0, :2, 3]
        return [y]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Of the second version, which has no options."""
        op.build.write(cls(), [op.input(0), op.input(1)], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """ek_transform_landmarks_f32."""
        _, n, d = op.inputs[0].type.shape
        return KernelCall.of("ek_transform_landmarks_f32", *op.inputs, op.output, n, d)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Both numbers of dimensions."""
        for d in (2, 3):
            yield Sample(
                cls(),
                (Arg(TensorType((1, 9, d))), Arg(TensorType(_MATRIX))),
                label=f"{d}d",
            )
