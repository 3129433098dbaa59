"""Every model of the data folder is read, and its text form is parsed back."""

from __future__ import annotations

import pytest

from benchmarks.data_folder import MODELS, index, model_file
from benchmarks.models_table import check_text, open_shapes
from edgec.frontends import read_model
from edgec.ir import OpDef, verify

NAMES = list(index()) if (MODELS / "index.json").is_file() else ["none"]


@pytest.mark.shared
@pytest.mark.parametrize("name", NAMES)
def test_the_text_form_of_a_model_parses_back(name: str) -> None:
    if name == "mnist_lstm_i8" and "lstm_int8" not in OpDef.registry:
        pytest.skip("edgec has no LSTM of int8")
    shapes = open_shapes(name)
    assert check_text(model_file(name), shapes) > 0
    verify(read_model(model_file(name), shapes), "imported")
