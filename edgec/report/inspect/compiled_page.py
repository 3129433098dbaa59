"""Renders the facts about a file of edgetpu_compiler as one page (compiled.html)."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from edgec.inspecting.compiled import CompiledInspection
from edgec.inspecting.compiled_facts import CompiledFacts, InspectedPackage
from edgec.report.inspect.compiled_text import (
    PROGRAM_HEAD,
    TILE_HEAD,
    TIME_HEAD,
    cpu_text,
    headline_of,
    kinds_text,
    layer_rows,
    memory_text,
    origin,
    program_rows,
    steps_text,
    tile_rows,
    time_rows,
    transfer_rows,
)
from edgec.report.inspect.tiles_svg import tiles_picture
from edgec.report.markup import rendered
from edgec.report.wording import plain


def compiled_page(inspection: CompiledInspection) -> str:
    """Return the page of a file."""
    facts = inspection.facts
    return rendered(
        "inspect/compiled.html",
        title=plain(PurePath(facts.path).name),
        summary=headline_of(facts),
        warning="",
        file_facts=file_values(facts),
        data=inspection.to_json(),
    )


def file_values(facts: CompiledFacts) -> dict[str, Any]:
    """Return the values of the form's part for a file."""
    return {
        "packages": [_package(package) for package in facts.packages],
        "cpu": cpu_text(facts),
        "heads": {"program": PROGRAM_HEAD, "tile": TILE_HEAD, "time": TIME_HEAD},
    }


def _package(package: InspectedPackage) -> dict[str, Any]:
    return {
        "origin": [*origin(package)],
        "programs": program_rows(package),
        "kinds": [(p.type, kinds_text(p)) for p in package.programs],
        "layers": [*layer_rows(package)],
        "memory": memory_text(package),
        "picture": tiles_picture(package),
        "tiles": tile_rows(package),
        "transfers": [*transfer_rows(package)],
        "times": time_rows(package),
        "steps": steps_text(package),
    }
