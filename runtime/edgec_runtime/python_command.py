"""How this Python is started again, for a process that may crash or be ended."""

from __future__ import annotations

import sys
from typing import List


def isolated_python() -> List[str]:
    """Return the first words of a command: without the environment and the user's packages.

    It writes byte code where this process does: on a device, a file more in the folder
    of a wheel is taken for damage.
    """
    quiet = ["-B"] if sys.dont_write_bytecode else []
    return [sys.executable or "python3", "-I", *quiet]
