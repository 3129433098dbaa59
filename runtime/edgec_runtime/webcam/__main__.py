"""Runs the webcam on a device, for the device end: python -m edgec_runtime.webcam
NAME=BUNDLE … [--source SOURCE] …

It writes lines of JSON to standard output: {"url"} when the page is ready, and at the
end {"figures", "lines", "result"} or {"error"}.  It ends at the end of its standard
input, as with Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from typing import Any, Dict, Optional, Tuple

from ..errors import BundleError, DeviceError, EdgecError, InputError
from . import LOOPBACK
from .effects import OVERLAY
from .playing import play
from .show import ONCE, WATCHED, Show
from .sources import open_source

_KINDS = ((BundleError, "bundle"), (InputError, "input"), (DeviceError, "device"))


def main() -> int:
    """Run the webcam; return the exit code, 0 or that of an error."""
    options = _options()
    # A shell that starts a background job turns SIGINT off.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _print(_play(options))
    except EdgecError as e:
        kind = next((name for kind, name in _KINDS if isinstance(e, kind)), "device")
        _print(
            {
                "error": {
                    "kind": kind,
                    "what": e.what if e.at is None else f"{e.what} ({e.at})",
                    "hint": e.hint,
                }
            }
        )
        return e.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _play(options: argparse.Namespace) -> Dict[str, Any]:
    """Play the show; return the last line of JSON."""
    has_viewer = options.page is not None or options.virtual_camera is not None
    show = Show(
        open_source(options.source),
        dict(argument.split("=", 1) for argument in options.bundle),
        options.effect,
        options.smooth,
        WATCHED if has_viewer else ONCE,
    )
    figures = play(
        show,
        _page(options.page),
        options.frames,
        lambda url: _print({"url": url}),
        virtual=options.virtual_camera,
    )
    lines, result = show.found()
    return {"figures": figures.as_dict(), "lines": lines, "result": result}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m edgec_runtime.webcam")
    parser.add_argument("bundle", nargs="+", metavar="NAME=BUNDLE")
    parser.add_argument("--source")
    parser.add_argument("--effect", default=OVERLAY)
    parser.add_argument("--no-smooth", dest="smooth", action="store_false")
    parser.add_argument(
        "--page",
        help="a port of the loopback address, or the path of a socket that is made for it",
    )
    parser.add_argument("--frames", type=int)
    parser.add_argument("--virtual-camera")
    return parser.parse_args()


def _page(text: Optional[str]) -> Optional[Tuple[str, int]]:
    """Return host and port of the page; the host may be the path of a socket."""
    if text is None:
        return None
    return (LOOPBACK, int(text)) if text.isdigit() else (text, 0)


def _print(message: Dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def _end_with_input() -> None:
    """Interrupt this process at the end of its standard input."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
