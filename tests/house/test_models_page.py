"""The page of all networks on all boards, and the file of results that it is made from."""

from __future__ import annotations

import pytest

from benchmarks import models_page
from benchmarks.models_page import IN_LAB, PAGE, Network
from edgec.catalogue.entries import PREFIX


def test_the_page_has_the_tables_of_the_results() -> None:
    page = PAGE.read_text()
    assert models_page.replaced(page, models_page.read()) == page, "make models-page"


def test_the_page_names_every_network() -> None:
    """In a row, or among those that are not estimated yet."""
    known = models_page.licences()
    rows = {network.name: network for network in models_page.read()}
    assert rows.keys() <= known.keys()
    page = PAGE.read_text()
    assert [name for name in known if models_page.short(name) not in page] == []
    for name, row in rows.items():
        assert row.license == known[name]
        assert row.ms.keys() == set(models_page.targets())
        assert row.bytes > 0
        assert row.macs > 0


def test_a_cell_is_an_interval() -> None:
    ms: dict[str, tuple[float, float] | None] = dict.fromkeys(models_page.targets())
    ms["pi4"] = (7.0, 9.04)
    network = Network("models:face-near", "Apache-2.0", 1_250_000, 30_800_000, ms)
    tables = models_page.tables([network])
    row = tables["ready"].splitlines()[-1]
    assert row == "| `face-near` | – | – | 7.0 to 9.0 | – |"
    assert "| 1.2 MB | 31 M |" in tables["about ready"]
    assert tables["tests"].count("\n") == 2, "none of them"


@pytest.mark.parametrize("name", IN_LAB)
def test_the_lab_book_has_the_loss_of_int8(name: str) -> None:
    assert models_page.accuracy(f"{PREFIX}{name}").startswith("SQNR ")
    assert models_page.accuracy("models:face-near") == "–"
