"""The steps that recipes are made of: one in each file, with its options as the fields
of a dataclass.

A step says what it may change ("graph", "ranges", "precision", "weights" or "biases");
whatever else it changes is an error. A new step is a file with a class STEP.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from edgec.quantize.change.state import RecipeStep


@cache
def steps() -> Mapping[str, type[RecipeStep]]:
    """All steps, by name."""
    found: dict[str, type[RecipeStep]] = {}
    for module in pkgutil.iter_modules(__path__):
        found[module.name] = importlib.import_module(f"{__name__}.{module.name}").STEP
    return found
