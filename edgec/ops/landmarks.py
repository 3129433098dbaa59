"""MediaPipe's operators that look closer at a part of a face.

They compute the place of the part from landmarks, cut the part out, and move the
landmarks found in it back. These are the second versions of the operators
(mediapipe/util/tflite/operations), which `face_landmark_with_attention.tflite` has.
Transforms are matrices m [1, 4, 4], of which the first two rows count:
x' = m[0,0] x + m[0,1] y + m[0,3], y' = m[1,0] x + m[1,1] y + m[1,3].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, isfinite, sin
from typing import ClassVar

import numpy as np

from edgec.ir import (
    Array,
    KernelCall,
    Op,
    OpDef,
    Sample,
    TensorType,
    TfliteOp,
)
from edgec.ir.c_structs import LandmarksToTransformParams, TransformTensorParams
from edgec.ir.opdef import Arg
from edgec.ops.common import custom_options, float_kernel, real_types
from edgec.ops.window import Pair

_LANDMARKS_TO_TRANSFORM = float_kernel("landmarks_to_transform", "ek_landmarks.h")

_TRANSFORM_TENSOR = float_kernel("transform_tensor", "ek_landmarks.h")

_TRANSFORM_LANDMARKS = float_kernel("transform_landmarks", "ek_landmarks.h")

_F = np.float32
_MATRIX = (1, 4, 4)
"""Shape of a transform."""
MAX_SIDE = 4096
"""Pixels of a side of the part."""


@dataclass(frozen=True)
class LandmarksToTransform(OpDef):
    """The transform from a part's pixels to their places among the landmarks.

    Inputs: landmarks [1, L, 3], indices [K]; output [1, 4, 4]. The part is the box
    around the landmarks that the indices name, turned so that the direction from
    landmark `left` to `right` is `angle`.

    Attributes:
        left, right: numbers of two landmarks
        size: pixels (height, width) of the part
        scale: factors of the box's (width, height)
        angle: radians
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
        """Return the type of a transform.

        Raises ValueError when landmarks, indices or attributes do not fit.
        """
        landmarks, index = x
        real_types(self, landmarks, int8=False)
        n = landmarks.shape[1] if landmarks.rank == 3 else 0
        has_both = 0 <= self.left < n and 0 <= self.right < n
        if landmarks.shape != (1, n, 3) or not has_both:
            raise ValueError(
                f"landmarks {landmarks}, turned by {self.left} and {self.right}"
            )

        if index.dtype != "int32" or index.rank != 1 or index.size == 0:
            raise ValueError(f"indices {index}")

        self._check_part()
        return (TensorType(_MATRIX),)

    def _check_part(self) -> None:
        """Raise ValueError for a size, a scale or an angle that no part can have.

        The options come from a file and may hold anything.
        """
        is_sized = all(1 <= pixels <= MAX_SIDE for pixels in self.size)
        if not is_sized or not all(0 < factor < np.inf for factor in self.scale):
            raise ValueError(
                f"a part of {self.size} pixels, {self.scale} times as large"
            )

        if not isfinite(self.angle):
            raise ValueError(f"an angle of {self.angle}")

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute the transform in float32."""
        landmarks, numbers = x
        places = landmarks[0, :, :2]
        index = np.clip(numbers, 0, landmarks.shape[1] - 1)

        # The rotation by the angle less the direction from left to right.
        across = places[self.right] - places[self.left]
        length = np.hypot(*across)
        if length > 0:
            direction_x, direction_y = across / length
        else:
            direction_x, direction_y = _F(1), _F(0)

        cosine, sine = self._turn
        c = cosine * direction_x + sine * direction_y
        s = sine * direction_x - cosine * direction_y
        rotation = np.array([[c, -s], [s, c]], _F)

        # The box around the turned landmarks.
        turned = places[index] @ rotation.T
        low = turned.min(0)
        high = turned.max(0)
        centre = rotation.T @ ((low + high) / _F(2))

        # A pixel's way from the middle of the part, scaled and turned back.
        pixels = np.array(self.size[::-1], _F)
        factor = np.array(self.scale, _F) * (high - low) / pixels
        y = np.eye(4, dtype=_F)[None]
        y[0, :2, :2] = rotation.T * factor
        y[0, :2, 3] = centre - y[0, :2, :2] @ (pixels / _F(2))

        return [y]

    @property
    def _turn(self) -> tuple[np.float32, np.float32]:
        """The cosine and sine of the angle."""
        return _F(cos(self.angle)), _F(sin(self.angle))

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the second version of the operator.

        Raises ValueError for indices of landmarks that do not exist.
        """
        options = custom_options(op)
        x = op.input(0)
        index = np.array(options["subset_idxs"], np.int64)
        is_outside = (index < 0) | (index >= x.type.shape[1])
        if index.ndim != 1 or is_outside.any():
            raise ValueError(f"subset_idxs {index.tolist()} of {x.type}")

        height = int(options["output_height"])
        width = int(options["output_width"])
        spec = cls(
            left=int(options["left_rotation_idx"]),
            right=int(options["right_rotation_idx"]),
            size=(height, width),
            scale=(float(options["scale_x"]), float(options["scale_y"])),
            angle=float(options["target_rotation_radians"]),
        )
        subset = op.build.const(index.astype(np.int32), "subset")
        op.build.write(spec, [x, subset], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """Return ek_landmarks_to_transform_f32."""
        x, index = op.inputs
        cosine, sine = self._turn
        spec = LandmarksToTransformParams(
            landmarks=x.type.shape[1],
            subset=index.type.size,
            left=self.left,
            right=self.right,
            height=self.size[0],
            width=self.size[1],
            scale_x=self.scale[0],
            scale_y=self.scale[1],
            cosine=float(cosine),
            sine=float(sine),
        )

        return KernelCall.of(_LANDMARKS_TO_TRANSFORM, x, index, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield landmarks in any direction, an angle, and landmarks at one place."""
        numbers = np.array([0, 3, 1, 3, 6], np.int32)
        index = Arg(TensorType((5,), "int32"), True, numbers)
        landmarks = Arg(TensorType((1, 7, 3)))
        specs = {
            "level": cls(0, 4, (6, 5), (1.5, 1.25)),
            "angle": cls(5, 2, (3, 8), (1.0, 2.0), 0.6),
            "none": cls(2, 2, (4, 4), (1.0, 1.0), -1.0),
        }
        for label, spec in specs.items():
            yield Sample(spec, (landmarks, index), label=label)


@dataclass(frozen=True)
class TransformTensor(OpDef):
    """A part cut out of an image: bilinear samples at the places of a transform.

    Inputs: image [1, H, W, C], transform of the centres of the part's pixels; output
    [1, *size, C]. It is zero beyond the centres of the image's border pixels.

    Attributes:
        size: pixels (height, width) of the part
    """

    size: Pair

    kind = "transform_tensor"
    tflite = ("custom TransformTensorBilinear",)
    roles: ClassVar[tuple[str, ...]] = ("act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the part.

        Raises ValueError when image and transform do not fit.
        """
        real_types(self, *x, int8=False)
        image, matrix = x
        is_image = image.rank == 4 and image.shape[0] == 1 and 0 not in image.shape
        if not is_image or matrix.shape != _MATRIX:
            raise ValueError(f"image {image} and transform {matrix}")

        if not all(1 <= pixels <= MAX_SIDE for pixels in self.size):
            raise ValueError(f"{self.size} pixels")

        return (TensorType((1, *self.size, image.shape[3])),)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute a weighted sum of four pixels in float32."""
        image = x[0][0]
        matrix = x[1][0]
        height, width, _ = image.shape
        rows, columns = np.indices(self.size, dtype=_F) + _F(0.5)

        # The elements of a transform may be any floats.
        with np.errstate(all="ignore"):
            at_x, at_y = (
                row[0] * columns + row[1] * rows + row[3] - _F(0.5)
                for row in matrix[:2]
            )

        # Only places between the centres of border pixels have four neighbours.
        inside_x = (at_x >= 0) & (at_x <= width - 1)
        inside_y = (at_y >= 0) & (at_y <= height - 1)
        is_inside = inside_x & inside_y
        at_x = np.where(is_inside, at_x, _F(0))
        at_y = np.where(is_inside, at_y, _F(0))

        # The four pixels around each place.
        left = np.floor(at_x).astype(int)
        top = np.floor(at_y).astype(int)
        right = np.minimum(left + 1, width - 1)
        bottom = np.minimum(top + 1, height - 1)
        weight_x = (at_x - left)[..., None].astype(_F)
        weight_y = (at_y - top)[..., None].astype(_F)

        upper_left = (1 - weight_x) * image[top, left]
        lower_left = (1 - weight_x) * image[bottom, left]
        upper = upper_left + weight_x * image[top, right]
        lower = lower_left + weight_x * image[bottom, right]
        part = (1 - weight_y) * upper + weight_y * lower
        y = np.where(is_inside[..., None], part, _F(0))

        return [y[None].astype(_F)]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the second version of the operator.

        The size of the part is in the options.
        """
        options = custom_options(op)
        size = (int(options["output_height"]), int(options["output_width"]))
        op.build.write(cls(size), [op.input(0), op.input(1)], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """Return ek_transform_tensor_f32."""
        _, height, width, channels = op.inputs[0].type.shape
        spec = TransformTensorParams(
            ih=height,
            iw=width,
            c=channels,
            oh=self.size[0],
            ow=self.size[1],
        )

        return KernelCall.of(_TRANSFORM_TENSOR, *op.inputs, op.output, spec)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield a turned part partly outside, the whole image, and a random matrix."""
        image = Arg(TensorType((1, 6, 7, 3)))
        rng = np.random.default_rng(4)
        cases = {
            "turned": [[0.91, -0.43, 0, 1.37], [0.39, 0.87, 0, -0.71]],
            "whole": [[1, 0, 0, 0], [0, 1, 0, 0]],
            "any": rng.normal(size=(2, 4)),
        }

        # They have no effect.
        last_rows = np.eye(4, dtype=_F)[2:]
        for label, first_rows in cases.items():
            matrix = np.concatenate([np.array(first_rows, _F), last_rows])[None]
            transform = Arg(TensorType(_MATRIX), True, matrix)
            yield Sample(cls((6, 7)), (image, transform), label=label)


@dataclass(frozen=True)
class TransformLandmarks(OpDef):
    """Landmarks [1, N, 2] or [1, N, 3] of a part, moved by its transform.

    z stays as it is.
    """

    kind = "transform_landmarks"
    tflite = ("custom TransformLandmarks",)
    roles: ClassVar[tuple[str, ...]] = ("act", "act")

    def infer(self, *x: TensorType) -> tuple[TensorType, ...]:
        """Return the type of the landmarks.

        Raises ValueError when landmarks and transform do not fit.
        """
        real_types(self, *x, int8=False)
        landmarks, matrix = x
        is_fitting = landmarks.rank == 3 and landmarks.shape[0] == 1
        is_fitting = is_fitting and landmarks.shape[2] in (2, 3)
        if not is_fitting or matrix.shape != _MATRIX:
            raise ValueError(f"landmarks {landmarks} and transform {matrix}")

        return (landmarks,)

    def ref(
        self,
        x: Sequence[Array],
        xt: Sequence[TensorType],
        yt: Sequence[TensorType],
    ) -> list[Array]:
        """Compute x' and y' in float32."""
        landmarks, matrix = x

        # A column of the transform is the translation.
        linear = matrix[0, :2, :2]
        offset = matrix[0, :2, 3]
        y = landmarks.copy()
        y[0, :, :2] = landmarks[0, :, :2] @ linear.T + offset

        return [y]

    @classmethod
    def from_tflite(cls, op: TfliteOp) -> None:
        """Read the second version of the operator, which has no options."""
        op.build.write(cls(), [op.input(0), op.input(1)], op.outputs)

    def c(self, op: Op) -> KernelCall:
        """Return ek_transform_landmarks_f32.

        The kernel takes the number of landmarks and that of their coordinates.
        """
        _, count, dims = op.inputs[0].type.shape
        kernel = _TRANSFORM_LANDMARKS
        return KernelCall.of(kernel, *op.inputs, op.output, count, dims)

    @classmethod
    def samples(cls) -> Iterator[Sample]:
        """Yield landmarks of two and of three dimensions.

        The transform is an input as well.
        """
        transform = Arg(TensorType(_MATRIX))
        for dims in (2, 3):
            landmarks = Arg(TensorType((1, 9, dims)))
            yield Sample(cls(), (landmarks, transform), label=f"{dims}d")
