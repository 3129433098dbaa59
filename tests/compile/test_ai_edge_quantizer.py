"""Files of ai-edge-quantizer agree with LiteRT's reference kernels; skipped where `make
quantized-tflite` never ran.
"""

from __future__ import annotations

import json

import pytest

from benchmarks import quantized_tflite as table
from benchmarks.accuracy_rows import ROOT, SHARED

PYTHON = ROOT / "build" / "venv-ai-edge-quantizer" / "bin" / "python"


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.skipif(
    not PYTHON.exists(),
    reason="no ai-edge-quantizer: make quantized-tflite installs it",
)
@pytest.mark.parametrize("way", ["static_wi8_ai8", "weight_only_wi8_afp32"])
def test_a_quantized_file_is_read_as_litert_computes_it(way: str) -> None:
    table.WORK.mkdir(parents=True, exist_ok=True)
    index = {
        m["name"]: m for m in json.loads((SHARED / "models" / "index.json").read_text())
    }
    photos = table.photos(index["resnet8_f32"])
    row = table.Row("resnet8_f32", way)
    table.measure(
        row,
        PYTHON,
        SHARED / "models" / index["resnet8_f32"]["file"],
        photos[2:12],
        photos[:2],
        False,
    )
    assert not row.wrong, row
