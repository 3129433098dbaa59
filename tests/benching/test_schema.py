"""The published schema: takes every report, refuses damaged ones, and says what the
dataclasses say.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from edgec_runtime import Summary

from edgec.benching.result import SCHEMA, BenchReport, Series
from tests.benching.example import EXAMPLES, SETTINGS, measured

jsonschema = pytest.importorskip(
    "jsonschema", reason="no jsonschema: pip install -e .[dev]"
)

FORM: Mapping[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs/bench.schema.json").read_text()
)


def validator() -> Any:
    return jsonschema.Draft202012Validator(
        FORM, format_checker=jsonschema.FormatChecker()
    )


def as_read(report: BenchReport) -> Any:
    return json.loads(json.dumps(report.to_json()))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(FORM)
    assert FORM["properties"]["schema"]["const"] == SCHEMA


@pytest.mark.parametrize("name", EXAMPLES)
def test_takes_every_report(name: str) -> None:
    assert [e.message for e in validator().iter_errors(as_read(EXAMPLES[name]()))] == []


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {"hostile"}))
def test_a_report_that_was_read_back_is_the_same(name: str, tmp_path: Path) -> None:
    report = EXAMPLES[name]()
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report.to_json()))
    assert BenchReport.load_file(path) == report


def _set(*path: str | int, to: Any) -> Callable[[Any], None]:
    def damage(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = to

    return damage


DAMAGES: Mapping[str, Callable[[Any], None]] = {
    "another schema": _set("schema", to=2),
    "a key that nobody knows": _set("latency", "p50", to=1.0),
    "no latency": lambda data: data.pop("latency"),
    "a time as text": _set("load", "ms", to=["31 ms"]),
    "a time below zero": _set("segments", 0, "latency", "rounds", to=[[-1.0]]),
    "an estimate that does not say so": lambda data: data["latency"].pop("estimated"),
    "no such place": _set("segments", 1, "place", to="gpu"),
    "no such verdict": _set("comparison", "verdict", to="maybe"),
    "a part that the cost model does not have": _set(
        "segments", 1, "parts", to={"cache": 1.0}
    ),
    "no hash": _set("bundle_sha256", to="5e"),
    "a size that is not whole": _set("memory", "code", to=0.5),
    "a word for yes": _set("vitals", "throttled", to="yes"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_refuses(what: str) -> None:
    data = as_read(measured())
    damaged = copy.deepcopy(data)
    DAMAGES[what](damaged)
    assert validator().is_valid(data)
    assert not validator().is_valid(damaged)


# ---- schema and dataclasses


def _forms(
    kind: Any, form: Mapping[str, Any], at: str
) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Every dataclass below a type, with the object that the schema has at its place."""
    if "$ref" in form:
        form = FORM["$defs"][form["$ref"].rpartition("/")[2]]
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        inner = next(a for a in get_args(kind) if a is not type(None))
        if "anyOf" in form:
            assert {"type": "null"} in form["anyOf"], at
            yield from _forms(inner, form["anyOf"][0], at)
        else:
            assert "null" in form["type"], at
    elif origin is tuple:
        assert form["type"] == "array", at
        yield from _forms(get_args(kind)[0], form["items"], f"{at}[]")
    elif is_dataclass(kind):
        yield at, kind, form
        hints = get_type_hints(kind)
        for f in fields(kind):
            yield from _forms(
                hints[f.name], form["properties"][f.name], f"{at}.{f.name}"
            )
    else:
        plain = {float: "number", int: "integer", str: "string", bool: "boolean"}.get(
            kind
        )
        assert plain is None or form.get("type", plain) == plain, at


def test_schema_and_dataclasses_have_the_same_fields() -> None:
    seen = set()
    for at, kind, form in _forms(BenchReport, FORM, "report"):
        names = {f.name for f in fields(kind)} | (
            {"summary", "interval"} if kind is Series else set()
        )
        assert set(form["properties"]) == names, at
        assert set(form["required"]) == names, at
        assert form["additionalProperties"] is False, at
        assert all("description" in p for p in form["properties"].values()), at
        seen.add(kind.__name__)
    assert {
        "BenchReport",
        "Series",
        "OpReport",
        "Throttling",
        "Check",
        "Compared",
        "MemoryUse",
        "OncePerLaunch",
    } <= seen
    assert set(FORM["$defs"]["summary"]["properties"]) == {
        f.name for f in fields(Summary)
    }
    assert set(FORM["$defs"]["settings"]["properties"]) == set(SETTINGS)
