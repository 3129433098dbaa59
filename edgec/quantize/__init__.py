"""Post-training quantization to int8: calibration data, ranges, scales, the rewrite,
and what it cost in accuracy.
"""

from edgec.measure.agreement import Agreement, compare, cosine, sqnr_db
from edgec.quantize.change.convert import (
    assumed,
    is_quantized,
    quantize,
    quantize_ranges,
)
from edgec.quantize.observe.calibration import load_calibration
from edgec.quantize.observe.preprocess import choose, photo_input
from edgec.quantize.observe.ranges import calibrate

__all__ = [
    "Agreement",
    "assumed",
    "calibrate",
    "choose",
    "compare",
    "cosine",
    "is_quantized",
    "load_calibration",
    "photo_input",
    "quantize",
    "quantize_ranges",
    "sqnr_db",
]
