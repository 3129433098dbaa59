"""report/graph.json says of every op of a model where it runs, and which function of
the C it is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle
from edgec_runtime.session.session import machine_target

import edgec
from edgec.emit.graph_file import GRAPH_FILE
from tests.frontends.tflite_operators import Given, const, model_of, packed

FIXTURES = Path(__file__).parents[2] / "fixtures"
pytestmark = pytest.mark.cc


def test_ops_are_those_of_the_generated_c(tmp_path: Path) -> None:
    path = tmp_path / "digits.edgec"
    model = FIXTURES / "digits" / "digits.onnx"
    edgec.compile(
        model,
        "host",
        path,
        calibrate=FIXTURES / "digits" / "digits_calibration.npz",
        quantize="fast",
    )
    with Bundle.open(path) as bundle:
        graph = json.loads(bundle.read(GRAPH_FILE))
        here = f"src/{machine_target()}"
        names = {
            s.name: [n for n in bundle.names if n.startswith(f"{here}/{s.name}")]
            for s in bundle.manifest.segments
        }
        sources = {
            s: [bundle.read(n).decode() for n in files] for s, files in names.items()
        }
        macs = {s.name: s.macs for s in bundle.manifest.segments}
    assert [op["index"] for op in graph["ops"]] == list(range(len(graph["ops"])))
    assert all(r < op["index"] for op in graph["ops"] for r in op["reads"])
    for segment in graph["segments"]:
        for text in sources[segment["name"]]:
            called = re.findall(
                r"^    (op\d+_\w+)\(m, w, in, out\);$",
                text.split("_run(void *memory", 2)[2],
                re.M,
            )
            half = len(called) // 2
            assert called[:half] == called[half:], (
                "run and profile call the same functions, in the same order"
            )
            assert text.count("mark(context, ") == len(segment["functions"]) + 1
        rows = [op for op in graph["ops"] if op["segment"] == segment["name"]]
        assert [op["call"] for op in rows if op["call"] is not None] == list(
            range(len(segment["functions"]))
        )
        assert all(
            segment["functions"][op["call"]].endswith(op["kind"])
            for op in rows
            if op["call"] is not None
        )
        assert sum(op["macs"] for op in rows) == macs[segment["name"]]
        assert segment["constants"] > 1000
        assert segment["est_parts"] == {}


def test_an_op_with_several_outputs(tmp_path: Path) -> None:
    model = tmp_path / "top.tflite"
    path = tmp_path / "top.edgec"
    given = [Given(np.zeros((2, 9), np.float32)), const(3)]
    model.write_bytes(
        packed(
            model_of("TOPK_V2", None, given, [((2, 3), np.float32), ((2, 3), np.int32)])
        )
    )
    edgec.compile(model, "host", path)
    with Bundle.open(path) as bundle:
        (top, *_) = json.loads(bundle.read(GRAPH_FILE))["ops"]
    assert top["output"].split(", ")[0] == "y0"
    assert top["type"] == "float32[2,3], int64[2,3]"
