"""How every guest runs its network: twice before picycles' marks, so that what is set up
once is not counted and the caches are warm, and once between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from picycles_guest import begin, end, warm

Result = TypeVar("Result")


def counted(run: Callable[[], Result]) -> Result:
    """Return the result of the run that is counted."""
    run()
    warm()
    run()
    begin()
    result = run()
    end()
    return result
