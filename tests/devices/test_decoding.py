"""JSON and TOML of anyone: read as typed values, or refused with what is wrong, in time
and memory that are bounded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.decoding import LARGEST_TOML, from_json, from_toml
from edgec_devices.device_names import configured, read_config
from edgec_devices.measurement import Launch
from edgec_runtime import DeviceError, InputError


@dataclass(frozen=True)
class Thing:
    name: str
    sizes: tuple[int, ...] = ()


def test_typed_values(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('name = "x"\nsizes = [1, 2]\nother = 1\n')
    assert from_toml(path, Thing) == Thing("x", (1, 2))
    assert from_json(
        b'{"name": "x", "sizes": [1, 2]}', Thing, "it", "at", "hint"
    ) == Thing("x", (1, 2))
    with pytest.raises(FileNotFoundError):
        from_toml(tmp_path / "b.toml", Thing)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'{"name": ' + b"[" * 200_000, "damaged"),
        (b'{"more": ' + b"[" * 200_000, "nested too deep"),
        (b'{"more":' * 200_000, "nested too deep"),
        (b'{"name": "x", "sizes": [NaN]}', "damaged"),
        (b'{"name": 5}', r"Expected `str`, got `int` - at `\$.name`"),
        (b"{}", "missing required field `name`"),
        (b'{"name": "\xff"}', "damaged"),
        (b"", "damaged"),
    ],
)
def test_what_no_json_can_be(data: bytes, what: str) -> None:
    with pytest.raises(InputError, match=what):
        from_json(data, Thing, "it", "at", "hint")
    with pytest.raises(DeviceError, match=what):
        from_json(data, Thing, "it", "at", "hint", DeviceError)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = " + "[" * 1900, "nested too deep"),
        ("x = " + "{a = " * 390, "nested too deep"),
        ("x = [\n" + "[\n" * 20_000, "nested too deep"),
        (".".join("a" * 50_000) + " = 1", "a line of 100003"),
        ("x = " + "1" * 5000, "a line of 5004"),
        ("#\n" * LARGEST_TOML, "bytes, more than"),
        ("x = ", "Invalid value"),
        ("\ud800", "utf-8"),
    ],
)
def test_what_no_toml_can_be(text: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "edgec.toml"
    start = time.process_time()
    path.write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InputError, match=what):
        read_config(tmp_path)
    with pytest.raises(InputError, match=what):
        configured(tmp_path)
    assert time.process_time() - start < 30, (
        "the reader takes minutes for keys of many parts"
    )


def test_the_longest_keys_that_are_read_take_seconds(tmp_path: Path) -> None:
    line = ".".join("a" * 990)
    text = "".join(f"{line}.b{i} = 1\n" for i in range(LARGEST_TOML // 2000))
    (tmp_path / "edgec.toml").write_text(text)
    start = time.process_time()
    assert "a" in read_config(tmp_path)
    assert time.process_time() - start < 30


GOOD = {"segments": [{"ns": [1, 2]}], "warmup": 1, "at": [0, 5], "total": [3, 4]}


def test_a_report_of_a_program() -> None:
    launch = Launch.parse(GOOD, 1, "attic")
    assert (launch.backends, launch.total, launch.segments, launch.rss) == (
        ("c",),
        (3, 4),
        ((1, 2),),
        None,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"total": [3, -4]},
        {"total": [3, 4.0]},
        {"total": [3, 2**70]},
        {"total": [3, True]},
        {"total": "34"},
        {"segments": [[1, 2]]},
        {"segments": {"ns": [1, 2]}},
        {"segments": [{"ns": [1, 2], "backend": 5}]},
        {"warmup": None},
        {"load": -1},
        {"profile": {"plain": [1], "at": [1], "total": [1, 2], "ops": []}},
        {"profile": [1]},
    ],
)
def test_a_report_that_is_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeviceError, match="is not valid"):
        Launch.parse({**GOOD, **wrong}, 1, "attic")
