"""Generated documents are fresh."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgec.emit.c import CSRC
from edgec.report.supported_ops import supported_ops
from tests.house.test_arrows import TABLE, _files

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


def test_messages_in_troubleshooting_are_those_of_the_program() -> None:
    """Each **`message`** that a paragraph begins with is in the code, letter by letter."""
    page = (ARCHITECTURE.parent / "troubleshooting.md").read_text()
    quoted = [m for line in re.findall(r"^\*\*(`.+?)\*\*", page, re.M) for m in re.findall(r"`([^`]+)`", line)]
    code = "".join(re.sub(r"\{[^}]*\}", "", p.read_text()) for p in _files())
    code += "".join(p.read_text() for p in sorted(CSRC.glob("*.[ch]")))
    assert len(quoted) > 10
    for message in quoted:
        assert message.removesuffix(" emulated") in code, message
