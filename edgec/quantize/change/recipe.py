"""Recipes: what quantization does, as data (docs/quantization.md).

Those of edgec are the files of recipes/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from edgec_devices.decoding import from_toml

from edgec.errors import InputError, did_you_mean
from edgec.quantize.change.state import RecipeStep
from edgec.quantize.change.steps import steps

FOLDER = Path(__file__).parent / "recipes"
ORDER = ("graph", "ranges", "precision", "weights", "biases")
"""What steps change, in the order in which they may: each is computed from those before
it.
"""

_NUMBERS = ("within_db", "slowdown", "worth_db", "enough_db")
_KEYS = {"name", "seed", *_NUMBERS, "candidate"}


@dataclass(frozen=True)
class Candidate:
    """One way to quantize: steps, one after the other."""

    name: str
    steps: tuple[RecipeStep, ...]

    @property
    def rewrites(self) -> tuple[RecipeStep, ...]:
        """The steps that make its float graph."""
        return tuple(s for s in self.steps if s.changes == "graph")

    def also(self, step: RecipeStep) -> Candidate:
        """With one more step, behind those that change what it changes, or something
        before that.
        """
        last = ORDER.index(step.changes)
        before = [s for s in self.steps if ORDER.index(s.changes) <= last]
        return replace(self, steps=(*before, step, *self.steps[len(before) :]))

    def to_json(self) -> dict[str, Any]:
        """As a recipe's file has it."""
        return {"name": self.name, "steps": [_written(s) for s in self.steps]}


@dataclass(frozen=True)
class Recipe:
    """How a float model becomes int8.

    Attributes:
        name: the name of the recipe.
        candidates: the way to quantize; where there are two, the first is the guard, a
            plain way that is kept where the other loses more on held-back samples.
        seed: the seed of what steps draw.
        within_db: how far below the guard the way may be, in dB.
        slowdown: how much more time, as a part of what int8 takes, may be spent on
            operations that stay in float.
        worth_db: what they must gain on held-back samples, in dB.
        enough_db: the signal-to-noise ratio that needs no operation in float, in dB.
    """

    name: str
    candidates: tuple[Candidate, ...]
    seed: int = 0
    within_db: float = 0.3
    slowdown: float = 0.0
    worth_db: float = 1.0
    enough_db: float = 30.0

    @property
    def candidate(self) -> Candidate:
        """The way to quantize."""
        return self.candidates[-1]

    @property
    def guard(self) -> Candidate | None:
        """The plain way that is kept where the other one is worse, if there is one."""
        return self.candidates[0] if len(self.candidates) > 1 else None

    def with_candidate(self, candidate: Candidate) -> Recipe:
        """Return the recipe with another way to quantize, and the same guard."""
        return replace(self, candidates=(*self.candidates[:-1], candidate))

    def to_json(self) -> dict[str, Any]:
        """As a file has it: `Recipe.of` reads it back."""
        return {
            "name": self.name,
            "seed": self.seed,
            **{key: getattr(self, key) for key in _NUMBERS},
            "candidate": [c.to_json() for c in self.candidates],
        }

    @classmethod
    def load(cls, name: str) -> Recipe:
        """Of a name ("fast", "best") or a .toml file.

        Raises InputError where it is none, or says what none can.
        """
        path = recipe_file(name) or FOLDER / f"{name}.toml"
        if not path.is_file():
            known = sorted(p.stem for p in FOLDER.glob("*.toml"))
            what = f"there is no recipe {name}{did_you_mean(name, known)}"
            raise InputError(
                what, "--quantize", f"give one of {', '.join(known)}, or a .toml file"
            )
        try:
            return cls.of(
                from_toml(path, dict[str, Any], "see docs/quantization.md"), path.stem
            )
        except (OSError, ValueError) as e:
            raise InputError(
                f"the recipe cannot be read: {e}", str(path), "see docs/quantization.md"
            ) from e

    @classmethod
    def of(cls, given: Mapping[str, Any], name: str) -> Recipe:
        """A decoded file. Raises ValueError for what it cannot be."""
        if unknown := given.keys() - _KEYS:
            raise ValueError(f'"{min(unknown)}" is none of {", ".join(sorted(_KEYS))}')
        rows = given.get("candidate")
        if not isinstance(rows, list) or not rows:
            raise ValueError("it has no [[candidate]]")
        found = tuple(_candidate(row) for row in rows)
        if len(found) > 2:
            raise ValueError(
                f"it has {len(found)} candidates; a recipe has one, or a plain one that "
                "guards against losses and the one to use"
            )
        names = [c.name for c in found]
        if twice := [n for n in names if names.count(n) > 1]:
            raise ValueError(f'two candidates are named "{twice[0]}"')
        seed = given.get("seed", 0)
        numbers = (_number(key, given.get(key, getattr(cls, key))) for key in _NUMBERS)
        if type(seed) is not int or seed < 0:
            raise ValueError(f'"seed" is {seed!r}, not an integer of at least 0')
        return cls(str(given.get("name", name)), found, seed, *numbers)


def recipe_file(name: str) -> Path | None:
    """The file of a recipe that is none of edgec's own."""
    return Path(name) if name.endswith(".toml") else None


def _candidate(row: object) -> Candidate:
    if (
        not isinstance(row, dict)
        or row.keys() != {"name", "steps"}
        or not isinstance(row["steps"], list)
    ):
        raise ValueError(f'a [[candidate]] has "name" and "steps", not {row!r}')
    made = tuple(_step(s) for s in row["steps"])
    places = [ORDER.index(s.changes) for s in made]
    if places != sorted(places):
        raise ValueError(
            f"{row['name']}: steps must change {', then '.join(ORDER)}; "
            f"{_order(made)} do not"
        )
    if "ranges" not in {s.changes for s in made}:
        raise ValueError(f"{row['name']}: no step finds the ranges")
    return Candidate(str(row["name"]), made)


def _order(made: Sequence[RecipeStep]) -> str:
    return ", ".join(f"{s.name} ({s.changes})" for s in made)


def _step(given: object) -> RecipeStep:
    """A step of its name, or of {step = name, option = value, …}."""
    row = {"step": given} if isinstance(given, str) else given
    if not isinstance(row, dict) or not isinstance(row.get("step"), str):
        raise ValueError(f"a step is a name or {{step = name, …}}, not {given!r}")
    name = row["step"]
    options = {k: v for k, v in row.items() if k != "step"}
    known = steps()
    if name not in known:
        raise ValueError(
            f"there is no step {name}{did_you_mean(name, known)}; "
            f"there are {', '.join(known)}"
        )
    kinds = {f.name: type(f.default) for f in fields(known[name])}
    if unknown := options.keys() - kinds:
        raise ValueError(
            f'step {name} has no "{min(unknown)}"; '
            f"it has {', '.join(kinds) or 'no options'}"
        )
    return known[name](
        **{k: _option(f"{name}.{k}", v, kinds[k]) for k, v in options.items()}
    )


def _option(name: str, value: object, kind: type) -> object:
    if kind is float:
        return _number(name, value)
    if kind is tuple and isinstance(value, list):
        return tuple(value)
    if type(value) is not kind:
        raise ValueError(f'"{name}" is {value!r}, not of type {kind.__name__}')
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f'"{name}" is {value!r}, not a number of at least 0')
    return float(value)


def _written(step: RecipeStep) -> dict[str, Any]:
    """With all its options, so that a later version's defaults do not change what it
    says.
    """
    options = {f.name: getattr(step, f.name) for f in fields(step)}
    return {
        "step": step.name,
        **{k: list(v) if isinstance(v, tuple) else v for k, v in options.items()},
    }
