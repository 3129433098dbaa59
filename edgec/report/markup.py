"""HTML and SVG: pages from Jinja2 templates beside their code, pictures from pieces;
what comes from a file is escaped.

Here alone is text taken for markup: the forms that are written in this package, and
their style and script.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import LiteralString

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def html(form: LiteralString, *values: object, **named: object) -> Markup:
    """A piece: `form.format(…)`, every value escaped that is no piece itself."""
    return Markup(form).format(*values, **named)


def joined(pieces: Iterable[Markup], between: LiteralString = "") -> Markup:
    """One piece of several."""
    return Markup(between).join(pieces)


def rendered(template: str, **values: object) -> str:
    """A page: a template of this package by its path, with every value escaped that is
    no piece. It loads nothing.
    """
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    loader = PackageLoader("edgec.report", ".")
    found = Environment(
        autoescape=True,
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.policies["json.dumps_kwargs"] = {
        "ensure_ascii": True,
        "allow_nan": False,
        "separators": (",", ":"),
    }
    found.globals["file"] = lambda name: Markup(loader.get_source(found, name)[0])
    return found
