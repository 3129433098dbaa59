"""Is the stick at a USB port of a machine, a program: `SOCKET MARK FILE…`.

SOCKET is where QEMU listens for its device `usb-redir`; the program ends when QEMU does.
FILEs have the programs that the stick knows (sources.read_files). MARK is for whoever
ends the program (machine/processes.py). It prints "ready", or what is wrong with a file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgec_runtime import EdgecError

from edgec_devices.stick.redirection import plug_in
from edgec_devices.stick.sources import read_files
from edgec_devices.stick.stick import Stick


def main(socket: str, _mark: str, *files: str) -> int:
    """Return the exit status."""
    try:
        book = read_files([Path(file) for file in files])
    except EdgecError as e:
        print(e, flush=True)
        return 1
    with Stick.serve(book) as stick:
        plug_in(stick, Path(socket), lambda: print("ready", flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
