"""The benches that edgec.toml asks for, so that a CI system calls `edgec bench` and nothing else.

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
from typing import Any, TypeVar, get_type_hints

from edgec_devices.device import link_module
from edgec_devices.listing import resolve
from edgec_devices.there import CONFIG, read_config
from edgec_runtime import Bundle

from edgec.benching.figures import parse_budgets
from edgec.benching.request import Bench, share
from edgec.errors import BundleError, EdgecError, InputError, did_you_mean

_TABLES = ("bench", "devices")
_T = TypeVar("_T")


def benches(folder: Path, bundle: Path | None = None, on: str | None = None) -> list[Bench]:
    """What edgec.toml of a folder asks for, in its order; an empty list where there is no such file or no such entry.

    bundle: only entries of this one: those that name the file; else those of the same model for the same target, with
    this file in place of theirs; or, if there is no such file, those of a model of that name. on: only those on this
    device, a URL or a name of [devices]. Raises InputError or UnsupportedError with the entry for whatever is wrong in
    any of them; bundles and budgets are looked at in those that are returned.
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
        """That its bundle can be read, has code for its threads, and its budgets are of figures that it could have.
        Raises InputError."""
        path = self.bench.bundle
        if not path.is_file():
            raise InputError(f"there is no bundle {path}", at=self.at, hint=f"edgec compile MODEL -o {path}")
        self._opened(self._fits)

    def _fits(self, opened: Bundle) -> None:
        opened.manifest.check_threads(self.bench.threads, self.at)
        parse_budgets(self.bench.budgets, opened, self.at)

    def _opened(self, call: Callable[[Bundle], _T]) -> _T:
        try:
            with Bundle.open(self.bench.bundle) as opened:
                return call(opened)
        except BundleError as e:
            raise InputError(f"{self.bench.bundle}: {e.what}", at=self.at, hint=e.hint) from e


def _entries(folder: Path) -> list[_Entry]:
    path = folder / CONFIG
    table = read_config(folder)
    for name in table:
        if name not in _TABLES:
            what = f"there is no table [{name}]{did_you_mean(name, _TABLES)}"
            raise InputError(what, at=str(path), hint="write [[bench]] or [devices]")
    rows = table.get("bench", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("bench is not a list of tables", at=str(path), hint="write [[bench]], with two brackets")
    return [_entry(row, f"{path}, [[bench]] {i}", folder) for i, row in enumerate(rows, 1)]


def _entry(row: Mapping[str, Any], at: str, folder: Path) -> _Entry:
    hints = {f.name.replace("_", "-"): (f.name, get_type_hints(Bench)[f.name]) for f in fields(Bench)}
    for key in row:
        if key not in hints:
            what = f"there is no key {key}{did_you_mean(key, hints)}"
            raise InputError(what, at=at, hint=f"keys: {', '.join(hints)}")
    if "bundle" not in row:
        raise InputError("it has no bundle", at=at, hint='for example: bundle = "cartoon.edgec"')
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
    if key == "max-regress" and (_is_whole(value) or isinstance(value, float | str)):
        return _located(key, value, share, at)
    if key == "on" and isinstance(value, str):
        return _located(key, value, lambda name: resolve(name, folder), at)
    for kind, (test, words, make) in _FORMS.items():
        if hint == kind or hint == kind | None:
            if not test(value):
                raise InputError(f"{key} = {value!r:.60} is not {words}", at=at, hint=f"give {words}")
            return folder / value if kind is Path else make(value)
    raise AssertionError(f"{key} is of type {hint}, which nobody reads")


def _is_whole(value: Any) -> bool:
    """TOML's own range; Python reads larger ones, which no float holds."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


_FORMS: Mapping[Any, tuple[Callable[[Any], bool], str, Callable[[Any], Any]]] = {
    Path: (lambda v: isinstance(v, str) and v != "" and "\0" not in v, "a path in quotes", Path),
    str: (lambda v: isinstance(v, str), "a text in quotes", str),
    tuple[str, ...]: (_is_strings, 'a list of texts, for example ["p95<=33ms"]', tuple),
    bool: (lambda v: isinstance(v, bool), "true or false", bool),
    int: (_is_whole, "a whole number", int),
    float: (lambda v: _is_whole(v) or isinstance(v, float), "a number", float),
}
"""By the type of a field: whether a value of TOML is one, what it should be in words, and the field's value."""


def _located(key: str, value: Any, read: Callable[[Any], Any], at: str) -> Any:
    """What `read` makes of a value; its errors name the entry instead of the value's own place."""
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
        return [replace(e, bench=replace(e.bench, bundle=bundle)) for e in entries if e.model() == wanted]
    return [e for e in entries if (model := e.model()) is not None and model[0] == str(bundle)]


def _model(opened: Bundle) -> tuple[str, str]:
    return opened.manifest.name, opened.manifest.target
