"""Serves a bundle on a device: python -m edgec_runtime.serve BUNDLE --zmq ADDRESS …"""

from __future__ import annotations

import argparse
import sys

from ..device_end.printable import printable
from ..errors import EdgecError
from . import PLACES
from .service import Ending, ServeSettings, serve


def main() -> int:
    """Serve until a signal; return the exit code, 0 or that of an error."""
    parser = argparse.ArgumentParser(prog="python -m edgec_runtime.serve")
    parser.add_argument("bundle")
    parser.add_argument("--zmq")
    parser.add_argument("--deepstack")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--mqtt")
    parser.add_argument("--queue", dest="places", type=int, default=PLACES)
    parser.add_argument("--threads", type=int, default=1)
    options = vars(parser.parse_args())
    bundle = options.pop("bundle")
    ending = Ending()
    ending.take_signals()
    try:
        serve(bundle, ServeSettings(**options), _say, ending)
    except EdgecError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    return 0


def _say(text: str) -> None:
    print(printable(text), flush=True)


if __name__ == "__main__":
    sys.exit(main())
