"""The webcam on a device, as the device end starts it: python -m edgec_runtime.webcam
NAME=BUNDLE … [--source WHAT] …

What is to be known it says in lines of JSON on standard output: {"url"} of the page
once it is there, and at the end {"figures", "lines", "result"} or {"error"}.  It ends
when its standard input does, as with Ctrl-C.
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
    """Exit code 0, or an error's own."""
    options = _options()
    # whoever starts a background job turns it off
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _say(_shown(options))
    except EdgecError as e:
        kind = next((name for kind, name in _KINDS if isinstance(e, kind)), "device")
        _say(
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


def _shown(options: argparse.Namespace) -> Dict[str, Any]:
    watched = options.page is not None or options.virtual_camera is not None
    show = Show(
        open_source(options.source),
        dict(words.split("=", 1) for words in options.bundle),
        options.effect,
        options.smooth,
        WATCHED if watched else ONCE,
    )
    figures = play(
        show,
        _page(options.page),
        options.frames,
        lambda url: _say({"url": url}),
        virtual=options.virtual_camera,
    )
    lines, found = show.found()
    return {"figures": figures.as_dict(), "lines": lines, "result": found}


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
    if text is None:
        return None
    return (LOOPBACK, int(text)) if text.isdigit() else (text, 0)


def _say(what: Dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
