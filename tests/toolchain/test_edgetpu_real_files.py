"""Files that the real edgetpu_compiler wrote, and what it did to models: our reading of
them, and the stand-in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ai_edge_litert import schema_py_generated as schema

from edgec.toolchain.edgetpu.compiled_file import Operator, read
from edgec.toolchain.edgetpu.driver import compile_segments
from edgec.toolchain.edgetpu.handoff import sha256
from edgec.toolchain.edgetpu.runners import Answer, answer
from tests.conftest import SHARED
from tests.toolchain.edgetpu_log_text import V16, screen
from tests.toolchain.stand_in_edgetpu_compiler import Rules, _sets
from tests.toolchain.test_edgetpu_loop import StandInRunner

TRUTH = SHARED / "edgetpu" / "ground_truth.json"
RECORDS: list[dict[str, Any]] = json.loads(TRUTH.read_text()) if TRUTH.is_file() else []
COMPILED = sorted((SHARED / "models").glob("*/*_edgetpu_compiled.tflite"))
AT_HAND = [
    r for r in RECORDS if r.get("file") and (SHARED / "edgetpu" / r["file"]).is_file()
]
UNSPECIFIED = (
    "Operation is otherwise supported, but not mapped due to some "
    "unspecified limitation"
)

pytestmark = pytest.mark.shared


def source_of(compiled: Path) -> bytes:
    return compiled.with_name(
        compiled.name.replace("_edgetpu_compiled", "")
    ).read_bytes()


class Replay:
    """Answers with a file that the real compiler wrote, and a log of what is known
    about it.
    """

    name = "a real file"

    def __init__(self, data: bytes, record: dict[str, Any]) -> None:
        self._data = data
        self._record = record

    def compile(self, models: Any) -> Answer:
        (name,) = models
        counts: dict[tuple[str, str], int] = {}
        status = {
            "mapped": "Mapped to Edge TPU",
            "refused": UNSPECIFIED,
            "after": "More than one subgraph is not supported",
        }
        for op in self._record["ops"]:
            key = (op["opcode"], status[op["verdict"]])
            counts[key] = counts.get(key, 0) + 1
        n = len(self._record["ops"])
        if self._record["n_cpu"]:
            split = {"n_tpu": self._record["n_mapped"], "n_cpu": self._record["n_cpu"]}
        else:
            split = {}
        text = screen(
            [
                {
                    "compiler_version": V16,
                    "compile_ms": 1,
                    "input": f"{name}.tflite",
                    "input_size": "1.00MiB",
                    "output": f"{name}_edgetpu.tflite",
                    "output_size": "1.00MiB",
                    "n_subgraphs": 1,
                    "n_ops": n,
                    "rows": [
                        {"op": op, "count": c, "status": s}
                        for (op, s), c in counts.items()
                    ],
                }
                | split
            ]
        )
        return answer(text, models, {f"{name}_edgetpu.tflite": self._data})


@pytest.mark.parametrize("path", COMPILED, ids=lambda p: p.parent.name)
def test_a_real_compiled_file_is_understood(path: Path) -> None:
    """Its border is that of its source, its CPU ops keep their names, and those that
    are refused are told apart.
    """
    source = source_of(path)
    data = path.read_bytes()
    known = [r for r in RECORDS if r["sha256"] == sha256(source)]
    if not known:
        pytest.skip("no record of this model")
    truth = known[0]
    (result,) = compile_segments({"seg1": source}, Replay(data, truth)).values()
    assert result.file is not None, result.problem
    assert len(result.file.left) == truth["n_cpu"]
    assert result.file.pieces == truth["n_custom_ops"]
    assert (result.data is not None) == (truth["n_cpu"] == 0)
    if truth["n_cpu"]:
        written = {op.outputs: i for i, op in enumerate(read(source).operators)}
        blamed = {written[r.operator.outputs] for r in result.refused()}
        assert blamed
        assert blamed <= {
            op["index"] for op in truth["ops"] if op["verdict"] == "refused"
        }


def test_there_are_real_files() -> None:
    assert len(COMPILED) >= 4
    assert len(AT_HAND) > 50


@pytest.mark.parametrize("truth", AT_HAND, ids=lambda r: Path(r["file"]).stem)
def test_the_stand_in_maps_what_the_real_one_did(truth: dict[str, Any]) -> None:
    """Given which ops the real one refused, the first set that it delegates is the
    same, op for op.
    """
    data = (SHARED / "edgetpu" / truth["file"]).read_bytes()
    operators: tuple[Operator, ...] = read(data).operators
    refused = {
        operators[op["index"]].outputs[0]: UNSPECIFIED
        for op in truth["ops"]
        if op["verdict"] == "refused"
    }
    model = schema.ModelT.InitFromPackedBuf(data)
    ops = list(model.subgraphs[0].operators)
    mapped = next(
        (taken for wanted, taken in _sets(model, Rules(refuse=refused)) if wanted), []
    )
    index = {id(op): i for i, op in enumerate(ops)}
    assert {index[id(op)] for op in mapped} == {
        op["index"] for op in truth["ops"] if op["mapped"]
    }


@pytest.mark.parametrize(
    "truth", [r for r in AT_HAND if r["n_cpu"]], ids=lambda r: Path(r["file"]).stem
)
def test_only_refused_ops_are_blamed(truth: dict[str, Any]) -> None:
    data = (SHARED / "edgetpu" / truth["file"]).read_bytes()
    operators = read(data).operators
    refused = {
        operators[op["index"]].outputs[0]: UNSPECIFIED
        for op in truth["ops"]
        if op["verdict"] == "refused"
    }
    (result,) = compile_segments(
        {"seg1": data}, StandInRunner(Rules(refuse=refused))
    ).values()
    blamed = {r.operator.outputs[0] for r in result.refused()}
    assert blamed
    assert blamed <= set(refused)
