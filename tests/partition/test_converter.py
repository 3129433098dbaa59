"""The stock column of float models: what converters write, and what public logs say of
files that they wrote.
"""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgec_partitioner.comparison import stock_of_graph
from edgec_partitioner.converter import UNDONE, borders, float_form, int8_form
from edgec_partitioner.cost import LINKS
from edgec_partitioner.cpu_cost import CpuCost
from edgec_partitioner.partition import WORTHWHILE
from edgec_partitioner.regions import CALL_MS
from edgec_partitioner.stock import gives_up, stock_places
from edgec_partitioner.verdicts import Verdict, refusals

from benchmarks import stock_table
from edgec.frontends import read_model
from edgec.ir import Builder, Graph, Op, OpDef, Quant, TensorType, interp
from edgec.ops.activation import Clamp, Gelu
from edgec.ops.conv import Conv2D, DepthwiseConv2D
from edgec.ops.pool import MaxPool2D
from edgec.options.compile import CompileOptions
from edgec.passes.pipeline import optimize
from edgec.quantize.change.convert import evenly
from edgec.report.explain.page import page
from edgec.report.explain.text import to_text
from edgec.verbs.explain import explain_model
from tests.networks import MAKERS
from tests.networks_logged import LOGGED

RNG = np.random.default_rng(0)


def built(
    spec: OpDef, *constants: tuple[int, ...], size: int = 8, channels: int = 4
) -> Graph:
    """One op of an image, and its converter's form."""
    b = Builder("one")
    x = b.input("x", TensorType((1, size, size, channels)))
    b.graph.outputs = [
        b.add(
            spec,
            [
                x,
                *(
                    b.const(RNG.normal(size=c).astype(np.float32), "c")
                    for c in constants
                ),
            ],
            "y",
        )
    ]
    return b.graph


def kinds(graph: Graph) -> list[str]:
    """Of the file's operators, in order."""
    made = int8_form(evenly(float_form(graph)))
    outside = borders(made)
    return [op.kind for op in made.ops if op not in outside]


def test_borders_are_pads_where_tflite_has_no_name_for_them() -> None:
    weights = (6, 3, 3, 4)
    assert kinds(built(Conv2D((2, 2), (1, 1, 1, 1)), weights)) == ["pad", "conv2d"]
    assert kinds(built(Conv2D((1, 1), (1, 1, 1, 1)), weights)) == ["conv2d"]  # SAME
    assert kinds(built(Conv2D((2, 2), (0, 1, 0, 1)), weights)) == ["conv2d"]  # SAME
    assert kinds(built(MaxPool2D((3, 3), (2, 2), (1, 1, 1, 1)))) == [
        "pad",
        "max_pool2d",
    ]


def test_a_clamp_is_two_operators_that_map_and_the_same_function() -> None:
    graph = built(Clamp(-0.5, 2.0))
    assert kinds(graph) == ["maximum", "minimum"]
    assert kinds(built(Clamp(None, 2.0))) == ["minimum"]
    assert kinds(built(Clamp(0.25, None))) == ["maximum"]
    x = {"x": RNG.normal(size=(1, 8, 8, 4)).astype(np.float32) * 3}
    np.testing.assert_array_equal(
        interp(float_form(graph), x)["y"], interp(graph, x)["y"]
    )


def test_a_grouped_convolution_is_split_and_the_same_function() -> None:
    graph = built(Conv2D((1, 1), (1, 1, 1, 1)), (6, 3, 3, 2))
    assert kinds(graph) == ["slice", "conv2d", "slice", "conv2d", "concat"]
    x = {"x": RNG.normal(size=(1, 8, 8, 4)).astype(np.float32)}
    np.testing.assert_allclose(
        interp(float_form(graph), x)["y"], interp(graph, x)["y"], rtol=1e-5
    )
    made = int8_form(evenly(float_form(graph)))
    outside = borders(made)
    places = stock_places(made, outside=outside)
    assert all(places[op] == ("cpu" if op in outside else "edgetpu") for op in made.ops)


def test_a_gelu_makes_the_compiler_give_up() -> None:
    made = int8_form(evenly(float_form(built(Gelu()))))
    stock = stock_of_graph(made, CpuCost(), LINKS["usb3"], "a file")
    assert gives_up(made.ops) == stock.gives_up == "GELU (y_int8) is newer than it"
    assert stock.column.tpu_ops == stock.every_set.tpu_ops == 0


def test_the_file_is_channels_last_and_int8(tmp_path: Path) -> None:
    """Conversions at the border are not operators of the file, and nobody pays for
    transposing an image.
    """
    model = read_model(MAKERS["mobilenet_like"](tmp_path / "m.onnx", 96))
    made = int8_form(evenly(float_form(optimize(model, UNDONE))))
    outside = borders(made)
    assert Counter(op.kind for op in outside) == {
        "quantize": 1,
        "transpose": 1,
        "dequantize": 1,
    }
    stock = stock_of_graph(made, CpuCost(), LINKS["usb3"], "a file")
    assert stock.column.tpu_ops == stock.column.ops == len(made.ops) - 3
    paid = [CpuCost().op_ms(op) for op in outside if op.kind != "transpose"]
    assert stock.column.cpu_ms == pytest.approx(2 * CALL_MS + sum(paid))


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param("yolov8n_like", 0.85, 0.96, marks=pytest.mark.slow),
        ("efficientnet_lite_like", 0.99, 1.0),
        ("mobilenet_like", 0.99, 1.0),
    ],
)
def test_both_columns_say_what_was_assumed(
    name: str, least: float, most: float, tmp_path: Path
) -> None:
    """By the logs YOLOv8n of 640 pixels has 230 of 254 operators mapped, MobileNet v2
    all.
    """
    path = MAKERS[name](tmp_path / f"{name}.onnx")
    report = explain_model(path, CompileOptions("pi4+coral"))
    text = to_text(report)
    stock = report.comparison.stock
    first = text.splitlines()[0]
    ours, theirs = first.split("; ")
    assert ours == "assumed: CPU only, edgec: made-up int8 scales"
    assert (
        theirs
        == "stock compiler: the file as onnx2tf and TFLite's int8 quantizer write it"
    )
    assert first in html.unescape(page(report))
    calibrated = to_text(replace(report, assumed_quantization=False)).splitlines()[0]
    # whole, in 120 columns
    assert calibrated == f"assumed: CPU only, edgec: calibrated scales; {theirs}"
    assert "stock compiler" in text.splitlines()[4]
    assert stock is not None
    assert least <= stock.column.tpu_ops_share <= most
    assert stock.column.tpu_macs_share > 0.999
    gain = report.comparison.gain()
    assert gain is not None
    assert 0.9 < gain["speedup"] < 2  # not the 80 x of a file that nobody would write
    left = [
        row for row in report.ops if row.refusals and row.refusals[0].rule == WORTHWHILE
    ]
    # what the CPU is faster at is left there
    assert gain["tpu_ops_share"] > -len(left) / stock.column.ops - 1e-9
    everything = explain_model(
        path, CompileOptions("pi4+coral", edgetpu="all")
    ).comparison
    assert report.comparison.edgec.est_ms <= min(
        everything.edgec.est_ms, report.comparison.cpu_only.est_ms
    )
    gain = everything.gain()
    assert gain is not None
    # both count the same: no border conversions, which no file has
    assert gain["tpu_ops_share"] > -1e-9
    assert gain["tpu_macs_share"] > -1e-9


def test_convolutions_of_the_logged_yolov8n(tmp_path: Path) -> None:
    """The log of 640 pixels: 7 of 7 PAD, 63 of 64 CONV_2D, 57 of 58 LOGISTIC, 57 of 59
    MUL, 6 of 8 ADD, and so on.
    """
    model = read_model(MAKERS["yolov8n_like"](tmp_path / "m.onnx"))
    made = int8_form(evenly(float_form(optimize(model, UNDONE))))
    places = stock_places(made, outside=borders(made))

    def count(kind: str) -> tuple[int, int]:
        ops = [op for op in made.ops if op.kind == kind]
        return sum(places[op] == "edgetpu" for op in ops), len(ops)

    assert {
        k: count(k)
        for k in ("pad", "conv2d", "logistic", "mul", "add", "sub", "slice", "softmax")
    } == {
        "pad": (7, 7),
        "conv2d": (63, 64),
        "logistic": (57, 58),
        "mul": (57, 59),
        "add": (6, 8),
        "sub": (0, 2),
        "slice": (16, 20),
        "softmax": (0, 1),
    }


def test_all_of_yolov8n_at_192_pixels_maps_as_its_log_says(tmp_path: Path) -> None:
    """257 of 257 operators, among them the TRANSPOSE of the largest head,
    [1,24,24,144].
    """
    model = read_model(MAKERS["yolov8n_like"](tmp_path / "m.onnx", 192))
    made = int8_form(evenly(float_form(optimize(model, UNDONE))))
    outside = borders(made)
    places = stock_places(made, outside=outside)
    assert not [op for op in made.ops if places[op] == "cpu" and op not in outside]
    transposes = [
        op.inputs[0].type.shape
        for op in made.ops
        if op.kind == "transpose" and op not in outside
    ]
    assert (1, 24, 24, 144) in transposes


@pytest.mark.sweep(2)
@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "YOLOv8n 160",
        "YOLOv5n 160",
        "YOLOv3-tiny",
        "MobileNet v2",
        "GG-CNN",
        "BlazeFace",
    ],
)
def test_shares_are_those_of_public_logs(name: str, shared: Path) -> None:
    """Of some networks; `make stock-table` compares all."""
    (row,) = stock_table.rows({name})
    assert row.name == name
    assert abs(row.apart) <= stock_table.POINTS or name in stock_table.KNOWN


def _dilated(
    spec: type[Conv2D | DepthwiseConv2D],
    kernel: tuple[int, int],
    dilation: tuple[int, int],
) -> Verdict:
    shape = (8, *kernel, 4) if spec is Conv2D else (1, *kernel, 4)
    b = Builder("one")
    x = b.input("x", TensorType((1, 118, 100, 4), "int8", Quant.per_tensor(0.1)))
    w = b.const(np.ones(shape, np.int8), "w", Quant.per_tensor(0.1))
    pads = tuple(
        (k - 1) * d // 2 for k, d in zip(kernel, dilation, strict=True) for _ in "ab"
    )
    y = b.add(
        spec((1, 1), (pads[0], pads[1], pads[2], pads[3]), dilation),
        [x, w],
        "y",
        Quant.per_tensor(0.1),
    )
    op: Op = b.graph.producers()[y]
    return Verdict(refusals(op))


@pytest.mark.parametrize("dilation", [(2, 1), (4, 1)])
def test_dilations_of_a_logged_temporal_network_map(dilation: tuple[int, int]) -> None:
    """fredriktegnell/edgetpu-tcn: three CONV_2D of 3x1 with dilations (1, 1), (2, 1),
    (4, 1), all three mapped.
    """
    assert _dilated(Conv2D, (3, 1), dilation).answer == "edgetpu"
    assert _dilated(Conv2D, (3, 3), dilation).answer == "uncertain"  # never seen
    # only dilations of 2 in both were seen
    assert _dilated(DepthwiseConv2D, (3, 1), dilation).answer == "cpu"


@pytest.mark.shared
def test_the_temporal_network_maps_as_its_log_says(
    shared: Path, tmp_path: Path
) -> None:
    maker = next(make for name, make, *_ in LOGGED if name == "temporal network")
    made = int8_form(
        evenly(float_form(optimize(read_model(maker(tmp_path / "m.onnx")), UNDONE)))
    )
    places = stock_places(made, outside=borders(made))
    mapped = sum(places[op] == "edgetpu" for op in made.ops if op.kind == "conv2d")
    (log,) = [
        e
        for e in stock_table.read_logs()
        if e["source"] == "fredriktegnell/edgetpu-tcn"
    ]
    assert mapped == sum(
        r["count"]
        for r in log["rows"]
        if r["op"] == "CONV_2D" and r["status"] == stock_table.MAPPED
    )
