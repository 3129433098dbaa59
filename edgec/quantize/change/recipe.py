"""Recipes: how a float model is quantized, as data (docs/quantization.md).

edgec's own recipes are the files of recipes/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from edgec_devices.decoding import from_toml

from edgec.errors import InputError, did_you_mean
from edgec.quantize.change.state import RecipeStep
from edgec.quantize.change.steps import steps

RECIPE_FOLDER = Path(__file__).parent / "recipes"
CHANGE_ORDER = ("graph", "ranges", "precision", "weights", "biases")
"""The fields of `QuantizationState` that steps change, in the order in which they may.

Each is computed from those before it.
"""
_DOCS = "see docs/quantization.md"

_NUMBERS = ("within_db", "slowdown", "worth_db", "enough_db", "ample_db")
_KEYS = {"name", "seed", *_NUMBERS, "candidate"}
"""The keys of a recipe's file."""


@dataclass(frozen=True)
class Candidate:
    """Steps that make a float model int8, one after the other."""

    name: str
    steps: tuple[RecipeStep, ...]

    @property
    def rewrites(self) -> tuple[RecipeStep, ...]:
        """The steps that change the float graph."""
        return tuple(s for s in self.steps if s.changes == "graph")

    def with_step(self, step: RecipeStep) -> Candidate:
        """Return the candidate with one more step.

        It comes after all steps that change the same field or an earlier one.
        """
        last = CHANGE_ORDER.index(step.changes)

        # The steps are in this order already, so that `before` is a prefix.
        before = [s for s in self.steps if CHANGE_ORDER.index(s.changes) <= last]
        after = self.steps[len(before) :]

        return replace(self, steps=(*before, step, *after))

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as a recipe's file has it."""
        return {"name": self.name, "steps": [_step_to_json(s) for s in self.steps]}


@dataclass(frozen=True)
class Recipe:
    """How a float model becomes int8.

    Attributes:
        name: the name of the recipe.
        candidate: the steps to quantize by.
        guard: plain steps, which are kept where the candidate loses more on held-back
            samples; None: the candidate is kept in any case.
        seed: the seed of the random numbers of the steps.
        within_db: the most that the candidate may lose against the guard, in dB.
        slowdown: how much more time, as a part of what int8 takes, may be spent on
            operations that stay in float.
        worth_db: what they must gain on held-back samples, in dB.
        enough_db: the signal-to-noise ratio that needs no operation in float, in dB.
        ample_db: the signal-to-noise ratio of the guard at which nothing else is tried,
            in dB.
    """

    name: str
    candidate: Candidate
    guard: Candidate | None = None
    seed: int = 0
    within_db: float = 0.3
    slowdown: float = 0.0
    worth_db: float = 1.0
    enough_db: float = 30.0
    ample_db: float = 40.0

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The guard, if there is one, and the candidate."""
        return tuple(c for c in (self.guard, self.candidate) if c is not None)

    def changed(self, change: Callable[[Candidate], Candidate]) -> Recipe:
        """Return the recipe with the changed forms of its candidate and guard."""
        guard = None if self.guard is None else change(self.guard)
        return replace(self, candidate=change(self.candidate), guard=guard)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as a file has it: `Recipe.of` reads it back."""
        return {
            "name": self.name,
            "seed": self.seed,
            **{key: getattr(self, key) for key in _NUMBERS},
            "candidate": [c.to_json() for c in self.candidates],
        }

    @classmethod
    def load(cls, name: str) -> Recipe:
        """Return the recipe of a name ("fast", "best") or a .toml file.

        Raises InputError where there is no such recipe, or its file cannot be read.
        """
        # A name without .toml is never a file, even if there is one in this folder.
        path = recipe_file(name) or RECIPE_FOLDER / f"{name}.toml"
        if not path.is_file():
            known = sorted(p.stem for p in RECIPE_FOLDER.glob("*.toml"))
            what = f"there is no recipe {name}{did_you_mean(name, known)}"
            raise InputError(
                what, "--quantize", f"give one of {', '.join(known)}, or a .toml file"
            )

        try:
            decoded = from_toml(path, dict[str, Any], _DOCS)
            return cls.of(decoded, path.stem)
        except (OSError, ValueError) as e:
            raise InputError(f"the recipe cannot be read: {e}", str(path), _DOCS) from e

    @classmethod
    def of(cls, decoded: Mapping[str, Any], name: str) -> Recipe:
        """Return the recipe of a decoded file.

        name: the recipe's name, if the file has none.

        Raises ValueError for a key or a value that no recipe has.
        """
        if unknown := decoded.keys() - _KEYS:
            raise ValueError(
                f'"{min(unknown)}" is not one of {", ".join(sorted(_KEYS))}'
            )

        candidates = _candidates(decoded.get("candidate"))
        guard = candidates[0] if len(candidates) > 1 else None
        seed = decoded.get("seed", 0)
        # type(), since True is an instance of int.
        if type(seed) is not int or seed < 0:
            raise ValueError(f'"seed" is {seed!r}, not an integer of at least 0')

        numbers = {}
        for key in _NUMBERS:
            numbers[key] = _number(key, decoded.get(key, getattr(cls, key)))

        own_name = str(decoded.get("name", name))
        return cls(own_name, candidates[-1], guard, seed, **numbers)


def recipe_file(name: str) -> Path | None:
    """Return the file of a recipe, None for the name of one of edgec's own."""
    return Path(name) if name.endswith(".toml") else None


def _candidates(rows: object) -> tuple[Candidate, ...]:
    """Return the candidates of a file: one, or a guard and the one to use."""
    if not isinstance(rows, list) or not rows:
        raise ValueError("it has no [[candidate]]")

    candidates = tuple(_candidate(row) for row in rows)
    if len(candidates) > 2:
        raise ValueError(
            f"it has {len(candidates)} candidates; a recipe has one, or a plain one that "
            "guards against losses and the one to use"
        )

    names = [c.name for c in candidates]
    if repeated := [n for n in names if names.count(n) > 1]:
        raise ValueError(f'two candidates are named "{repeated[0]}"')

    return candidates


def _candidate(row: object) -> Candidate:
    if (
        not isinstance(row, dict)
        or row.keys() != {"name", "steps"}
        or not isinstance(row["steps"], list)
    ):
        raise ValueError(f'a [[candidate]] has "name" and "steps", not {row!r}')

    decoded = tuple(_step(s) for s in row["steps"])
    places = [CHANGE_ORDER.index(s.changes) for s in decoded]
    # A later change of an earlier field would make what was computed from it stale.
    if places != sorted(places):
        raise ValueError(
            f"{row['name']}: steps must change {', then '.join(CHANGE_ORDER)}; "
            f"{_order_text(decoded)} do not"
        )

    if "ranges" not in {s.changes for s in decoded}:
        raise ValueError(f"{row['name']}: no step finds the ranges")

    return Candidate(str(row["name"]), decoded)


def _order_text(decoded: Sequence[RecipeStep]) -> str:
    return ", ".join(f"{s.name} ({s.changes})" for s in decoded)


def _step(decoded: object) -> RecipeStep:
    """Return the step of a name, or of {step = name, option = value, …}."""
    # A name alone is short for a step with default options.
    row = {"step": decoded} if isinstance(decoded, str) else decoded
    if not isinstance(row, dict) or not isinstance(row.get("step"), str):
        raise ValueError(f"a step is a name or {{step = name, …}}, not {decoded!r}")

    name = row["step"]
    options = {k: v for k, v in row.items() if k != "step"}
    known = steps()
    if name not in known:
        raise ValueError(
            f"there is no step {name}{did_you_mean(name, known)}; "
            f"there are {', '.join(known)}"
        )

    return known[name](**_options(name, known[name], options))


def _options(
    name: str, step: type[RecipeStep], options: Mapping[str, object]
) -> dict[str, Any]:
    """Return the options of a step in the types that they have."""
    # The type of an option is that of its default.
    kinds = {f.name: type(f.default) for f in fields(step)}
    if unknown := options.keys() - kinds:
        raise ValueError(
            f'step {name} has no "{min(unknown)}"; '
            f"it has {', '.join(kinds) or 'no options'}"
        )

    return {k: _option(f"{name}.{k}", v, kinds[k]) for k, v in options.items()}


def _option(name: str, value: object, kind: type) -> object:
    """Return a step's option in the type that it has. name: for messages."""
    if kind is float:
        return _number(name, value)

    if kind is tuple and isinstance(value, list):
        return tuple(value)

    if type(value) is not kind:
        raise ValueError(f'"{name}" is {value!r}, not of type {kind.__name__}')

    return value


def _number(name: str, value: object) -> float:
    # `not value >= 0` refuses NaN too.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f'"{name}" is {value!r}, not a number of at least 0')
    return float(value)


def _step_to_json(step: RecipeStep) -> dict[str, Any]:
    """Return a step with all its options.

    Even those with the default value: the defaults of a later version do not change the
    meaning of a stored recipe then.
    """
    options: dict[str, Any] = {"step": step.name}
    for f in fields(step):
        value = getattr(step, f.name)
        options[f.name] = list(value) if isinstance(value, tuple) else value

    return options
