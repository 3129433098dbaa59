"""The command lines of the pages, as a reader types them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def commands(page: str, *headings: str) -> list[str]:
    """Return the commands of sections of a page, without their prompts.

    page: its path in the repository. headings: without them, all of the page.
    """
    text = (ROOT / page).read_text()
    if headings:
        sections = dict(re.findall(r"^## (.*)\n((?:.*\n(?!## ))*)", text, re.M))
        text = "".join(sections[heading] for heading in headings)
    return re.findall(r"^    \$ (.*)$", text, re.M)
