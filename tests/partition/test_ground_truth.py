"""The rules and the emulated partition against what the real compiler did with 131
models.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from edgec_partitioner.source import SourceOp, judge

from edgec.frontends.operators import operators_of, read_operators
from tests.conftest import SHARED
from tests.partition.records import file_of

pytestmark = pytest.mark.shared

EXCEPTIONS: dict[tuple[str, int], str] = {}
"""(model, operator) that the rules judge otherwise than the compiler, and why; at most
0.5 % of the scored ones.
"""


def _records() -> list[dict[str, Any]]:
    file = SHARED / "edgetpu" / "ground_truth.json"
    return json.loads(file.read_text()) if file.is_file() else []


RECORDS = _records()


def _file(record: dict[str, Any], shared: Path) -> Path | None:
    if not record.get("file"):
        return None
    folder = shared / "edgetpu"
    return next(
        (
            p
            for p in (folder / record["file"], folder / "models" / record["file"])
            if p.is_file()
        ),
        None,
    )


def _wrong(
    record: dict[str, Any], judged: tuple[SourceOp, ...], score: Counter[str]
) -> list[str]:
    """What is judged otherwise than the compiler did; "after" says nothing about an
    operator.
    """
    wrong = []
    for row, op in zip(record["ops"], judged, strict=True):
        assert op.opcode == row["opcode"]
        if row["verdict"] == "after":
            continue
        score[row["verdict"]] += 1
        key = (record["model"], row["index"])
        if (op.verdict == "edgetpu") != (
            row["verdict"] == "mapped"
        ) and key not in EXCEPTIONS:
            wrong.append(
                f"{record['model']} {op.index} {op.opcode} was {row['verdict']} "
                f"[{op.rule}: {op.seen}]"
            )
    return wrong


def test_verdicts_on_every_recorded_operator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the records alone: every mapped operator may go to the Edge TPU, no refused
    one is promised it.
    """
    score = Counter[str]()
    wrong = [
        w for r in RECORDS for w in _wrong(r, judge(operators_of(file_of(r))), score)
    ]
    assert not wrong, "\n".join(wrong)
    assert len(EXCEPTIONS) <= 0.005 * score.total()
    assert score["mapped"] > 5000
    assert score["refused"] > 20
    with capsys.disabled():
        print(
            f"\n{len(RECORDS)} records: {score['mapped']} mapped and "
            f"{score['refused']} refused operators, as judged"
        )


def test_the_stock_partition_equals_the_compilers(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the files: the same verdicts, and operator for operator the compiler's
    partition.
    """
    score = Counter[str]()
    files = 0
    wrong: list[str] = []
    for record in RECORDS:
        path = _file(record, shared)
        if path is None:
            continue
        files += 1
        judged = judge(read_operators(path))
        wrong += _wrong(record, judged, score)
        for row, op in zip(record["ops"], judged, strict=True):
            score["partition"] += 1
            if (op.stock == "mapped") != row["mapped"]:
                wrong.append(
                    f"{record['model']} {op.index} {op.opcode}: {op.stock}, "
                    f"mapped {row['mapped']}"
                )
    assert not wrong, "\n".join(wrong)
    assert files > 50
    with capsys.disabled():
        counts = f"{score['mapped']} mapped and {score['refused']} refused operators"
        print(
            f"\n{files} files: {counts}, as judged; {score['partition']} operators "
            "placed as the compiler did"
        )


def test_the_stock_partition_agrees_with_a_log(shared: Path) -> None:
    """A detector of which no compiled file but the compiler's log is there: what it
    maps, by opcode.
    """
    logs = json.loads((shared / "edgetpu" / "logs.json").read_text())
    (log,) = (
        e
        for e in logs
        if "coco_ssd_mobilenet_v1_1.0_quant_2018_06_29" in e.get("input", "")
    )
    logged = {
        r["op"]: r["count"] for r in log["rows"] if r["status"] == "Mapped to Edge TPU"
    }
    judged = judge(
        read_operators(
            shared / "models" / "ssd_mnv1_coco_u8" / "ssd_mnv1_coco_u8.tflite"
        )
    )
    assert Counter(op.opcode for op in judged if op.stock == "mapped") == logged


def test_every_refusal_says_what_was_seen_and_what_to_do() -> None:
    for record in RECORDS:
        for op in judge(operators_of(file_of(record))):
            assert (op.verdict == "edgetpu") == (not op.rule)
            assert bool(op.rule) == bool(op.seen)
            assert op.fix is None or (op.rule and op.fix)
