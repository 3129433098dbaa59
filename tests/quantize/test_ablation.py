"""The table of what steps are worth knows all of them, and tells which are worth
nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from edgec.quantize.histograms import METHODS
from edgec.quantize.steps import steps
from edgec.quantize.work import InterpRunners, Runners
from tests.tables.ablation_quantize import LITTLE, WHOLE, kept, markdown, parts, useless
from tests.tables.accuracy_rows import SHARED, Case

NEEDED = {"lower", "minmax", "precision"}
"""Every int8 model needs the first two; the last leaves ops in float, which is no loss
to be weighed here.
"""


def test_every_step_and_every_method_is_a_part() -> None:
    used = {
        s.name
        for p in parts()
        for pair in (p.on, p.off)
        for way in pair or ()
        for s in way
    }
    assert used | {"precision"} == {*steps()}
    assert {s.name for s in (*WHOLE, *LITTLE)} == {*steps()} - {
        "minmax",
        "ranges",
        "precision",
    }
    names = [p.name for p in parts()]
    assert {f"{m} ranges" for m in METHODS if m != "minmax"} <= {*names}
    assert all(
        any(n.startswith(name) for n in names)
        for name in {*steps()} - NEEDED - {"ranges"}
    )


def test_what_helps_no_model_is_named() -> None:
    rows = {
        "a": {"one": (0.1, 0.2), "two": (-3.0, 0.4)},
        "b": {"one": (-1.0, 0.0), "two": (-3.0, -2.0)},
    }
    assert list(useless(rows)) == ["one"]
    assert list(markdown(rows))[2] == "| one | +0.1 / +0.2 | -1.0 / +0.0 |"


@pytest.mark.shared
def test_a_step_off_and_on_a_real_model(shared: object, tmp_path: Path) -> None:
    """What was measured is kept, and is not taken for that of other parts."""
    entry = next(
        m
        for m in json.loads((SHARED / "models" / "index.json").read_text())
        if m["name"] == "resnet8_f32"
    )
    case = Case(entry, "0_255", 6, 0)
    case.photos = case.photos
    case.folder = tmp_path
    bias, gptq = (p for p in parts() if p.name in ("bias, each by itself", "gptq"))
    found = kept(case, InterpRunners(), [bias])
    ((name, (on, off)),) = found.items()
    assert name == bias.name
    assert on != 0.0 != off
    assert kept(case, cast(Runners, None), [bias]) == found
    with pytest.raises(AttributeError):
        kept(case, cast(Runners, None), [gptq])
