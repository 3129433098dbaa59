"""Wrong types in calls of the Python API end as errors of edgec, not as whatever breaks
first.
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
    """The function, raising InputError for an argument that is not of its annotated
    type.

    The annotations of its parameters are read in its module when it is called first;
    what it returns is not checked.
    """
    signature = inspect.signature(fn)
    hints = dict[str, Any]()

    @wraps(fn)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        from typeguard import TypeCheckError, check_type

        if not hints:
            names = inspect.unwrap(fn).__globals__
            hints.update(
                {
                    p.name: eval(p.annotation, names)
                    for p in signature.parameters.values()
                }
            )
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            try:
                if isinstance(value, str) and hints[name] == Sequence[str]:
                    raise TypeCheckError("a text would be taken letter by letter")
                check_type(value, hints[name])
            except TypeCheckError as e:
                what = (
                    f"{fn.__name__}({name}={value!r:.60}) is of a wrong type: "
                    f"{str(e).splitlines()[0]}"
                )
                wanted = signature.parameters[name].annotation
                raise InputError(
                    what, hint=f"give {name} as {wanted}; see help(edgec.{fn.__name__})"
                ) from e
        return fn(*args, **kwargs)

    return call
