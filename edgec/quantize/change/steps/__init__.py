"""The steps that recipes consist of.

Each is one file with a dataclass `STEP`, whose fields are the step's options. A step
names the field of `QuantizationState` that it may change ("graph", "ranges",
"precision", "weights" or "biases"); a change of any other is an error.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from edgec.quantize.change.state import RecipeStep


@cache
def steps() -> Mapping[str, type[RecipeStep]]:
    """Return all steps, by name."""
    # A new step needs no list: its file is enough.
    by_name: dict[str, type[RecipeStep]] = {}
    for module in pkgutil.iter_modules(__path__):
        name = f"{__name__}.{module.name}"
        by_name[module.name] = importlib.import_module(name).STEP

    return by_name
