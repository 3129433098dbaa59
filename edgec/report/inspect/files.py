"""Renders the facts about a file that `edgec inspect` has read, of whatever kind."""

from __future__ import annotations

from edgec.inspecting.compiled import CompiledInspection
from edgec.inspecting.facts import Inspection
from edgec.report.inspect.compiled_page import compiled_page
from edgec.report.inspect.compiled_text import compiled_text
from edgec.report.inspect.page import page
from edgec.report.inspect.text import to_text


def text_of(inspection: Inspection | CompiledInspection) -> str:
    """Return the page of text."""
    if isinstance(inspection, CompiledInspection):
        return compiled_text(inspection.facts)
    return to_text(inspection)


def page_of(inspection: Inspection | CompiledInspection) -> str:
    """Return the page that opens from a disk."""
    if isinstance(inspection, CompiledInspection):
        return compiled_page(inspection)
    return page(inspection)
