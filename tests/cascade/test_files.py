"""cascade.toml and a cascade's manifest: each fault is one error with a place and a
hint, before anything is compiled or loaded.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edgec_runtime import Bundle, BundleError, InputError, Session, write_bundle
from edgec_runtime.bundle.manifest import check_manifest
from edgec_runtime.cascade.parameters import (
    CropRule,
    cascade_json,
    parse_cascade,
)

import edgec
from edgec.errors import EdgecError
from edgec.frontends.cascade_file import read_cascade
from tests.cascade import objects

FAULTS: dict[str, tuple[str, str, str]] = {
    "unknown key": ("objects = 2", "object = 2", 'has no "object"; did you mean'),
    "no name": ('name = "thing"', "", 'lacks "name"'),
    "bad name": ('name = "thing"', 'name = "../x"', "is '../x'"),
    "name twice": ('name = "mirror"', 'name = "discs"', "two networks"),
    "no model": ('model = "points.onnx"', "", '"discs" has no model'),
    "like nobody": ('like = "discs"', 'like = "dics"', 'did you mean "discs"'),
    "like and task": ('like = "discs"', 'like = "discs"\ntask = "pose"', "has task"),
    "after nobody": ('after = "thing"', 'after = "nobody"', "no earlier network"),
    "after a later one": ('after = "thing"', 'after = "mirror"', "no earlier network"),
    "no after": ('after = "thing"', "", 'lacks "after"'),
    "one point": ("turn = [1, 0]", "turn = [1]", "turn has 1 points"),
    "a circle of one": (
        "points = [0, 1]\ncircle",
        "points = [0]\ncircle",
        "circle has 1",
    ),
    "negative point": ("turn = [1, 0]", "turn = [-1, 0]", "not at least 0"),
    "no scale": ("scale = 3", "scale = 0", "not at least 0.1"),
    "text for a number": ("scale = 3", 'scale = "3"', "not a number"),
    "infinite": ("scale = 3", "scale = inf", "not a number"),
    "typing error": ("mirrored", "miror", 'did you mean "mirrored"'),
    "too many objects": ("objects = 2", "objects = 1000", "at most 32"),
    "no integer": ("every = 10", "every = 1.5", "not an integer"),
    "not TOML": ("objects = 2", "objects = = 2", "cannot read cascade.toml"),
    "a list": ("[networks.again]", "[[networks.again]]", "is not an object"),
}
"""A text of the file, a text in its place, and a part of the message."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_file_is_one_error(tmp_path: Path, fault: str) -> None:
    old, new, message = FAULTS[fault]
    file = objects.write(tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as raised:
        edgec.compile(file, output=tmp_path / "x.edgec")
    assert message in str(raised.value)
    assert str(file) in str(raised.value)
    assert raised.value.hint
    assert not (tmp_path / "x.edgec").exists()


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"no such file: nowhere\.toml"):
        edgec.compile("nowhere.toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "pose"}, "task is for one network"),
        ({"preprocess": "0_1"}, "preprocess is for one network"),
        ({"edgetpu_compiler": "folder:x"}, "a folder for edgetpu_compiler"),
    ],
)
def test_options_of_one_network(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        edgec.compile(objects.write(tmp_path), **options)


def test_an_error_of_a_network_names_it(tmp_path: Path) -> None:
    file = objects.write(tmp_path)
    (tmp_path / "points.json").write_text('{"task": "pose", "output": "no"}')
    with pytest.raises(EdgecError, match='network "discs"'):
        edgec.compile(file, output=tmp_path / "x.edgec")
    assert not (tmp_path / "x.edgec").exists()


@pytest.mark.cc
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("turn = [1, 0]", "turn = [1, 2]", 'names point 2, and "discs" has 2 points'),
        ("[networks.crop]\nturn = [0, 1]", "[networks.crop]\nturn = [0, 9]", "point 9"),
    ],
)
def test_points_that_there_are_not(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = objects.write(tmp_path)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=message):
        edgec.compile(file, output=tmp_path / "x.edgec")
    assert not (tmp_path / "x.edgec").exists()


def test_a_cascade_reads_back_as_it_was_written(tmp_path: Path) -> None:
    cascade = read_cascade(objects.write(tmp_path)).cascade()
    value = json.loads(json.dumps(cascade_json(cascade)))
    assert parse_cascade(value) == cascade
    # A crop of nothing but defaults is one, too.
    del value["networks"][1]["crop"]["turn"], value["networks"][1]["crop"]["scale"]
    again = parse_cascade(value)
    assert again.networks[1].crop == CropRule()
    assert parse_cascade(json.loads(json.dumps(cascade_json(again)))) == again


# ---- the manifest
# --------------------------------------------------------------------------------------


def manifest() -> dict[str, Any]:
    with Bundle.open(objects.bundle()) as bundle:
        value: dict[str, Any] = json.loads(bundle.manifest_text)
    return value


def _without_file(value: dict[str, Any]) -> None:
    del value["files"]["networks/discs.edgec"]


def _with_input(value: dict[str, Any]) -> None:
    value["tensors"] = {"x": {"shape": [1], "dtype": "<f4"}}
    value["inputs"] = ["x"]


def _escaping(value: dict[str, Any]) -> None:
    value["cascade"]["networks"][1]["name"] = "../../x"


@pytest.mark.cc
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without_file, "does not have: 'networks/discs.edgec'"),
        (_with_input, "a model of its own"),
        (_escaping, 'impossible "cascade"'),
        (lambda v: v.update(cascade=7), 'impossible "cascade"'),
        (lambda v: v["cascade"].update(networks=[]), "has 0 networks"),
    ],
)
def test_a_wrong_manifest_is_one_error(
    spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    value = manifest()
    spoil(value)
    with pytest.raises(BundleError) as raised:
        check_manifest(value)
    assert message in str(raised.value)


VALUES: tuple[Any, ...] = (
    *(None, -1, 0, 1e300, 2**70, True),
    *("", "thing", [], {}, [[]], [0] * 5000),
)


def spoiled(value: Any, rng: random.Random) -> None:
    """Put one of VALUES at a random place of a decoded JSON value."""
    while True:
        keys = [*value] if isinstance(value, dict) else [*range(len(value))]
        key = rng.choice(keys)
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.2:
            value[key] = rng.choice(VALUES)
            return
        value = inner


def is_refused(value: Any) -> bool:
    """Whether a cascade is refused, which takes an InputError with a hint."""
    try:
        parse_cascade(value)
    except InputError as e:
        return e.hint is not None
    return False


@pytest.mark.cc
def test_random_values_in_the_cascade_are_read_or_refused() -> None:
    rng = random.Random(0)
    text = json.dumps(manifest()["cascade"])
    refused = 0
    for _ in range(2000):
        value = json.loads(text)
        spoiled(value, rng)
        refused += is_refused(value)
    assert refused > 1000


@pytest.mark.cc
def test_a_changed_byte_within_a_network_is_found(tmp_path: Path) -> None:
    data = bytearray(objects.bundle().read_bytes())
    place = data.index(b"networks/discs.edgec") + 5000
    data[place] ^= 1
    spoiled = tmp_path / "x.edgec"
    spoiled.write_bytes(data)
    with pytest.raises(BundleError):
        Bundle.open(spoiled)


@pytest.mark.cc
@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (b"", "cut off or damaged"),
        (b"PK" * 50, "cut off or damaged"),
        (None, "cannot be"),
    ],
    ids=["empty", "no zip", "a cascade"],
)
def test_a_network_that_is_no_bundle(
    tmp_path: Path, inner: bytes | None, message: str
) -> None:
    with Bundle.open(objects.bundle()) as bundle:
        files = {name: bundle.read(name) for name in bundle.names}
        fields = bundle.manifest_fields()
    # A cascade within a cascade is none either.
    files["networks/discs.edgec"] = (
        objects.bundle().read_bytes() if inner is None else inner
    )
    path = tmp_path / "x.edgec"
    write_bundle(path, fields, files)
    with pytest.raises(BundleError) as raised:
        Session(path)
    assert message in str(raised.value)
    assert "networks/discs.edgec" in str(raised.value)


@pytest.mark.cc
@pytest.mark.parametrize("field", ["target", "board"])
def test_a_network_for_another_board_is_refused(field: str, tmp_path: Path) -> None:
    with Bundle.open(objects.bundle()) as bundle:
        files = {name: bundle.read(name) for name in bundle.names}
        fields = bundle.manifest_fields()
        with bundle.network("discs") as inner:
            contents = {name: inner.read(name) for name in inner.names}
            other = {**inner.manifest_fields(), field: "pi4"}
    write_bundle(tmp_path / "inner.edgec", other, contents)
    files["networks/discs.edgec"] = (tmp_path / "inner.edgec").read_bytes()
    path = tmp_path / "x.edgec"
    write_bundle(path, fields, files)
    with pytest.raises(BundleError, match="and its cascade for host") as raised:
        Session(path)
    assert "networks/discs.edgec" in str(raised.value)
    with pytest.raises(BundleError, match="and its cascade for host"):
        edgec.inspect(path)


@pytest.mark.cc
def test_a_bundle_of_one_network_says_nothing_of_cascades() -> None:
    with Bundle.open(objects.bundle()) as bundle:
        inner = bundle.network("mirror")
        assert inner.manifest_text == bundle.network("discs").manifest_text
        assert b"cascade" not in inner.manifest_text
        with pytest.raises(InputError, match="it is not a cascade"):
            inner.network("x")
        with pytest.raises(InputError, match='did you mean "discs"'):
            bundle.network("disc")
