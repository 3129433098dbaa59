"""Declares an option once, for Python, the command line and the manual.

A verb's options are the fields of a frozen dataclass whose metadata `option` makes. The
fields are the keyword arguments of the function in Python (`takes`), the options of the command
line (`edgec.cli.declared`) and the rows of the tables in docs/api.md.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from edgec.checking import check_argument

_KEY = "option"
"""The metadata of a dataclass field that holds its `OptionText`."""
_P = ParamSpec("_P")
_M = TypeVar("_M")
_O = TypeVar("_O")
_R = TypeVar("_R")


class Section(StrEnum):
    """The sections of --help, in their order, by their titles."""

    TARGET = "Where it runs"
    INT8 = "int8"
    INPUTS = "What its inputs are"
    OUTPUTS = "What its outputs mean"
    REPORT = "The report"
    OTHER = "Other"


@dataclass(frozen=True)
class OptionText:
    """How an option is explained, and how the command line spells it.

    Attributes:
        help: what it does, as --help and the manual say it
        section: its section of --help; None: only --help-all shows it
        metavar: what its value looks like
        flags: its names on the command line; without any, that of the field
        multiple: whether the command line takes it several times
        parse: makes the field's value of the text, or the texts, that were given
        show_default: whether --help shows the field's default
        python_only: whether its value is an object, which no command line could give
    """

    help: str
    section: Section | None = None
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    multiple: bool = False
    parse: Callable[[Any], Any] | None = None
    show_default: bool = False
    python_only: bool = False


def option(help: str, **text: Any) -> dict[str, OptionText]:
    """Return the metadata of a dataclass field that is an option.

    text: the other fields of `OptionText`.
    """
    return {_KEY: OptionText(help, **text)}


@dataclass(frozen=True)
class Declared:
    """One option of a verb.

    Attributes:
        name: of the field
        type: its annotation, evaluated
        default: its value when it is not given
        text: how it is explained
    """

    name: str
    type: Any
    default: Any
    text: OptionText


def declared(options: type) -> Iterator[Declared]:
    """Yield the options that a dataclass declares, positional arguments first."""
    types = get_type_hints(options)
    # The sort is stable: options stay in the order of the dataclass.
    for f in sorted(fields(options), key=lambda f: f.kw_only is True):
        if _KEY in f.metadata:
            default = getattr(options, f.name, None)
            yield Declared(f.name, types[f.name], default, f.metadata[_KEY])


def takes(
    options: Callable[_P, _O],
) -> Callable[[Callable[[_M, _O], _R]], Callable[Concatenate[_M, _P], _R]]:
    """Return a decorator that gives a verb the fields of a dataclass as arguments.

    The verb is written as a function of a model and an instance of the dataclass; its
    callers give the fields by name. A wrong type raises InputError.
    """

    def decorate(verb: Callable[[_M, _O], _R]) -> Callable[Concatenate[_M, _P], _R]:
        first, _ = inspect.signature(verb).parameters.values()
        given = inspect.signature(options)
        parameters = [first, *given.parameters.values()]
        result = inspect.signature(verb).return_annotation
        signature = given.replace(parameters=parameters, return_annotation=result)

        @wraps(verb)
        def call(model: _M, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            # What the verb returns may be known to type checkers alone.
            model_type = eval(first.annotation, inspect.unwrap(verb).__globals__)
            hints = {first.name: model_type, **get_type_hints(options)}
            bound = signature.bind(model, *args, **kwargs)
            for name, value in bound.arguments.items():
                annotation = signature.parameters[name].annotation
                check_argument(verb.__name__, name, value, hints[name], annotation)
            return verb(model, options(*args, **kwargs))

        call.__signature__ = signature  # type: ignore[attr-defined]
        # help() and the manual read these; the verb itself has only `options`.
        call.__doc__ = _documented(verb, options)
        return call

    return decorate


def _documented(verb: Callable[..., Any], options: Any) -> str:
    """Return the docstring of a verb with the options among its arguments."""
    lines = [inspect.getdoc(verb) or ""]
    for one in declared(options):
        text = f"{one.name}: {python_help(one)}"
        lines.append(
            textwrap.fill(text, 84, initial_indent="    ", subsequent_indent="        ")
        )
    return "\n".join(lines)


def flags_of(one: Declared) -> tuple[str, ...]:
    """Return the names of an option on the command line."""
    return one.text.flags or (f"--{one.name.replace('_', '-')}",)


def python_help(one: Declared) -> str:
    """Return the explanation of an option with the names that options have in Python."""
    # "--float-ops" is `float_ops` in Python; a dash inside a word is none of an option.
    return re.sub(
        r"(?<!\w)--([a-z][\w-]*)",
        lambda match: match[1].replace("-", "_"),
        one.text.help,
    )
