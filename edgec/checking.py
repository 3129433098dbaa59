"""Checks the types of arguments of the Python API.

A wrong type ends as an error of edgec, not as whatever would break first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from edgec.errors import InputError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def checked(fn: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function, raising InputError for an argument of a wrong type.

    The annotations of its parameters are evaluated in its module at the first call; the
    result is not checked.
    """
    signature = inspect.signature(fn)
    hints: dict[str, Any] = {}

    @wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        # At the first call: the names in annotations are imported for type checkers only
        # until then, and most verbs of a program are never called.
        if not hints:
            names = inspect.unwrap(fn).__globals__
            for p in signature.parameters.values():
                hints[p.name] = eval(p.annotation, names)

        for name, value in signature.bind(*args, **kwargs).arguments.items():
            parameter = signature.parameters[name]
            # The annotation of `**named` is that of each of its values.
            named = parameter.kind is inspect.Parameter.VAR_KEYWORD
            for key, one in (value if named else {name: value}).items():
                check_argument(fn.__name__, key, one, hints[name], parameter.annotation)
        return fn(*args, **kwargs)

    return call


def check_argument(
    function: str, name: str, value: object, hint: Any, annotation: str
) -> None:
    """Raise InputError unless a value has a type.

    function: name of the function whose argument it is. hint: the type. annotation: the
    type as its module writes it.
    """
    # typeguard takes a tenth of a second to import, which only calls need.
    from typeguard import TypeCheckError, check_type

    # A str is a Sequence[str] for Python, but a person who gives one means one element.
    try:
        if isinstance(value, str) and hint == Sequence[str]:
            raise TypeCheckError("a text would be taken letter by letter")
        check_type(value, hint)
    except TypeCheckError as e:
        # The other lines show where in a container; the value is in the message anyway.
        reason = str(e).splitlines()[0]
        what = f"{function}({name}={value!r:.60}) is of a wrong type: {reason}"
        hint_text = f"give {name} as {annotation}; see help(edgec.{function})"
        raise InputError(what, hint=hint_text) from e
