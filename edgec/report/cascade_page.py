"""Writes the page of a cascade, and beside it the page of each of its networks."""

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
class CascadePage:
    """The page of a cascade.

    Attributes:
        title: its heading.
        summary: a sentence below that.
        tables: tables of all networks together.
        notes: sentences at its end.
        networks: the page of each network, as HTML.
    """

    title: str
    summary: str
    tables: Sequence[PageTable]
    notes: Sequence[str]
    networks: Mapping[str, str]

    def write(self, path: Path) -> None:
        """Write the pages; raises InputError if the operating system refuses.

        The networks' pages are named by the cascade's: page.html, page.mesh.html.
        """
        files = {}
        for name in self.networks:
            files[name] = path.with_name(f"{path.stem}.{name}{path.suffix}")
        # First the pages of the networks, so that no link is to a page that is not there.
        for name, file in files.items():
            write_whole(file, self.networks[name])
        links = [(name, file.name) for name, file in files.items()]
        write_whole(path, self._own(links))

    def _own(self, links: Sequence[tuple[str, str]]) -> str:
        """Return the page of the whole; `links` has the networks' names and files."""
        tables = []
        for table in self.tables:
            tables.append((table.title, table.head, table.rows, table.left))
        return rendered(
            "cascade.html",
            title=plain(self.title),
            summary=plain(self.summary),
            warning="",
            pages=links,
            tables=tables,
            notes=[plain(note) for note in self.notes],
            data={},
        )
