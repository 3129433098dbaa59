"""Reading what edgetpu_compiler prints: 213 real logs in their real layouts, failures,
and what people do to logs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgec.toolchain.edgetpu.log import (
    CompilerFailure,
    CompilerLog,
    LogRow,
    failed,
    parse_block,
    parse_logs,
)
from edgec.toolchain.edgetpu.statuses import UNKNOWN_FIX, known, status
from tests.conftest import SHARED
from tests.toolchain.edgetpu_log_text import (
    MAPPED,
    V1,
    V15,
    V16,
    Record,
    fragment,
    has_available,
    log_file,
    screen,
)

LOGS = SHARED / "edgetpu" / "logs.json"
RECORDS: list[dict[str, Any]] = json.loads(LOGS.read_text()) if LOGS.is_file() else []
NOT_PRINTED = {"source", "path", "license", "also_at", "complete", "note"}
ROWS: list[dict[str, Any]] = [
    {"op": "CONV_2D", "count": 35, "status": MAPPED},
    {"op": "RESHAPE", "count": 2, "status": "Operation not supported"},
]
RECORD: Record = {
    "compiler_version": V16,
    "compile_ms": 542,
    "input": "/tmp/x y/a.tflite",
    "input_size": "3.17MiB",
    "output": "a_edgetpu.tflite",
    "output_size": "4.18MiB",
    "onchip_used": "3.33MiB",
    "onchip_remaining": "4.19MiB",
    "offchip_streamed": "64.00B",
    "n_subgraphs": 1,
    "n_ops": 37,
    "n_tpu": 35,
    "n_cpu": 2,
    "rows": ROWS,
}


def size(n: int | None) -> str:
    """Bytes as the compiler prints them."""
    assert n is not None
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= scale:
            return f"{n / scale:.2f}{unit}"
    return f"{n:.2f}B"


def record(log: CompilerLog, keys: set[str]) -> dict[str, Any]:
    """A parsed log as a record with these keys."""
    available = log.version is not None and has_available(log.version)
    values: dict[str, Callable[[], Any]] = {
        "compiler_version": lambda: log.version,
        "compile_ms": lambda: log.compile_ms,
        "input": lambda: log.input,
        "output": lambda: log.output,
        "input_size": lambda: size(log.input_bytes),
        "output_size": lambda: size(log.output_bytes),
        "onchip_used": lambda: size(log.cached_bytes),
        "onchip_remaining": lambda: size(
            log.available_bytes if available else log.remaining_bytes
        ),
        "offchip_streamed": lambda: size(log.streamed_bytes),
        "n_subgraphs": lambda: log.subgraphs,
        "n_ops": lambda: log.total_ops,
        "n_tpu": lambda: log.tpu_ops,
        "n_cpu": lambda: log.cpu_ops,
        "rows": lambda: [
            {"op": r.op, "count": r.count, "status": r.status} for r in log.rows
        ],
    }
    return {key: values[key]() for key in keys}


def written(r: Record) -> str:
    """The text that a record came from: the screen, the .log file, or a quotation."""
    if "compile_ms" in r:
        return screen([r])
    return log_file(r) if "output" in r else fragment(r)


@pytest.mark.shared
def test_all_real_logs_are_there() -> None:
    assert len(RECORDS) == 213


@pytest.mark.shared
@pytest.mark.parametrize(
    "r", RECORDS, ids=[f"{i}-{r['source']}" for i, r in enumerate(RECORDS)]
)
def test_a_real_log_comes_back(r: dict[str, Any]) -> None:
    text = written(r)
    keys = set(r) - NOT_PRINTED
    if "output" in r:
        (log,) = parse_logs(text).values()
    else:  # a quotation does not name its model
        log = parse_block(text)
        keys -= {"input", "compiler_version"}
    assert record(log, keys) == {key: r[key] for key in keys}
    assert all(status(row.status).text in {s.text for s in known()} for row in log.rows)


@pytest.mark.shared
def test_real_models_compiled_together() -> None:
    group = [
        r for r in RECORDS if r["path"].endswith("fm30_log.txt") and "compile_ms" in r
    ]
    assert len(group) > 10
    logs = parse_logs(screen(group))
    assert [log.input for log in logs.values()] == [r["input"] for r in group]
    assert all(
        record(logs[r["input"]], {"rows", "n_ops", "onchip_used"}).items() <= r.items()
        for r in group
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"> {line}" for line in text.splitlines(keepends=True)),
        lambda text: "".join(f"    {line}" for line in text.splitlines(keepends=True)),
        lambda text: text.replace("Mapped", "\x1b[32mMapped").replace(
            "TPU\n", "TPU\x1b[0m\n"
        ),
        lambda text: text.replace("          ", "\t"),
        lambda text: "$ edgetpu_compiler -s a.tflite\n" + text + "$ \n",
        lambda text: text.replace("\n\n", "\n"),
    ],
    ids=["crlf", "quoted", "indented", "colours", "tabs", "prompt", "no blank lines"],
)
@pytest.mark.parametrize("version", [V1, V15, V16])
def test_what_people_do_to_logs(version: str, spoil: Callable[[str], str]) -> None:
    r = {**RECORD, "compiler_version": version}
    (log,) = parse_logs(spoil(screen([r]))).values()
    keys = set(r) - {"input"}
    assert record(log, keys) == {key: r[key] for key in keys}


def test_the_log_file_fills_in_what_the_screen_leaves_out() -> None:
    short = screen([RECORD], operations=False)
    (log,) = parse_logs(short).values()
    assert (log.rows, log.tpu_ops, log.cpu_ops) == ((), 35, 2)
    (log,) = parse_logs(short + log_file({**RECORD, "input": "a.tflite"})).values()
    assert log.rows == tuple(LogRow(r["op"], r["count"], r["status"]) for r in ROWS)
    assert log.cached_bytes == round(3.33 * 2**20)


def test_a_model_is_whole_only_without_anything_on_the_cpu() -> None:
    whole = {k: v for k, v in RECORD.items() if k not in ("n_tpu", "n_cpu")} | {
        "rows": ROWS[:1],
        "n_ops": 35,
    }
    for operations in (True, False):
        (log,) = parse_logs(screen([whole], operations)).values()
        assert log.whole
        assert not next(iter(parse_logs(screen([RECORD], operations)).values())).whole


_16 = (
    f"Edge TPU Compiler version {V16}\nStarted a compilation timeout timer of 180 "
    "seconds.\n"
)
_END = (
    "Compilation child process completed within timeout period.\nCompilation failed! \n"
)


@pytest.mark.parametrize(
    ("text", "trouble", "said"),
    [
        (
            f"{_16}ERROR: Restored original execution plan after delegate application "
            "failure.\n"
            "Compilation failed: Compilation failed due to large activation tensors "
            f"in model.\n{_END}",
            CompilerFailure.SIZE,
            "Compilation failed due to large activation tensors in model",
        ),
        (
            f"Edge TPU Compiler version {V16}\nERROR: Didn't find op for builtin "
            "opcode 'CONV_2D' version '6'. "
            "An older version of this builtin might be supported.\nAre you using an "
            "old TFLite binary?\n\n"
            "ERROR: Registration failed.\n\nInvalid model: "
            "a.tflite\nModel could not be parsed\n",
            CompilerFailure.OPCODE,
            "Didn't find op for builtin opcode 'CONV_2D' version '6'",
        ),
        (
            f"Edge TPU Compiler version {V15}\n\nInternal compiler error. Aborting! \n",
            CompilerFailure.SIZE,
            "Internal compiler error",
        ),
        (
            f"{_16}Compilation timeout. This is usually caused by large "
            "activations.\nCompilation failed! \n",
            CompilerFailure.SIZE,
            "Compilation timeout. This is usually caused by large activations",
        ),
        (
            f"{_16}ERROR: Encountered unresolved custom op: Atan.\nERROR: "
            "Node number 1 (Atan) failed to prepare.\n\n"
            "Compilation failed: Model failed in Tflite interpreter. Please ensure "
            f"model can be loaded/run.\n{_END}",
            CompilerFailure.NODE,
            "Node number 1 (Atan) failed to prepare",
        ),
        (
            f"Edge TPU Compiler version {V15}\nInvalid model: "
            "a.tflite\nModel not quantized\n",
            CompilerFailure.MODEL,
            "Invalid model: a.tflite Model not quantized",
        ),
        (
            f"{_16}libc++abi: terminating with uncaught exception of type "
            f"std::out_of_range: vector\n{_END}",
            CompilerFailure.SIZE,
            "terminating with uncaught exception of type std::out_of_range: vector",
        ),
        (
            f"{_16}error: 'tfl.strided_slice' op is not supported on DarwiNN\n{_END}",
            CompilerFailure.OPCODE,
            "'tfl.strided_slice' op is not supported on DarwiNN",
        ),
        (f"{_16}{_END}", CompilerFailure.SIZE, "Compilation failed!"),
        (
            f"Edge TPU Compiler version {V15}\n",
            CompilerFailure.SIZE,
            "it printed its version and no more",
        ),
        ("", CompilerFailure.SIZE, "it printed nothing"),
        ("\x00\x01 \ufffd rubbish", CompilerFailure.SIZE, 'it said "\ufffd rubbish"'),
    ],
)
def test_failures(text: str, trouble: CompilerFailure, said: str) -> None:
    assert parse_logs(text) == {}
    for spoiled in (text, text.replace("\n", "\r\n")):
        failure = failed(spoiled).failure
        assert failure is not None
        assert (failure.trouble, failure.text) == (trouble, said)


def test_a_failure_names_its_operator() -> None:
    failure = failed(
        "ERROR: Didn't find op for builtin opcode 'CONV_2D' version '6'."
    ).failure
    assert failure is not None
    assert (failure.opcode, failure.version) == ("CONV_2D", 6)
    failure = failed("ERROR: Node number 12 (MUL) failed to prepare.").failure
    assert failure is not None
    assert (failure.opcode, failure.node) == ("MUL", 12)


def test_the_search_for_a_delegate_ends_in_success() -> None:
    tries = (
        "Searching for valid delegate with step 1\nTry to compile segment with 9 "
        f"ops\n{_16}{_END}"
    )
    (log,) = parse_logs(tries + screen([RECORD])).values()
    assert log.failure is None
    assert log.total_ops == 37


def test_every_known_status_says_what_to_do() -> None:
    assert len(known()) == 11
    for s in known():
        assert s.meaning
        assert s.fix
        assert status(s.text.upper() + ".") is s
    assert not status("More than one subgraph is not supported").own
    assert status("Operation not supported").own


def test_an_unknown_status_is_passed_on() -> None:
    (log,) = parse_logs("Input: a.tflite\nMUL   3   The moon  is too full\n").values()
    assert log.rows == (LogRow("MUL", 3, "The moon  is too full"),)
    assert not log.whole
    found = status(log.rows[0].status)
    assert (found.text, found.fix, found.own) == (
        "The moon is too full",
        UNKNOWN_FIX,
        True,
    )


def test_parsing_leaves_the_path_of_the_input_alone(tmp_path: Path) -> None:
    r = {**RECORD, "input": f"{tmp_path}/a b.tflite"}
    assert list(parse_logs(screen([r]))) == ["a b.tflite"]


@pytest.mark.parametrize(
    "text",
    [
        "Input model: a.tflite\n" + "\n \n" * 50_000,
        "Input model: a.tflite\n" + "  > " * 200_000,
        "Invalid model: a" + " " * 100_000 + "\n" * 100_000 + "Model b",
        "\x1b[" * 200_000,
        "CONV_2D" + " " * 300_000 + "1",
    ],
)
def test_reading_takes_time_in_proportion_to_the_text(text: str) -> None:
    start = time.process_time()
    parse_logs(text)
    failed(text)
    parse_block(text)
    assert time.process_time() - start < 20, "each took minutes"


@pytest.mark.parametrize("number", ["1" * 5000, "²2", "１", "1.2.3", "-1", "9" * 10])
def test_a_number_that_is_none_is_passed_over(number: str) -> None:
    lines = (
        f"Edge TPU Compiler version {number}",
        f"Model compiled successfully in {number} ms.",
        "Input model: a.tflite",
        f"Input size: {number}MiB",
        f"Number of Edge TPU subgraphs: {number}",
        f"CONV_2D {number} Mapped to Edge TPU",
    )
    log = parse_logs("\n".join(lines))["a.tflite"]
    assert (log.subgraphs, log.rows, log.compile_ms, log.input_bytes) == (
        None,
        (),
        None,
        None,
    )
    assert failed(f"Node number {number} (ADD) failed to prepare").failure


def test_what_the_compiler_prints_is_text() -> None:
    said = failed("ERROR: \x1b]0;title\x07 no \x9b31m memory \u202e\n").failure
    assert said is not None
    assert said.text.isprintable()
