"""Serves a bundle on a device: python -m edgec_runtime.serve BUNDLE --zmq ADDRESS …"""

from __future__ import annotations

import sys

from ..device_end.printable import printable
from ..errors import EdgecError
from .command_line import parser
from .service import Ending, ServeSettings, serve


def main() -> int:
    """Serve until a signal; return the exit code, 0 or that of an error."""
    options = parser()
    options.add_argument("bundle")
    given = vars(options.parse_args())
    bundle = given.pop("bundle")
    try:
        with Ending() as ending:
            serve(bundle, ServeSettings(**given), _say, ending)
    except EdgecError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    return 0


def _say(text: str) -> None:
    print(printable(text), flush=True)


if __name__ == "__main__":
    sys.exit(main())
