"""Calls put down and made again, and the choice among schedules that a search found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.errors import InputError
from edgec.ir import CStruct, KernelCall, OpDef, Table
from edgec.ir.c_structs import Conv2dParams, RequantParams
from edgec.ops.conv import CONV2D
from edgec.report.tuning import WORTH_SHOWING
from edgec.schedule.cores import Core, core
from edgec.schedule.database import SHIPPED, Database, TunedSchedule
from edgec.schedule.records import call_of_record, record, signature
from edgec.schedule.variant import Rules, choice, legal, preferred, tuned
from tests.harness import sample_graph

A72 = core("cortex_a72")


def calls() -> Iterator[KernelCall]:
    """Those of every sample of every op."""
    for cls in OpDef.registry.values():
        for sample in cls.samples():
            for op in sample_graph(sample).ops:
                yield from op.spec.calls(op)


def convolution() -> KernelCall:
    """One of int8 with several schedules."""
    return next(
        c for c in calls() if c.kernel == CONV2D.of("s8") and len(legal(c, A72)) > 2
    )


def with_struct(call: KernelCall, old: CStruct, new: CStruct) -> KernelCall:
    """The call with another struct."""
    operands = tuple(new if x is old else x for x in call.operands)
    return replace(call, operands=operands)


def found(call: KernelCall, at: int) -> tuple[Core, TunedSchedule]:
    """The core after a search found the at-th way to be the best."""
    variant, schedule = legal(call, A72)[at]
    entry = TunedSchedule(
        variant.name, dict(schedule), 1.0, 2.0, 9, "emulated:pi4", True, "1"
    )
    return replace(A72, tuned={signature(call): entry}), entry


def test_every_call_comes_back_with_its_signature() -> None:
    seen = 0
    for call in calls():
        back = call_of_record(json.loads(json.dumps(record(call))))
        assert signature(back) == signature(call), call
        assert back.kernel == call.kernel
        seen += 1
    assert seen > 500


def test_calls_made_again_can_be_computed_in_as_many_ways() -> None:
    """Not all: what tables hold is no longer exactly there."""
    some = [
        (c, len(ways))
        for c in calls()
        if c.kernel in CONV2D and len(ways := legal(c, A72)) > 1
    ]
    same = [len(legal(call_of_record(record(c)), A72)) == n for c, n in some]
    assert len(same) > 10
    assert np.mean(same) > 0.9


def test_constants_are_like_those_that_were_there() -> None:
    call = convolution()
    was = call.struct(RequantParams)
    back = call_of_record(record(call)).struct(RequantParams)
    for a, b in (
        (was.multiplier.array, back.multiplier.array),
        (was.shift.array, back.shift.array),
    ):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert set(b.tolist()) <= set(a.tolist())
    assert json.dumps(record(call_of_record(record(call)))) == json.dumps(
        record(call_of_record(record(call)))
    ), "always the same"


def test_a_signature_tells_sizes_and_not_levels() -> None:
    call = convolution()
    shape = call.struct(Conv2dParams)
    q = call.struct(RequantParams)
    other_zero = with_struct(call, q, replace(q, x_zero=q.x_zero + 1))
    assert signature(other_zero) == signature(call)
    larger = with_struct(call, shape, replace(shape, ih=shape.ih + 1))
    assert signature(larger) != signature(call)
    wider = replace(
        call,
        operands=(
            *call.operands[:1],
            Table(np.zeros((3, 3, 8, 9), np.int8), "w"),
            *call.operands[2:],
        ),
    )
    assert signature(wider) != signature(call)
    assert signature(replace(call, then=(call,))) != signature(call)


def test_a_search_is_followed_where_it_is_legal() -> None:
    call = convolution()
    best = legal(call, A72)[2]
    on, entry = found(call, 2)
    assert choice(call, on) == tuned(call, on) == best
    assert choice(call, A72) == preferred(call, A72) == legal(call, A72)[0]
    assert Rules().choose(call, on) == best
    for other in (
        replace(entry, variant="ek_gone"),
        replace(entry, schedule={**entry.schedule, "mr": 99}),
    ):
        stale = replace(on, tuned={signature(call): other})
        assert tuned(call, stale) is None
        assert choice(call, stale) == preferred(call, A72)


def test_a_database_comes_back(tmp_path: Path) -> None:
    _, entry = found(convolution(), 1)
    database = (
        Database()
        .with_entry("cortex_a72", "x", entry)
        .with_entry("cortex_a53", "x", entry)
    )
    (tmp_path / "t.json").write_text(json.dumps(database.to_json()))
    assert Database.load(tmp_path / "t.json") == database
    assert database.of("cortex_a76") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "edgec-tune/2"}',
        '{"format": "edgec-tune/1", "cores": {"cortex_a72": {"x": {}}}}',
        "\xff",
        '{"cores": ' + "[" * 5000,
    ],
)
def test_a_damaged_database_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InputError) as e:
        Database.load(path)
    assert e.value.at == str(path)
    assert "remove it" in str(e.value)


def test_what_comes_with_edgec_is_worth_it() -> None:
    for path in SHIPPED.glob("*.json"):
        table = Database.load(path).of(path.stem)
        assert core(path.stem).tuned == table, (
            f"{path.name} is for the core of its name"
        )
        assert table
        assert all(f.default_ms > WORTH_SHOWING * f.ms for f in table.values())
