"""Every model of the data folder is read, and its text form is parsed back; those that
cannot be are explained.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.models_table import SHARED, Row, frozen, read_and_print
from edgec.frontends import read_model
from edgec.ir import OpDef, verify

pytestmark = pytest.mark.shared

INDEX = SHARED / "models" / "index.json"
if INDEX.is_file():
    MODELS = [m["name"] for m in json.loads(INDEX.read_text())]
else:
    MODELS = ["none"]


@pytest.mark.parametrize("name", MODELS)
def test_the_text_form_of_a_model_parses_back(name: str, shared: Path) -> None:
    if name == "mnist_lstm_i8" and "lstm_int8" not in OpDef.registry:
        pytest.skip("edgec has no LSTM of int8")
    entry = next(
        m
        for m in json.loads((shared / "models" / "index.json").read_text())
        if m["name"] == name
    )
    file = shared / "models" / entry["file"]
    reference = shared / "models" / entry["ref"]["file"] if "ref" in entry else None
    row = Row(name, "host")
    shapes = frozen(entry, reference)
    read_and_print(row, file, shapes)
    assert row.text == "same"
    assert not row.problems
    verify(read_model(file, shapes), "imported")
