"""The arithmetic that defines the int8 results of an operation.

The same int8 network has results that differ by a step from runtime to runtime, since
each scales its sums in another way. An op of a model file is computed as the runtime of
that format computes it, and this is the attribute that says so.
"""

from __future__ import annotations

from enum import Enum


class Rounding(Enum):
    """The runtime, and the element type of the file, whose integers an op returns."""

    TFLITE = "tflite"
    """TFLite's int8 kernels: sums are multiplied by integers in fixed point, and ties
    go away from zero.
    """
    TFLITE_UINT8 = "tflite_uint8"
    """TFLite's uint8 kernels, for models that came as uint8: some of them round scales
    or sums elsewhere than the int8 kernels do.
    """
    ONNXRUNTIME = "onnxruntime"
    """onnxruntime's CPU kernels: sums are multiplied by a float32 scale, and ties go to
    the even integer.
    """
    ONNXRUNTIME_UINT8 = "onnxruntime_uint8"
    """The same for tensors that were uint8 in the file, whose floats are greater by
    128, and so may lose other bits.
    """
    EDGETPU = "edgetpu"
    """The Edge TPU's, as others measured it (NOTES.md and docs/isa/eltwise.md in
    FrederikRogalski/tinycoral): sums are multiplied by one float32, and ties go to the
    even integer. `edgec.ops.edgetpu_law` has the formulas.
    """
    EDGETPU_UINT8 = "edgetpu_uint8"
    """The same for tensors that were uint8 in the file: the chip knows no other."""

    @property
    def sums_in_float(self) -> bool:
        """Whether sums are multiplied by a float32 scale, and ties go to even."""
        return self.is_onnxruntime or self.is_edgetpu

    @property
    def is_edgetpu(self) -> bool:
        """Whether results are those of the chip."""
        return self in (Rounding.EDGETPU, Rounding.EDGETPU_UINT8)

    @property
    def is_onnxruntime(self) -> bool:
        """Whether results are those of onnxruntime."""
        return self in (Rounding.ONNXRUNTIME, Rounding.ONNXRUNTIME_UINT8)

    @property
    def is_uint8(self) -> bool:
        """Whether the tensors were uint8 in the file."""
        return self in (
            Rounding.TFLITE_UINT8,
            Rounding.ONNXRUNTIME_UINT8,
            Rounding.EDGETPU_UINT8,
        )

    @property
    def offset(self) -> int:
        """The number that is added to an int8 element for the element of the file."""
        return 128 if self.is_uint8 else 0

    @property
    def in_tflite(self) -> Rounding:
        """The rounding of the TFLite operation that stands for one with this rounding."""
        return Rounding.of_tflite(self.is_uint8 and not self.is_onnxruntime)

    @property
    def on_edgetpu(self) -> Rounding:
        """The Edge TPU's rounding of an operation that has this one in a TFLite file."""
        return Rounding.EDGETPU_UINT8 if self.is_uint8 else Rounding.EDGETPU

    @classmethod
    def of_tflite(cls, uint8: bool) -> Rounding:
        """Return the rounding of an op of a TFLite file, whose tensors may be uint8."""
        return cls.TFLITE_UINT8 if uint8 else cls.TFLITE

    @classmethod
    def of_onnx(cls, uint8: bool) -> Rounding:
        """Return the rounding of an op of an ONNX file, whose tensors may be uint8."""
        return cls.ONNXRUNTIME_UINT8 if uint8 else cls.ONNXRUNTIME
