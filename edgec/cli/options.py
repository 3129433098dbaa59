"""Makes options of the command line of declared ones (`edgec.options`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args

import click

from edgec.cli.sections import option
from edgec.options.declaration import Declared, declared, flags_of

_F = TypeVar("_F", bound=Callable[..., Any])

JSON = click.option(
    "--json", "as_json", is_flag=True, help="machine-readable, to standard output"
)
QUIET = click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")


def options_of(options: type, *optional: str) -> Callable[[_F], _F]:
    """Return a decorator with the options that a dataclass declares.

    optional: names of options that the command line need not have all the same.
    """
    decorators = []
    for one in declared(options):
        if not one.text.python_only:
            required = one.required and one.name not in optional
            decorators.append(
                (_argument if one.text.is_argument else _option)(one, required)
            )

    def add(fn: _F) -> _F:
        # The decorator that is applied last is the first in --help.
        for decorator in reversed(decorators):
            fn = decorator(fn)
        return fn

    return add


def given(options: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a verb that were given on a command line.

    values: by the name of the option. Raises InputError for a text that an option cannot
    have.
    """
    arguments: dict[str, Any] = {}
    # Options that were not given keep the defaults of the dataclass.
    for one in declared(options):
        value = values.get(one.name)
        if value not in (None, ()):
            arguments[one.name] = one.text.parse(value) if one.text.parse else value
    return arguments


def _argument(row: Declared, required: bool) -> Callable[[Callable[..., Any]], Any]:
    """Return the click argument of a declared one."""
    attributes: dict[str, Any] = {"type": click.Path(path_type=Path)}
    if row.text.multiple:
        attributes["nargs"] = -1
    return click.argument(
        row.name,
        required=required,
        metavar=row.text.metavar,
        **attributes,
    )


def _option(row: Declared, required: bool) -> Callable[[Callable[..., Any]], Any]:
    """Return the click option of a declared one."""
    help = row.text.help
    # The dataclass alone has defaults, so that it is known what was not given.
    if row.text.show_default:
        help += f"  [default: {row.default}]"
    return option(
        *flags_of(row),
        row.name,
        section=row.text.section,
        required=required,
        metavar=row.text.metavar,
        help=help,
        **_value(row),
    )


def _not_the_argument(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse the verb's file as the value of an option that may have none."""
    if value is None:
        return None
    # A mistyped name is no file, and no command either.
    if Path(value).is_file() or (Path(value).suffix == ".edgec" and " " not in value):
        raise click.UsageError(f"write {value} before {parameter.opts[0]}", context)
    return value


def _value(row: Declared) -> dict[str, Any]:
    """Return the attributes by which click reads the value of an option."""
    kinds = get_args(row.type) if isinstance(row.type, UnionType) else (row.type,)
    if row.text.multiple:
        return {"multiple": True}
    if row.text.parse is not None:
        return {}
    if row.text.bare:
        return {
            "is_flag": False,
            "flag_value": row.text.bare,
            "default": None,
            "callback": _not_the_argument,
        }
    # A union of a text and a path is a file.
    if bool in kinds:
        return {"is_flag": True, "default": None}
    if Path in kinds:
        return {"type": click.Path(path_type=Path)}
    # A union of a text and a number is read by the verb.
    if str in kinds:
        return {}
    for kind in (float, int):
        if kind in kinds:
            return {"type": kind}
    return {}
