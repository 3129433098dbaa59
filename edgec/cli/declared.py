"""Makes options of the command line of declared ones (`edgec.declared`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args

import click

from edgec.cli.sections import option
from edgec.declared import Declared, declared, flags_of

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


def options_of(options: type) -> Callable[[_F], _F]:
    """Return a decorator with the options that a dataclass declares."""
    decorators = [_option(one) for one in declared(options) if not one.text.python_only]

    def add(fn: _F) -> _F:
        # The decorator that is applied last is the first in --help.
        for decorator in reversed(decorators):
            fn = decorator(fn)
        return fn

    return add


def given(options: Callable[..., _T], values: Mapping[str, Any]) -> _T:
    """Return the dataclass of what was given on a command line.

    values: by the name of the field. Raises InputError for a text that an option cannot
    have.
    """
    fields: dict[str, Any] = {}
    # Options that were not given keep the defaults of the dataclass.
    for one in declared(options):  # type: ignore[arg-type]
        value = values.get(one.name)
        if value is not None:
            fields[one.name] = one.text.parse(value) if one.text.parse else value
    return options(**fields)


def _option(one: Declared) -> Callable[[Callable[..., Any]], Any]:
    """Return the click option of a declared one."""
    # Other defaults stay None for click: the dataclass knows them, in one place.
    attributes = _value(one)
    if one.text.show_default:
        attributes |= {"default": one.default, "show_default": True}
    return option(
        *flags_of(one),
        one.name,
        section=one.text.section,
        metavar=one.text.metavar,
        help=one.text.help,
        **attributes,
    )


def _value(one: Declared) -> dict[str, Any]:
    """Return the attributes by which click reads the value of an option."""
    kinds = get_args(one.type) if isinstance(one.type, UnionType) else (one.type,)
    # A union of a text and a path is a file.
    if bool in kinds:
        return {"is_flag": True}
    if Path in kinds:
        return {"type": click.Path(path_type=Path)}
    for kind in (float, int):
        if kind in kinds:
            return {"type": kind}

    return {"multiple": one.text.multiple}
