"""A hook of mkdocs: links from the pages into the repository.

A page links to source files as `[text](../edgec/…)`, for people who read it beside the
source. The site has the pages alone: there such a link becomes its text.
"""

from __future__ import annotations

import re

SOURCE_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)]+)\)")
"""A link to a file outside of docs/, with its text and the path from docs/."""


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page without its links to source files."""
    return SOURCE_LINK.sub(r"\1", markdown)
