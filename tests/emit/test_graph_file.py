"""report/graph.json says of every op of a model where it runs, and which function of the C it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from edgec_runtime import Bundle

import edgec
from edgec.emit.graph_file import GRAPH_FILE

FIXTURES = Path(__file__).parents[2] / "fixtures"
pytestmark = pytest.mark.cc


def test_ops_are_those_of_the_generated_c(tmp_path: Path) -> None:
    path = tmp_path / "digits.edgec"
    model = FIXTURES / "digits" / "digits.onnx"
    edgec.compile(model, "host", path, calibrate=FIXTURES / "digits" / "digits_calibration.npz")
    with Bundle.open(path) as bundle:
        graph = json.loads(bundle.read(GRAPH_FILE))
        sources = {s.name: bundle.read(f"src/{s.name}.c").decode() for s in bundle.manifest.segments}
        macs = {s.name: s.macs for s in bundle.manifest.segments}
    assert [op["index"] for op in graph["ops"]] == list(range(len(graph["ops"])))
    assert all(r < op["index"] for op in graph["ops"] for r in op["reads"])
    for segment in graph["segments"]:
        text = sources[segment["name"]]
        called = re.findall(r"^    (op\d+_\w+)\(m, w, in, out\);$", text.split("_run(void *memory", 2)[2], re.M)
        assert called == segment["functions"] * 2, "run and profile call the same functions, in the same order"
        rows = [op for op in graph["ops"] if op["segment"] == segment["name"]]
        assert [op["call"] for op in rows if op["call"] is not None] == list(range(len(segment["functions"])))
        assert all(segment["functions"][op["call"]].endswith(op["kind"]) for op in rows if op["call"] is not None)
        assert sum(op["macs"] for op in rows) == macs[segment["name"]]
        assert segment["constants"] > 1000
        assert segment["est_parts"] == {}
