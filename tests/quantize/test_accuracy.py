"""The measures of agreement on hand-made outputs."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from edgec.quantize import compare, cosine, sqnr_db


def test_cosine() -> None:
    a = np.array([1.0, 2.0, 3.0])
    assert cosine(a, a * 5) == pytest.approx(1)
    assert cosine(a, -a) == pytest.approx(-1)
    assert cosine(np.zeros(3), np.zeros(3)) == 1
    assert cosine(np.zeros(3), a) == 0


def test_sqnr() -> None:
    a = np.array([3.0, 4.0])
    assert sqnr_db(a, a) == math.inf
    assert sqnr_db(a, a + 0.5) == pytest.approx(10 * math.log10(25 / 0.5))
    assert sqnr_db(np.zeros(2), a) == -math.inf


def test_compare_joins_samples() -> None:
    a, b = np.array([[0.1, 0.9]]), np.array([[0.8, 0.2]])
    found = compare([({"y": a, "z": a}, {"y": a, "z": a}), ({"y": b, "z": b}, {"y": a, "z": b})])
    assert found["y"].top1 == 0.5
    assert found["y"].samples == 2
    assert found["z"].as_dict() == {
        "cosine": pytest.approx(1),
        "sqnr_db": None,
        "top1": 1.0,
        "samples": 2,
        "centred_cosine": None,
        "centred_sqnr_db": None,
    }
    json.dumps(found["z"].as_dict(), allow_nan=False)
    assert "top-1 50 %" in str(found["y"])


def test_top1_needs_one_row() -> None:
    image = {"y": np.ones((1, 4, 4, 3))}
    assert compare([(image, image)])["y"].top1 is None
    assert compare([]) == {}
