"""The C of a target: for each of its cores where it has kernels of its own, else once."""

from __future__ import annotations

import numpy as np
from edgec_devices.boards import Board
from edgec_partitioner.segments import Segment

from edgec.emit.sources import constants_crc32, digest_of, target_sources
from edgec.ir import Builder, Graph, OpDef, TensorType
from edgec.ops.conv import Conv2D
from edgec.schedule.cores import cores_of


def _graph(spec: OpDef) -> Graph:
    rng = np.random.default_rng(0)
    build = Builder("net")
    weights = [
        build.const(rng.normal(size=s).astype(np.float32), f"c{i}")
        for i, s in enumerate(((24, 1, 1, 8), (24,)))
    ]
    x = build.input("x", TensorType((1, 5, 5, 8)))
    build.graph.outputs = [
        build.add(spec, [x, *weights] if isinstance(spec, Conv2D) else [x], "y")
    ]
    return build.graph


def _files(graph: Graph) -> set[str]:
    host = Board.load("host")
    target = next(t for t in host.targets if t.name == "linux-x86_64")
    return set(
        target_sources(
            graph, [Segment("seg0", "cpu", graph, 0)], cores_of(host, target)
        ).texts
    )


def test_a_float_model_has_code_for_avx2_and_for_avx512() -> None:
    assert _files(_graph(Conv2D())) == {
        "model.c",
        "seg0_x86_64_v3.c",
        "seg0_x86_64_v4_vnni.c",
    }


def test_plain_kernels_are_there_once() -> None:
    assert _files(_graph(OpDef.registry["sqrt"]())) == {"model.c", "seg0.c"}


def test_a_program_tells_networks_apart_by_their_constants() -> None:
    """Networks of one structure, such as a retrained one, differ in them alone: also in
    biases, which are not in the weights file.
    """
    graphs = [_graph(Conv2D()) for _ in range(2)]
    bias = next(v for op in graphs[1].ops for v in op.inputs if v.name == "c1")
    assert bias.const is not None
    bias.const[3] += 1
    one, other = ([Segment("seg0", "edgetpu", graph, 0)] for graph in graphs)
    assert digest_of(one) == digest_of(other)
    assert constants_crc32(one) != constants_crc32(other)
    assert constants_crc32([Segment("seg0", "cpu", graphs[0], 0)]) == 0
