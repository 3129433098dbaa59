"""Generated documents are fresh."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgec.report.supported_ops import supported_ops
from tests.house.test_arrows import TABLE

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
DOCUMENT = Path(__file__).parents[2] / "docs" / "supported-ops.md"


def test_supported_ops_is_fresh(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(supported_ops())
    assert DOCUMENT.read_text() == supported_ops(), "run pytest --update-golden tests/house/test_docs.py"


def test_the_table_of_imports_is_fresh(request: pytest.FixtureRequest) -> None:
    rows = [f"| `{room}` | {', '.join(f'`{r}`' for r in sorted(may)) or 'nothing'} |" for room, may in TABLE.items()]
    table = "\n".join(["| room | may import |", "| --- | --- |", *rows])
    text = ARCHITECTURE.read_text()
    head, rest = text.split("<!-- imports -->\n")
    tail = rest.split("<!-- /imports -->")[1]
    fresh = f"{head}<!-- imports -->\n\n{table}\n\n<!-- /imports -->{tail}"
    if request.config.getoption("--update-golden"):
        ARCHITECTURE.write_text(fresh)
    assert ARCHITECTURE.read_text() == fresh, "run pytest --update-golden tests/house/test_docs.py"
