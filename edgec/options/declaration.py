"""Makes verbs of functions whose options are the fields of a dataclass.

A verb's options are the fields of a frozen dataclass whose metadata
`edgec_devices.options.option` makes. The fields are the arguments of the function in
Python (`takes`), the options of the command line (`edgec.cli.options`) and the rows of
the tables in docs/api.md.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, get_origin, get_type_hints

from edgec_devices.options import OPTION, OptionText, option

from edgec.errors import InputError, did_you_mean

_P = ParamSpec("_P")
_O = TypeVar("_O")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Declared:
    """One option of a verb.

    Attributes:
        name: of the field
        type: its annotation, evaluated
        annotation: its annotation as the file has it
        default: its value when it is not given
        required: whether it must be given
        text: how it is explained
    """

    name: str
    type: Any
    annotation: str
    default: Any
    required: bool
    text: OptionText


@cache
def declared(options: type) -> tuple[Declared, ...]:
    """Return the options that a dataclass declares.

    Positional arguments come first, options that many verbs have last.
    """
    types = get_type_hints(options)
    rows = []
    # The sort is stable: options stay in the order of the dataclass.
    own = [f for f in fields(options) if OPTION in f.metadata]
    for f in sorted(own, key=lambda f: (f.kw_only, f.metadata[OPTION].is_general)):
        required = f.default is MISSING and f.default_factory is MISSING
        default = None if f.default is MISSING else f.default
        text = f.metadata[OPTION]
        row = Declared(f.name, types[f.name], str(f.type), default, required, text)
        rows.append(row)
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class ProgressOption:
    """The option of a verb that says what it does."""

    progress: Callable[[str], None] | None = field(
        default=None,
        metadata=option(
            "is called with the name of each step", python_only=True, is_general=True
        ),
    )

    def say(self, text: str) -> None:
        """Call `progress`, if there is one."""
        if self.progress is not None:
            self.progress(text)


def part(call: Any, options: type[_O]) -> _O:
    """Return the options of a verb that a smaller dataclass has."""
    names = [f.name for f in fields(options)]  # type: ignore[arg-type]
    return options(**{name: getattr(call, name) for name in names})


def takes(
    options: Callable[_P, _O],
) -> Callable[[Callable[[_O], _R]], Callable[_P, _R]]:
    """Return a decorator that gives a verb the fields of a dataclass as arguments.

    The verb is written as a function of an instance of the dataclass; its callers give
    the fields. A wrong type raises InputError.
    """

    def decorate(verb: Callable[[_O], _R]) -> Callable[_P, _R]:
        signature = inspect.signature(options)
        result = inspect.signature(verb).return_annotation

        @wraps(verb)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError as e:
                unknown = [k for k in kwargs if k not in signature.parameters]
                guess = (
                    did_you_mean(unknown[0], signature.parameters) if unknown else ""
                )
                raise InputError(
                    f"{verb.__name__}: {e}{guess}",
                    hint=f"see help(edgec.{verb.__name__})",
                ) from e
            for one in declared(options):
                if one.name in arguments:
                    _check_type(verb.__name__, one, arguments[one.name])
            return verb(options(*args, **kwargs))

        # help() and the manual read these; the verb itself has only `options`.
        call.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
        call.__doc__ = _documented(verb, options)
        call.options = options  # type: ignore[attr-defined]
        return call

    return decorate


def _check_type(verb: str, row: Declared, value: object) -> None:
    """Raise InputError unless the value of an option has its type."""
    # typeguard takes a tenth of a second to import, which only calls need.
    from typeguard import TypeCheckError, check_type

    # A str is a Sequence[str] for Python, but a person who gives one means one element.
    try:
        if isinstance(value, str) and get_origin(row.type) is Sequence:
            raise TypeCheckError("a text would be taken letter by letter")
        check_type(value, row.type)
    except TypeCheckError as e:
        # The other lines show where in a container; the value is in the message anyway.
        reason = str(e).splitlines()[0]
        raise InputError(
            f"{verb}({row.name}={value!r:.60}) is of a wrong type: {reason}",
            hint=f"give {row.name} as {row.annotation}; see help(edgec.{verb})",
        ) from e


def _documented(verb: Callable[..., Any], options: Any) -> str:
    """Return the docstring of a verb with its options as arguments."""
    lines = [inspect.getdoc(verb) or "", "", "Args:"]
    for one in declared(options):
        text = f"{one.name}: {python_help(one)}"
        lines.append(
            textwrap.fill(text, 84, initial_indent="    ", subsequent_indent="        ")
        )
    return "\n".join(lines)


def flags_of(row: Declared) -> tuple[str, ...]:
    """Return the names of an option on the command line."""
    return row.text.flags or (f"--{row.name.replace('_', '-')}",)


def python_help(row: Declared) -> str:
    """Return the explanation of an option with the names that options have in Python."""
    # "--float-ops" is `float_ops` in Python; a dash inside a word is none of an option.
    return row.text.python or re.sub(
        r"(?<!\w)--([a-z][\w-]*)",
        lambda match: match[1].replace("-", "_"),
        row.text.help,
    )
