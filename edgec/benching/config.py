"""Reads the benches of edgec.toml, so that a CI system only calls `edgec bench`.

    [[bench]]
    bundle = "cartoon.edgec"            # paths are relative to edgec.toml
    on = "attic"                        # a name of [devices], or a URL
    budgets = ["p95<=33ms", "rss<=80MB"]
    compare = "bench/attic.json"
    max-regress = "5%"

The keys are the options of `edgec bench`, which are the fields of BenchOptions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from edgec_devices.device import link_module
from edgec_devices.device_names import CONFIG, read_config
from edgec_devices.listing import resolve
from edgec_devices.options import FilePath
from edgec_runtime import Bundle
from msgspec import Meta, convert

from edgec.benching.figures import parse_budgets
from edgec.errors import BundleError, EdgecError, InputError, did_you_mean, shell_word
from edgec.options.bench import BenchOptions, share
from edgec.options.declaration import declared

TABLES = ("bench", "devices")
"""Tables that edgec.toml may have."""
_T = TypeVar("_T")


def benches(
    folder: Path, bundle: Path | None = None, on: str | None = None
) -> list[BenchOptions]:
    """Return the benches of a folder's edgec.toml in order; [] without a file or entry.

    Raises InputError or UnsupportedError, with the entry, for any error in any entry;
    bundles and budgets are checked only in the entries that are returned.

    Args:
        folder: the folder of edgec.toml
        bundle: only entries of this bundle. They are the entries that name the file;
            else those of the same model for the same target, with this file in place of
            theirs; or, if there is no such file, those of a model of that name
        on: only entries of this device, a URL or a name of [devices]
    """
    entries = _entries(folder)
    if on is not None:
        device = _device(resolve(on, folder))
        entries = [entry for entry in entries if _device(entry.bench.on) == device]
    if bundle is not None:
        entries = _of_bundle(entries, bundle)
    for entry in entries:
        entry.check()
    return [entry.bench for entry in entries]


@dataclass(frozen=True)
class _Entry:
    """An entry of edgec.toml.

    Attributes:
        at: the file and the entry, for messages
        bench: the bench
    """

    at: str
    bench: BenchOptions

    @property
    def path(self) -> Path:
        """The file of the bundle."""
        return Path(self.bench.bundle)

    def model(self) -> tuple[str, str] | None:
        """Return the name and target of the bundle, or None if there is no bundle."""
        if not self.path.is_file():
            return None
        return self._with_bundle(_model)

    def check(self) -> None:
        """Check the bundle, its code for the threads, and the budgets.

        Raises InputError.
        """
        path = self.path
        if not path.is_file():
            raise InputError(
                f"there is no bundle {path}",
                at=self.at,
                hint=f"edgec compile MODEL -o {shell_word(path)}",
            )
        self._with_bundle(self._check_fit)

    def _check_fit(self, bundle: Bundle) -> None:
        bundle.manifest.check_threads(self.bench.threads, self.at)
        streams = self.bench.streams > 0
        parse_budgets(self.bench.budgets, bundle, self.at, streams)

    def _with_bundle(self, function: Callable[[Bundle], _T]) -> _T:
        """Return the result of a function of the open bundle.

        Errors of the bundle name the entry.
        """
        path = self.path
        try:
            with Bundle.open(path) as bundle:
                return function(bundle)
        except BundleError as e:
            raise InputError(f"{path}: {e.what}", at=self.at, hint=e.hint) from e


def _entries(folder: Path) -> list[_Entry]:
    """Return all entries of a folder's edgec.toml."""
    path = folder / CONFIG
    tables = read_config(folder)
    for name in tables:
        # A misspelt table would otherwise be ignored.
        if name not in TABLES:
            message = f"there is no table [{name}]{did_you_mean(name, TABLES)}"
            raise InputError(message, at=str(path), hint="write [[bench]] or [devices]")

    try:
        rows = convert(tables.get("bench", []), list[dict[str, Any]])
    except ValueError as e:
        message = "bench is not a list of tables"
        hint = "write [[bench]], with two brackets"
        raise InputError(message, at=str(path), hint=hint) from e

    entries = []
    for number, row in enumerate(rows, 1):
        at = f"{path}, [[bench]] {number}"
        entries.append(_entry(row, at, folder))
    return entries


def _entry(row: Mapping[str, Any], at: str, folder: Path) -> _Entry:
    """Return the entry of a table; `at` is its place, for messages."""
    options = {
        one.name.replace("_", "-"): one
        for one in declared(BenchOptions)
        if not one.text.python_only
    }
    for key in row:
        if key not in options:
            message = f"there is no key {key}{did_you_mean(key, options)}"
            raise InputError(message, at=at, hint=f"keys: {', '.join(options)}")
    if "bundle" not in row:
        raise InputError(
            "it has no bundle", at=at, hint='for example: bundle = "cartoon.edgec"'
        )

    # Paths and names are those of the folder of edgec.toml, wherever edgec is started.
    values = {}
    for key, value in row.items():
        one = options[key]
        values[one.name] = _read(key, one.type, value, at, folder)
    try:
        bench = BenchOptions(**values)
    except EdgecError as e:
        raise type(e)(e.what, at=at, hint=e.hint) from e
    return _Entry(f"{at} ({row['bundle']})", bench)


def _read(key: str, hint: Any, value: Any, at: str, folder: Path) -> Any:
    """Return a value of TOML as the type of a field, which is `hint`."""
    field_type = next(t for t in _FORMS if hint in (t, t | None))
    form, words = _FORMS[field_type]
    # A share may be a number or a text with "%".
    if key == "max-regress":
        form = form | str
    try:
        converted = convert(value, form)
    except ValueError as e:
        raise InputError(
            f"{key} = {value!r:.60} is not {words}", at=at, hint=f"give {words}"
        ) from e

    if key == "max-regress":
        return _located(key, value, share, at)
    if key == "on":
        return _located(key, value, lambda name: resolve(name, folder), at)
    if field_type == FilePath:
        return folder / converted
    return converted


_TOML_INT = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""The range of TOML's integers; Python's parser reads larger ones."""
_FORMS: Mapping[Any, tuple[Any, str]] = {
    FilePath: (
        Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*\Z")],
        "a path in quotes",
    ),
    str: (str, "a text in quotes"),
    Sequence[str]: (tuple[str, ...], 'a list of texts, for example ["p95<=33ms"]'),
    bool: (bool, "true or false"),
    int: (_TOML_INT, "a whole number"),
    float: (_TOML_INT | float, "a number"),
}
"""By the type of a field: the type of TOML's value, and its description."""


def _located(key: str, value: Any, read: Callable[[Any], Any], at: str) -> Any:
    """Return `read(value)`; its errors name the entry."""
    try:
        return read(value)
    except InputError as e:
        message = e.what
        if str(value) not in message:
            message = f"{key} = {value!r}: {message}"
        raise InputError(message, at=at, hint=e.hint) from e


def _device(url: str) -> tuple[str, str]:
    """Return the identity of a device: "local" and "local:" are the same."""
    # The link of a URL knows its parts; a text comparison would miss equal ones.
    kind, _, address = link_module(url)
    return kind, address


def _of_bundle(entries: Sequence[_Entry], bundle: Path) -> list[_Entry]:
    """Return the entries of a bundle, see `benches`."""
    path = bundle.resolve()
    # The same file may be named by different paths.
    same_file = [e for e in entries if e.path.resolve() == path]
    if same_file:
        return same_file

    if bundle.is_file():
        with Bundle.open(bundle) as opened:
            # The bundle was compiled to another file: the entries of its model are meant.
            model = _model(opened)
        same_model = []
        for entry in entries:
            if entry.model() == model:
                bench = replace(entry.bench, bundle=bundle)
                same_model.append(replace(entry, bench=bench))
        return same_model

    # No file of that path: it may be the name of a model, as reports show it.
    same_name = []
    for entry in entries:
        entry_model = entry.model()
        if entry_model is not None and entry_model[0] == str(bundle):
            same_name.append(entry)
    return same_name


def _model(bundle: Bundle) -> tuple[str, str]:
    """Return the name and target of a bundle."""
    return bundle.manifest.name, bundle.manifest.target
