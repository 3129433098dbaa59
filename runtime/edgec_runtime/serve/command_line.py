"""The options of `python -m edgec_runtime.serve`, which a service has too."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import NoReturn, Sequence, Tuple

from ..device_end.printable import printable
from ..errors import DeviceError, EdgecError, InputError
from . import PLACES
from .service import ServeSettings

_LIBRARIES = (
    ("zmq", "zmq", "pyzmq"),
    ("deepstack", "PIL", "pillow"),
    ("mqtt", "paho.mqtt.enums", "paho-mqtt"),
)
"""For each option that offers something: a module that it needs, which versions of it
that are too old lack, and its project."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(
            f"the options of serve: {message}",
            hint="see python -m edgec_runtime.serve --help",
        )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the options, without the bundle."""
    made = _Parser(prog="python -m edgec_runtime.serve", allow_abbrev=False)
    made.add_argument("--zmq")
    made.add_argument("--deepstack")
    made.add_argument("--api-key", default="")
    made.add_argument("--mqtt")
    made.add_argument("--queue", dest="places", type=int, default=PLACES)
    made.add_argument("--threads", type=int, default=1)
    return made


def settings_of(words: Sequence[str]) -> ServeSettings:
    """Return the settings that options state; raises InputError for impossible ones."""
    settings = ServeSettings(**vars(parser().parse_args(list(words))))
    settings.check()
    return settings


def check_libraries(settings: ServeSettings) -> None:
    """Raise DeviceError if this Python lacks a library for what is offered."""
    for name, module, project in _LIBRARIES:
        if getattr(settings, name):
            try:
                importlib.import_module(module)
            except ImportError:
                raise DeviceError(
                    f"{project} is needed for --{name}, and is not there or too old",
                    hint=f"edgec flash --wheel {project}",
                ) from None


def check(words: Sequence[str]) -> Tuple[int, str]:
    """Return 0 and "" if a service with these options can start here, else the exit code
    and the error as text.
    """
    try:
        check_libraries(settings_of(words))
    except EdgecError as e:
        return e.exit_code, str(e)
    return 0, ""


if __name__ == "__main__":
    code, text = check(sys.argv[1:])
    print(printable(text), file=sys.stderr)
    sys.exit(code)
