"""The benches that edgec.toml asks for, so that a CI system calls `edgec bench` and
nothing else.

    [[bench]]
    bundle = "cartoon.edgec"            # paths are relative to edgec.toml
    on = "attic"                        # a name of [devices], or a URL
    budgets = ["p95<=33ms", "rss<=80MB"]
    compare = "bench/attic.json"
    max-regress = "5%"

The keys are the options of `edgec bench`, which are the fields of request.Bench.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from edgec_devices.device import link_module
from edgec_devices.listing import resolve
from edgec_devices.there import CONFIG, read_config
from edgec_runtime import Bundle
from msgspec import Meta, convert

from edgec.benching.figures import parse_budgets
from edgec.benching.request import Bench, share
from edgec.errors import BundleError, EdgecError, InputError, did_you_mean

_TABLES = ("bench", "devices")
_T = TypeVar("_T")


def benches(
    folder: Path, bundle: Path | None = None, on: str | None = None
) -> list[Bench]:
    """What edgec.toml of a folder asks for, in its order; an empty list where there is
    no such file or no such entry.

    bundle: only entries of this one: those that name the file; else those of the same
    model for the same target, with this file in place of theirs; or, if there is no
    such file, those of a model of that name. on: only those on this device, a URL or a
    name of [devices]. Raises InputError or UnsupportedError with the entry for whatever
    is wrong in any of them; bundles and budgets are looked at in those that are
    returned.
    """
    found = _entries(folder)
    if on is not None:
        wanted = _place(resolve(on, folder))
        found = [e for e in found if _place(e.bench.on) == wanted]
    if bundle is not None:
        found = _of_bundle(found, bundle)
    for entry in found:
        entry.check()
    return [entry.bench for entry in found]


@dataclass(frozen=True)
class _Entry:
    """at: the file and the entry, for messages."""

    at: str
    bench: Bench

    def model(self) -> tuple[str, str] | None:
        """Name and target of its bundle; None where there is none yet."""
        return self._opened(_model) if self.bench.bundle.is_file() else None

    def check(self) -> None:
        """That its bundle can be read, has code for its threads, and its budgets are of
        figures that it could have. Raises InputError.
        """
        path = self.bench.bundle
        if not path.is_file():
            raise InputError(
                f"there is no bundle {path}",
                at=self.at,
                hint=f"edgec compile MODEL -o {path}",
            )
        self._opened(self._fits)

    def _fits(self, opened: Bundle) -> None:
        opened.manifest.check_threads(self.bench.threads, self.at)
        parse_budgets(self.bench.budgets, opened, self.at, self.bench.streams > 0)

    def _opened(self, call: Callable[[Bundle], _T]) -> _T:
        try:
            with Bundle.open(self.bench.bundle) as opened:
                return call(opened)
        except BundleError as e:
            raise InputError(
                f"{self.bench.bundle}: {e.what}", at=self.at, hint=e.hint
            ) from e


def _entries(folder: Path) -> list[_Entry]:
    path = folder / CONFIG
    table = read_config(folder)
    for name in table:
        if name not in _TABLES:
            what = f"there is no table [{name}]{did_you_mean(name, _TABLES)}"
            raise InputError(what, at=str(path), hint="write [[bench]] or [devices]")
    try:
        rows = convert(table.get("bench", []), list[dict[str, Any]])
    except ValueError as e:
        what = "bench is not a list of tables"
        hint = "write [[bench]], with two brackets"
        raise InputError(what, at=str(path), hint=hint) from e
    return [
        _entry(row, f"{path}, [[bench]] {i}", folder) for i, row in enumerate(rows, 1)
    ]


def _entry(row: Mapping[str, Any], at: str, folder: Path) -> _Entry:
    hints = {
        f.name.replace("_", "-"): (f.name, get_type_hints(Bench)[f.name])
        for f in fields(Bench)
    }
    for key in row:
        if key not in hints:
            what = f"there is no key {key}{did_you_mean(key, hints)}"
            raise InputError(what, at=at, hint=f"keys: {', '.join(hints)}")
    if "bundle" not in row:
        raise InputError(
            "it has no bundle", at=at, hint='for example: bundle = "cartoon.edgec"'
        )
    values = {}
    for key, value in row.items():
        field, hint = hints[key]
        values[field] = _read(key, hint, value, at, folder)
    try:
        return _Entry(f"{at} ({row['bundle']})", Bench(**values))
    except EdgecError as e:
        raise type(e)(e.what, at=at, hint=e.hint) from e


def _read(key: str, hint: Any, value: Any, at: str, folder: Path) -> Any:
    """A value of TOML as the field's type."""
    kind = next(k for k in _FORMS if hint in (k, k | None))
    form, words = _FORMS[kind]
    try:
        found = convert(value, form | str if key == "max-regress" else form)
    except ValueError as e:
        raise InputError(
            f"{key} = {value!r:.60} is not {words}", at=at, hint=f"give {words}"
        ) from e
    if key == "max-regress":
        return _located(key, value, share, at)
    if key == "on":
        return _located(key, value, lambda name: resolve(name, folder), at)
    return folder / found if kind is Path else found


# TOML's own range; Python reads larger ones
_WHOLE = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_FORMS: Mapping[Any, tuple[Any, str]] = {
    Path: (
        Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*\Z")],
        "a path in quotes",
    ),
    str: (str, "a text in quotes"),
    tuple[str, ...]: (tuple[str, ...], 'a list of texts, for example ["p95<=33ms"]'),
    bool: (bool, "true or false"),
    int: (_WHOLE, "a whole number"),
    float: (_WHOLE | float, "a number"),
}
"""By the type of a field: that of TOML's value, and what it should be in words."""


def _located(key: str, value: Any, read: Callable[[Any], Any], at: str) -> Any:
    """What `read` makes of a value; its errors name the entry instead of the value's
    own place.
    """
    try:
        return read(value)
    except InputError as e:
        what = e.what if str(value) in e.what else f"{key} = {value!r}: {e.what}"
        raise InputError(what, at=at, hint=e.hint) from e


def _place(url: str) -> tuple[str, str]:
    """What tells devices apart: "local" and "local:" are one."""
    kind, _, rest = link_module(url)
    return kind, rest


def _of_bundle(entries: Sequence[_Entry], bundle: Path) -> list[_Entry]:
    same = [e for e in entries if e.bench.bundle.resolve() == bundle.resolve()]
    if same:
        return same
    if bundle.is_file():
        with Bundle.open(bundle) as opened:
            wanted = _model(opened)
        return [
            replace(e, bench=replace(e.bench, bundle=bundle))
            for e in entries
            if e.model() == wanted
        ]
    return [
        e
        for e in entries
        if (model := e.model()) is not None and model[0] == str(bundle)
    ]


def _model(opened: Bundle) -> tuple[str, str]:
    return opened.manifest.name, opened.manifest.target
