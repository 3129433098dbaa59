"""pytest's parameters for cores."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import has
from tests.schedule.runner import BUILDS, FEATURES, SANITIZED

WIDTHS = ("cortex_a53", "x86_64_v3", "x86_64_v4_vnni")
"""A core for each width of vectors."""

USUAL = tuple(name for name in BUILDS if name == "sanitized" or name not in SANITIZED)
"""All cores, and a sanitizer: the others are slow to compile."""


def on(*names: str) -> list[Any]:
    """Names of runner.BUILDS (USUAL, if none is given), each skipped where it cannot
    run.
    """
    return [pytest.param(name, marks=_marks(name)) for name in names or USUAL]


def _marks(name: str) -> list[pytest.MarkDecorator]:
    if name not in FEATURES:
        return [pytest.mark.arm]
    missing = pytest.mark.skipif(
        not has(FEATURES[name]), reason=f"this processor has no {FEATURES[name]}"
    )
    return [pytest.mark.cc, missing]
