"""Outputs of Edge TPU segments without padding, and that they compute the same."""

from __future__ import annotations

import pytest
from edgec_partitioner.choice import Wishes
from edgec_partitioner.cost import LINKS, padded_bytes
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.flat_outputs import LEAST_SAVING_MS, NAME
from edgec_partitioner.partition import Partition, partition
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.ir import Builder, Graph, Quant, Refusal, TensorType, Value
from edgec.ops.quantize import Quantize
from edgec.ops.unary import Logistic, Relu
from tests.partition.test_recomputation import Q, conv, same_results

SLOW = CpuCost(1e-3)
REFUSAL = Refusal("edgetpu_compiler", "no", "no", None)


def picture(size: int, channels: int) -> Graph:
    """A network that makes an image of an image."""
    build = Builder("picture")
    x = build.input("x", TensorType((1, size, size, 3), "int8", Q))
    hidden = conv(build, x, 8, "hidden")
    build.graph.outputs = [conv(build, hidden, channels, "y")]
    return build.graph


def sent_back(parts: Partition) -> list[Value]:
    """The outputs of the Edge TPU segments."""
    on_tpu = (s for s in parts.segments if s.place == "edgetpu")
    return [v for s in on_tpu for v in s.graph.outputs]


def out_ms(parts: Partition) -> float:
    return sum(s.est.output for s in parts.segments if s.est is not None)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_an_image_of_few_channels_is_read_back_without_padding(channels: int) -> None:
    graph = picture(96, channels)
    padded = partition(graph, "usb3", SLOW, Wishes(disabled=[NAME]))
    parts = partition(graph, "usb3", SLOW)
    (wide,) = sent_back(padded)
    (flat,) = sent_back(parts)
    assert padded_bytes(wide) == 96 * 96 * 4
    assert padded_bytes(flat) == 96 * 96 * channels
    assert out_ms(parts) == pytest.approx(out_ms(padded) * channels / 4)

    # The output of the network is what it was.
    (y,) = parts.graph.outputs
    assert (y.name, y.type) == ("y", graph.outputs[0].type)
    same_results(graph, parts)


def test_a_large_image_becomes_flat_in_parts() -> None:
    """No RESHAPE of 160 x 160 x 5 is known to map, but those of its halves are."""
    graph = picture(160, 5)
    parts = partition(graph, "usb3", SLOW)
    (flat,) = sent_back(parts)
    assert flat.type.shape == (1, 160, 160 * 5)
    on_tpu = [op for op, s in parts.segment_of.items() if s.place == "edgetpu"]
    assert [op.kind for op in on_tpu[-5:]] == [
        "slice",
        "slice",
        "reshape",
        "reshape",
        "concat",
    ]
    same_results(graph, parts)


@pytest.mark.parametrize(("size", "channels"), [(96, 1), (96, 3), (160, 5)])
@pytest.mark.parametrize("int8_too", [False, True])
def test_an_output_that_is_uint8_in_the_file_is_flat_before_it_is_that(
    size: int, channels: int, int8_too: bool
) -> None:
    """Inside of a segment all is int8, whole or in parts, also beside the same as int8."""
    graph = picture(size, channels)
    build = Builder(graph)
    (inside,) = graph.outputs
    u8 = Quant.per_tensor(Q.scale[0], Q.zero_point[0] + 128)
    outside = build.add(Quantize("uint8"), [inside], "y_uint8", quant=u8)
    graph.outputs = [outside, inside] if int8_too else [outside]
    parts = partition(graph, "usb3", SLOW)
    flat = (1, size, size * channels)
    assert {v.type.shape for v in sent_back(parts)} == {flat}
    assert {v.type.dtype for v in sent_back(parts)} == (
        {"uint8", "int8"} if int8_too else {"uint8"}
    )
    assert [(v.name, v.type) for v in parts.graph.outputs] == [
        (v.name, v.type) for v in graph.outputs
    ]
    same_results(graph, parts)


@pytest.mark.parametrize(("size", "channels"), [(96, 4), (96, 8), (20, 3)])
def test_what_saves_little_stays(size: int, channels: int) -> None:
    parts = partition(picture(size, channels), "usb3", SLOW)
    (wide,) = sent_back(parts)
    saved = (
        LINKS["usb3"].per_mb_received * (padded_bytes(wide) - wide.type.nbytes) / 1e6
    )
    assert saved < LEAST_SAVING_MS
    assert "reshape" not in {op.kind for op in parts.graph.ops}
    assert parts.applied == ()


def test_a_value_that_is_also_read_inside_becomes_flat_for_the_others() -> None:
    build = Builder("both")
    x = build.input("x", TensorType((1, 96, 96, 3), "int8", Q))
    mask = conv(build, x, 1, "mask")
    on_cpu = build.add(Relu(), [mask], "on_cpu", quant=Q)
    more = build.add(Logistic(), [conv(build, mask, 4, "more")], "z")
    build.graph.outputs = [mask, on_cpu, more]
    refused = {"on_cpu": REFUSAL}
    parts = partition(build.graph, "usb3", SLOW, Wishes(refused=refused))
    assert {v.type.shape for v in sent_back(parts)} == {(1, 96, 96), (1, 96, 96, 4)}
    assert [v.name for v in parts.graph.outputs] == ["mask", "on_cpu", "z"]
    same_results(build.graph, parts)


@pytest.mark.parametrize("name", ["y_flat", "y_flat_part_1"])
def test_an_output_whose_flat_form_the_compiler_refuses_stays(name: str) -> None:
    wishes = Wishes(refused={name: REFUSAL})
    parts = partition(picture(96, 3), "usb3", SLOW, wishes)
    (wide,) = sent_back(parts)
    assert wide.name == "y"


@given(st.integers(90, 140), st.integers(1, 3), st.sampled_from(sorted(LINKS)))
@settings(max_examples=12, deadline=None)
def test_it_is_never_slower(size: int, channels: int, link: str) -> None:
    graph = picture(size, channels)
    padded = partition(graph, link, SLOW, Wishes(disabled=[NAME]))
    parts = partition(graph, link, SLOW)
    assert parts.cuts is not None
    assert padded.cuts is not None
    assert parts.cuts.total_ms <= padded.cuts.total_ms
    assert sum(map(padded_bytes, sent_back(parts))) <= sum(
        map(padded_bytes, sent_back(padded))
    )
