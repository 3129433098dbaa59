"""Partitions of real models: the rules against the real compiler, segments against the reference kernels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_partitioner.cost import LINKS, TpuWork
from edgec_partitioner.partition import partition
from edgec_partitioner.verdicts import verdicts

from edgec.errors import UnsupportedError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, interp
from edgec.passes.pipeline import optimize
from tests.conftest import SHARED
from tests.harness import run_tflite

pytestmark = pytest.mark.shared


def _rows(path: str) -> list[dict[str, Any]]:
    file = SHARED / path
    return json.loads(file.read_text()) if file.is_file() else []


INT8 = [
    m
    for m in _rows("models/index.json")
    if "kref" in m.get("ref", {}) and m["tensor_types"].get("float32", 0) < m["nops"]  # not: float with int8 weights
]
VERDICTS = [m for m in _rows("edgetpu/ground_truth.json") if m.get("file")]


def _read(path: Path) -> Graph:
    try:
        return read_model(path, {})
    except UnsupportedError as e:
        pytest.skip(e.what)


@pytest.mark.parametrize("model", INT8, ids=lambda m: m["name"])
def test_segments_are_the_reference_kernels(model: dict[str, Any], shared: Path) -> None:
    """Chained segments give TFLite's reference outputs; each Edge TPU segment, as TFLite, gives what interp gives."""
    graph = optimize(_read(shared / "models" / model["file"]))
    parts = partition(graph, "usb3")
    ref = np.load(shared / "models" / model["ref"]["file"])
    values: dict[str, Array] = {v.name: ref[f"in0_{j}"] for j, v in enumerate(graph.inputs)}
    for s in parts.segments:
        inputs = {v.name: values[v.name] for v in s.graph.inputs}
        outputs = interp(s.graph, inputs)
        if s.place == "edgetpu":
            for name, y in run_tflite(s.graph, inputs).items():
                np.testing.assert_array_equal(y, outputs[name])
        values.update(outputs)
    for j, v in enumerate(graph.outputs):
        want = ref[f"kref0_{j}" if f"kref0_{j}" in ref else f"out0_{j}"]
        if want.dtype.kind == "f":
            np.testing.assert_allclose(values[v.name], want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))
        else:
            np.testing.assert_array_equal(values[v.name], want)


def test_rules_agree_with_the_real_compiler(shared: Path) -> None:
    """Every op that it mapped may go to the Edge TPU, every one that it refused may not ("after" says nothing)."""
    from ai_edge_litert import schema_py_generated as schema

    agreed, wrong = Counter[str](), list[str]()
    for record in VERDICTS:
        path = shared / "edgetpu" / record["file"]
        path = path if path.is_file() else shared / "edgetpu" / "models" / record["file"]
        try:
            graph = read_model(path, {})
        except UnsupportedError:
            continue
        writer = {v.name: op for op in graph.ops for v in op.outputs}
        judged = verdicts(graph)
        sub = schema.ModelT.InitFromPackedBuf(path.read_bytes()).subgraphs[0]
        for row, operator in zip(record["ops"], sub.operators, strict=True):
            op = writer.get(sub.tensors[operator.outputs[0]].name.decode())
            if op is None or row["verdict"] == "after":
                continue
            if (judged[op].place() == "edgetpu") == (row["verdict"] == "mapped"):
                agreed[row["opcode"]] += 1
            else:
                why = "; ".join(f"{r.rule}: {r.seen}" for r in judged[op].refusals)
                wrong.append(f"{record['model']} op {row['index']} {row['opcode']} was {row['verdict']} [{why}]")
    assert not wrong, "\n".join(wrong)
    assert agreed["CONV_2D"] > 500
    assert agreed["RESIZE_BILINEAR"] >= 7


@pytest.mark.parametrize("link", ["usb3", "usb2"])
def test_the_cost_model_reproduces_the_published_times(link: str, shared: Path) -> None:
    points = json.loads((shared / "edgetpu" / "cost_points.json").read_text())["points"]
    ratios = []
    for p in points:
        if p.get(f"{link}_ms"):
            cycles = p["est_cycles"] / 1e6
            work = TpuWork(p["in_bytes"], p["out_bytes_padded"], p["instr_bytes"], p["cached_param_bytes"], cycles)
            ratios.append(work.ms(LINKS[link], p["streamed_param_bytes"]) / p[f"{link}_ms"])
    assert len(ratios) >= 26
    assert np.percentile(np.abs(np.array(ratios) - 1), 80) < 0.1
    assert max(abs(r - 1) for r in ratios) < 0.3
