"""The steps that recipes are made of: one in each file, with its options as the fields of a dataclass.

A step says what it may change ("graph", "ranges", "precision", "weights" or "biases"); whatever else it changes is an
error. A new step is a file with a class STEP.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from edgec.quantize.work import Work


class Step(Protocol):
    """One step. name: in recipes; that of its file. changes: the one part of `Work` that it may change."""

    name: ClassVar[str]
    changes: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def run(self, work: Work) -> None:
        """Do it, on calibration samples alone."""


@cache
def steps() -> Mapping[str, type[Step]]:
    """All steps, by name."""
    found: dict[str, type[Step]] = {}
    for module in pkgutil.iter_modules(__path__):
        found[module.name] = importlib.import_module(f"{__name__}.{module.name}").STEP
    return found
