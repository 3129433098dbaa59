"""Writes the page of each network of a bundle, and a page of all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec.report.files import write_whole
from edgec.report.markup import rendered
from edgec.report.wording import plain


@dataclass(frozen=True)
class PageTable:
    """A table of a page.

    Attributes:
        title: its heading.
        head: the header of each column.
        rows: the cells of each row.
        left: so many columns from the left are text, and the others numbers.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


@dataclass(frozen=True)
class SummaryPage:
    """The page of all networks of a cascade together.

    Attributes:
        title: its heading.
        summary: a sentence below that.
        tables: its tables.
        notes: sentences at its end.
    """

    title: str
    summary: str
    tables: Sequence[PageTable]
    notes: Sequence[str]

    def text(self, links: Sequence[tuple[str, str]]) -> str:
        """Return its HTML; `links` has the networks' names and files."""
        tables = []
        for table in self.tables:
            tables.append((table.title, table.head, table.rows, table.left))
        return rendered(
            "summary_page.html",
            title=plain(self.title),
            summary=plain(self.summary),
            warning="",
            pages=links,
            tables=tables,
            notes=[plain(note) for note in self.notes],
            data={},
        )


def write_pages(
    path: Path, pages: Mapping[str, str], summary: SummaryPage | None
) -> None:
    """Write the pages of a bundle; raises InputError if the operating system refuses.

    The pages of a cascade's networks are named by the whole's: page.html,
    page.mesh.html.

    Args:
        path: the file to write.
        pages: the page of each network, as HTML.
        summary: the page of a cascade; None: there is one network.
    """
    if summary is None:
        (page,) = pages.values()
        write_whole(path, page)
        return
    files = {}
    for name in pages:
        files[name] = path.with_name(f"{path.stem}.{name}{path.suffix}")
    # First the pages of the networks, so that no link is to a page that is not there.
    for name, file in files.items():
        write_whole(file, pages[name])
    write_whole(path, summary.text([(name, file.name) for name, file in files.items()]))
