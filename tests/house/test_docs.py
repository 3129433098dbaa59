"""Generated documents are fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgec.report.supported_ops import supported_ops

DOCUMENT = Path(__file__).parents[2] / "docs" / "supported-ops.md"


def test_supported_ops_is_fresh(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(supported_ops())
    assert DOCUMENT.read_text() == supported_ops(), "run pytest --update-golden tests/house/test_docs.py"
