"""The op that is named is the one where accuracy was lost on purpose."""

from __future__ import annotations

from functools import partial

import numpy as np

from edgec.ir import Array, Graph, Value, interp
from edgec.ops.binary import Add, Sub
from edgec.passes.pipeline import optimize
from edgec.quantize.change.convert import quantize
from edgec.quantize.change.lower import lower
from edgec.quantize.observe.layers import LayerNoise, worst_layer
from tests.quantize.nets import NETS, Net, samples


def worst(graph: Graph) -> LayerNoise | None:
    tries = samples(graph)
    reference = lower(graph)
    quantized = optimize(quantize(graph, tries))
    got: dict[str, Array] = {}

    def keep(v: Value, array: Array) -> None:
        got[v.name] = array

    interp(quantized, tries[0], keep)
    return worst_layer(
        {"seg0": quantized}, got, reference, partial(interp, reference), tries[0]
    )


def hidden(offset: float) -> Graph:
    """Four convolutions; between two of them `offset` is added and taken away again."""
    net = Net("hidden", 6)
    y = net.conv(net.conv(net.input(1, 12, 12, 3), 8), 8, act="none")
    net.build.source = "/planted"
    high = net.op(
        Add("relu"), y, net.build.const(np.full(8, offset, np.float32)), name="high"
    )
    net.build.source = "/after"
    y = net.op(Sub(), high, net.build.const(np.full(8, offset, np.float32)), name="low")
    net.build.source = ""
    return net.done(net.conv(net.conv(y, 8), 4, act="none"))


def test_the_op_whose_range_hides_its_content_is_named() -> None:
    found = worst(hidden(200))
    assert found is not None
    assert (found.value, found.kind, found.source, found.part) == (
        "high",
        "add",
        "/planted",
        "seg0",
    )
    assert found.own_sqnr_db < 10


def test_noise_that_is_inherited_is_not_counted() -> None:
    """Whatever reads what the planted op wrote is as bad, but not by itself."""
    found = worst(hidden(200))
    mild = worst(hidden(1))
    assert found is not None
    assert mild is not None
    assert mild.own_sqnr_db > found.own_sqnr_db + 15


def test_a_good_network_has_no_bad_op() -> None:
    for name in ("chain", "residual", "joined"):
        found = worst(NETS[name]())
        assert found is not None
        assert found.own_sqnr_db > 20, found
        assert found.sqnr_db <= found.own_sqnr_db + 6
