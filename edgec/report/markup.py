"""Makes HTML and SVG: pages from Jinja2 templates, pictures from small pieces.

Text from a file is always escaped. Only this module marks text as safe markup: the
forms written in this package, and their style and script.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import LiteralString

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def html(form: LiteralString, *values: object, **named: object) -> Markup:
    """Return `form.format(…)` as markup; values other than markup are escaped."""
    # LiteralString: mypy refuses a form that was put together from data.
    return Markup(form).format(*values, **named)


def joined(pieces: Iterable[Markup], between: LiteralString = "") -> Markup:
    """Join several pieces of markup into one."""
    return Markup(between).join(pieces)


def rendered(template: str, **values: object) -> str:
    """Return the page of a template, by its path in this package.

    Values other than markup are escaped. The page loads nothing from a network.
    """
    return _templates().get_template(template).render(values)


@cache
def _templates() -> Environment:
    """Return the Jinja2 environment, which fails on undefined names."""
    loader = PackageLoader("edgec.report", ".")
    environment = Environment(
        autoescape=True,
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        # Data in a script must not end it, and NaN is no JSON.
        "ensure_ascii": True,
        "allow_nan": False,
        "separators": (",", ":"),
    }

    # Style and script are part of the page, which a person may open offline.
    def inline(name: str) -> Markup:
        source, _, _ = loader.get_source(environment, name)
        return Markup(source)

    environment.globals["file"] = inline
    return environment
