"""Published latencies of the Edge TPU, and the network and place of each.

The times are those of the data folder: `latencies/latencies.jsonl`, two that
`edgetpu/support.md` names, and iwatake2222's of `edgetpu/cost_points.json`, whose
compiled files are known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import linear_regression
from typing import Any

from edgec_devices.boards import Board
from edgec_partitioner.cost import CLOCK_MHZ, OpWork, TpuWork

from benchmarks import edgetpu_detectors as detectors
from benchmarks import edgetpu_networks as networks
from benchmarks.cost_sizes import record_work
from benchmarks.edgetpu_networks import Net
from tests.networks.stages import EFFICIENTDET_LITE

Make = Callable[[], Net]
V1 = "mobilenet_v1_{}_quant"
POSE = "posenet_mobilenet_v1_075_{}_16_quant_decoder"
BODY = (64, 17, 34, 24, 1, 34)
"""Columns of BodyPix's outputs."""

NETWORKS: Mapping[str, tuple[Make, str]] = {
    "MobileNet V1 0.25 128": (
        lambda: networks.mobilenet_v1(128, 0.25),
        V1.format("0.25_128"),
    ),
    "MobileNet V1 0.5 160": (
        lambda: networks.mobilenet_v1(160, 0.5),
        V1.format("0.5_160"),
    ),
    "MobileNet V1 0.75 192": (
        lambda: networks.mobilenet_v1(192, 0.75),
        V1.format("0.75_192"),
    ),
    "MobileNet V1 1.0 224": (networks.mobilenet_v1, ""),
    "TF2 MobileNet V1": (networks.mobilenet_v1, ""),
    "MobileNet v1": (networks.mobilenet_v1, ""),
    "MobileNet v1 1.0": (networks.mobilenet_v1, ""),
    "MobileNet V2 1.0 224": (networks.mobilenet_v2, ""),
    "MobileNet V2 iNat Birds": (lambda: networks.mobilenet_v2(965), ""),
    "MobileNet V2 iNat Insects": (lambda: networks.mobilenet_v2(1022), ""),
    "MobileNet V2 iNat Plants": (lambda: networks.mobilenet_v2(2102), ""),
    "TF2 MobileNet V2": (networks.mobilenet_v2, ""),
    "MobileNet v2": (networks.mobilenet_v2, ""),
    "TF2 MobileNet V3 EdgeTPU": (networks.mobilenet_edgetpu, ""),
    "EfficientNet-EdgeTPU Small": (
        lambda: networks.efficientnet_edgetpu(224, 1.0, 1.0),
        "",
    ),
    "EfficientNet-EdgeTPU Medium": (
        lambda: networks.efficientnet_edgetpu(240, 1.1, 1.0),
        "",
    ),
    "EfficientNet-EdgeTPU Large": (
        lambda: networks.efficientnet_edgetpu(300, 1.4, 1.2),
        "",
    ),
    "Inception V1 (GoogLeNet)": (networks.inception_v1, ""),
    "Inception v1": (networks.inception_v1, ""),
    # Coral's only Inception of 224 besides V1 is V2; V3's parameters alone take longer.
    "Inception V3 224": (networks.inception_v2, ""),
    "Inception V3": (networks.inception_v3, ""),
    "Inception V4": (networks.inception_v4, ""),
    "Inception v4": (networks.inception_v4, ""),
    "TF Hub ResNet-50": (networks.resnet50, ""),
    "SSD MobileNet V1": (detectors.ssd_mobilenet_v1, ""),
    "SSDLite Mobilenet v1": (detectors.ssd_mobilenet_v1, ""),
    "SSD MobileNet v1 0.75 depth COCO": (
        lambda: detectors.ssd_mobilenet_v1(0.75),
        "",
    ),
    "SSD MobileNet V2": (detectors.ssd_mobilenet_v2, ""),
    "SSD MobileNet v2 COCO": (detectors.ssd_mobilenet_v2, ""),
    "TF2 SSD MobileNet V2": (lambda: detectors.ssd_mobilenet_v2(320), ""),
    "SSD MobileNet V2 Faces": (
        lambda: detectors.ssd_mobilenet_v2(320, classes=2),
        "",
    ),
    "SSDLite Mobilenet v2": (lambda: detectors.ssd_mobilenet_v2(lite=True), ""),
    "SSDLite MobileNetEdgeTPU": (detectors.ssdlite_mobilenet_edgetpu, ""),
    "SSDLite MobileDet-EdgeTPU": (detectors.ssdlite_mobiledet, ""),
    "SSDLite MobileDet": (detectors.ssdlite_mobiledet, ""),
    "MobileDet (default)": (detectors.ssdlite_mobiledet, ""),
    "SSD MobileDet (without NMS op)": (
        lambda: detectors.headless(detectors.ssdlite_mobiledet()),
        "",
    ),
    **{
        f"{start}{size}": (partial(detectors.efficientdet_lite, size), "")
        for start in ("EfficientDet-Lite", "EfficientDet-lite")
        for size in EFFICIENTDET_LITE
    },
    "PoseNet MNv1 353x481": (
        lambda: detectors.posenet(353, 481),
        POSE.format("353_481"),
    ),
    "PoseNet MNv1 481x641": (
        lambda: detectors.posenet(481, 641),
        POSE.format("481_641"),
    ),
    "PoseNet MNv1 721x1281": (
        lambda: detectors.posenet(721, 1281),
        POSE.format("721_1281"),
    ),
    "PoseNet MobileNet v1 (without decoder)": (
        lambda: detectors.posenet(481, 641),
        POSE.format("481_641"),
    ),
    "BodyPix MNv1": (
        lambda: detectors.posenet(512, 512, BODY),
        "bodypix_mobilenet_v1_075_512_512_16_quant_decoder",
    ),
    "DeepLabV3 MNv2 (Edge TPU part)": (
        detectors.deeplab,
        "deeplabv3_mnv2_pascal_quant",
    ),
    "U-Net MobileNetV2 128": (lambda: detectors.unet(128), ""),
    "U-Net MobileNetV2 256": (lambda: detectors.unet(256), ""),
    "RPS small CNN": (networks.rock_paper_scissors, ""),
}
"""What makes each network, and the name of its file among google-coral/test_data's, whose
instructions are counted in the data folder; "" where there is none.
"""

SWEEPS: Mapping[str, Callable[[int], Net]] = {
    "5 x conv 3x3 same relu, F filters, input 64x64x3, Num filters=": networks.conv_stack,
    "4 dense layers of N, input 64, Hidden neurons=": networks.dense_stack,
    "beautiful_mnist CNN, tall image of ": networks.mnist,
}
"""What makes the networks of a sweep, by the start of their names; a number follows."""

MNIST_CODE = 57_000
"""Bytes of instructions of tinycoral's MNIST networks, as it counted."""

UNUSED = {
    "tinycoral (own program": "another compiler and another driver",
    "tinycoral's own USB driver": "another driver",
    "TinyStories": "another compiler and another driver",
    "Popular US Products": "layers not known",
    "SpaghettiNet": "layers not known",
    "YOLOv9": "layers not written down",
    "FPN": "51,150 anchors: post-processing on the CPU",
    "MoveNet": "46 operations on the CPU",
    "DeepLab MobileNet EdgeTPU": "a mask of 513 × 513 × 19 is made on the CPU",
    "DeepLabV3 MNv2 dm0.5": "a mask of 513 × 513 × 21 is made on the CPU",
    "DeepLabV3 MNv2": "a mask of 513 × 513 × 21 is made on the CPU",
}
"""Rows that are not used, by a part of their model or runtime, and why."""

SLOW_CPU = "139 and 468 ms for one network on one board: post-processing on the CPU"
"""Why EfficientDet on a Raspberry Pi 2 and 3 is not used."""


@dataclass(frozen=True)
class Published:
    """One published time.

    Attributes:
        source: who published it
        link: usb3, usb2 or pcie
        host: the computer: a board of edgec's, "nano" (Jetson Nano) or "desktop"
        clock: of the chip, MHz; that of libedgetpu1-max where nothing is said
        network: its name
        ms: the time
        work: of the network on the chip
        ops: the work of its operations
        streamed: bytes of parameters that do not stay on the chip; None for an estimate
        cpu_ms: estimated time of post-processing on the host
    """

    source: str
    link: str
    host: str
    clock: int
    network: str
    ms: float
    work: TpuWork
    ops: tuple[OpWork, ...]
    streamed: int | None = None
    cpu_ms: float = 0.0

    @property
    def is_desktop(self) -> bool:
        """Whether the host is a desktop or a laptop."""
        return self.host == "desktop"


# ---- time on the CPU
# --------------------------------------------------------------------------------------

BOXES = ((10, 5.7), (25, 11.4), (50, 15.9), (100, 22.5))
"""ms of TFLite's detection post-processing on the Dev Board by the number of boxes;
2034 anchors with 91 scores.
"""

BOXES_BOARD = "coral-dev-board"

DESKTOP_RATE = 8.0
"""1e9 instructions a second of a desktop's core: assumed."""

THEN = {"pi4": 1.5, "pi2": 0.9, "pi3": 1.3}
"""GHz of boards when these were published. A Raspberry Pi 4 has 1.8 with the firmware of
2021 and later; pi2 is a Raspberry Pi 2, of the same core as pi3, pi3 the mean of the two
models.
"""


def post_process(net: Net, rate: float) -> float:
    """Return the ms of post-processing on a core of this many 1e9 instructions a second.

    Each score and each box takes its time, by a line through BOXES. The exporters'
    defaults say how many boxes there are: 10 in TensorFlow's detection API, 25 in
    EfficientDet-Lite.
    """
    slope, intercept = linear_regression(*zip(*BOXES, strict=True))
    score_ms = intercept / (2034 * 91)
    ms = (score_ms * net.classes * net.anchors + slope * net.boxes) * bool(net.anchors)
    return ms * core(BOXES_BOARD) / rate


def core(board: str, ghz: float | None = None) -> float:
    """Return the 1e9 instructions a second of a board's core, at a clock or its own."""
    b = Board.load("pi3" if board == "pi2" else board)
    return (ghz or b.clock_ghz) * b.ipc


def _rate(host: str) -> float:
    return DESKTOP_RATE if host == "desktop" else core(host, THEN.get(host))


LITERT = {"pi3": 1.9, "pi4": 3.4}
"""Multiply-accumulates per cycle of LiteRT's int8 kernels on MobileNetV2, one thread,
counted on an emulated core.
"""

CPU_ALONE = (
    ("SSDLite Mobilenet v2", "pi4", 168.2),
    ("SSDLite MobileDet", "pi4", 276.5),
    ("EfficientDet-Lite0", "pi4", 344.0),
    ("EfficientDet-Lite1", "pi4", 546.9),
    ("EfficientDet-Lite2", "pi4", 857.9),
    ("SSDLite Mobilenet v2", "pi3", 341.9),
)
"""Detectors by TFLite on the CPU: network, board and published ms (support.md 7.3)."""


def cpu_alone() -> Iterator[tuple[str, str, float, float]]:
    """Yield the network, board, published and estimated ms of CPU_ALONE."""
    for name, board, ms in CPU_ALONE:
        net = NETWORKS[name][0]()
        ghz = THEN["pi4"] if board == "pi4" else Board.load(board).clock_ghz
        compute = net.macs[0] / (LITERT[board] * ghz * 1e6)
        yield name, board, ms, compute + post_process(net, core(board, ghz))


# ---- the rows
# --------------------------------------------------------------------------------------

HOSTS = {
    "Raspberry Pi 4": "pi4",
    "Raspberry Pi 3": "pi3",
    "Raspberry Pi 2": "pi2",
    "Coral Dev Board": "coral-dev-board",
}
"""The board of a row by the start of its name; any other host is a desktop."""

OTHER_ROWS = (
    ("pi4", "usb3", 18.2),
    ("pi3", "usb2", 58.1),
)
"""aallan's times of SSD MobileNet v2 that `edgetpu/support.md` names: host, link, ms."""

STD = ("tinycoral", "Jorgitou98")
"""Sources with libedgetpu1-std, 250 MHz. tinycoral's faster MobileNet and its MNIST are
at 500; Jorgitou98 does not say, but the sweep's slope is that of 250.
"""


def published(shared: Path) -> list[Published]:
    """Return the published times whose network is known."""
    code = _code(shared)
    rows = [_known(row, code) for row in edgetpu_rows(shared) if unused(row) is None]
    for host, link, ms in OTHER_ROWS:
        net = detectors.ssd_mobilenet_v2()
        cpu = post_process(net, _rate(host))
        rows.append(
            Published(
                "aallan",
                link,
                host,
                CLOCK_MHZ,
                "SSD MobileNet v2 COCO",
                ms,
                net.work(),
                tuple(net.ops),
                None,
                cpu,
            )
        )
    return [*rows, *_points(shared)]


def edgetpu_rows(shared: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Edge TPU of latencies.jsonl."""
    with (shared / "latencies" / "latencies.jsonl").open() as file:
        for line in file:
            row = json.loads(line)
            if any(name in row["device"] for name in ("Edge TPU", "Coral")):
                yield row


def unused(row: Mapping[str, Any]) -> str | None:
    """Return why a row is not used, None if it is."""
    if row["model"] in NETWORKS and "tinycoral" not in row["runtime"]:
        slow = "EfficientDet" in row["model"] and _host(row) in ("pi2", "pi3")
        return SLOW_CPU if slow else None
    for part, why in UNUSED.items():
        if part in row["runtime"] or part in row["model"]:
            return why
    return None


def _known(row: Mapping[str, Any], code: Mapping[str, int]) -> Published:
    """Return the time of a row."""
    net, bytes_of_code = _network(row["model"], code)
    host = _host(row)
    source = row["source"].split("/")[0].split(" ")[0]
    source = "coral FAQ" if "FAQ" in row["source"] else source
    source = "tinycoral" if "tinycoral" in row["source"] else source
    fast = "MNIST" in row["model"] or "mnist" in row["model"] or row["ms"] == 2.45
    off_chip = float(row["off_chip"]) * 2**20 if "off_chip" in row else None
    return Published(
        source,
        _link(row),
        host,
        250 if source in STD and not fast else CLOCK_MHZ,
        row["model"],
        row["ms"],
        net.work(bytes_of_code),
        tuple(net.ops),
        None if off_chip is None else round(off_chip),
        post_process(net, _rate(host)),
    )


def _network(model: str, code: Mapping[str, int]) -> tuple[Net, int]:
    """Return a network by its name, and the size of its instructions, 0 if unknown."""
    if model in NETWORKS:
        make, file = NETWORKS[model]
        return make(), code.get(file, 0)
    for start, sweep in SWEEPS.items():
        if model.startswith(start):
            number = int(model.removeprefix(start))
            return sweep(number), MNIST_CODE if sweep is networks.mnist else 0
    # "dense N x K 288x768" and "Dense 256x256"
    outputs, inputs = (int(n) for n in model.split(" ")[-1].split("x"))
    return networks.dense(inputs, outputs), 0


def _host(row: Mapping[str, Any]) -> str:
    starts = (host for start, host in HOSTS.items() if row["board"].startswith(start))
    return next(starts, "desktop")


def _link(row: Mapping[str, Any]) -> str:
    """Return the link; where it is not stated, that of the host."""
    for link in ("USB2", "USB3", "PCIe"):
        if link in row["device"]:
            return link.lower()
    where = row["board"] + row["source"]
    return "pcie" if "Dev Board" in where or "Jorgitou98" in where else "usb3"


def _code(shared: Path) -> dict[str, int]:
    """Return the bytes of instructions of google-coral/test_data's compiled files."""
    sizes = {}
    for m in json.loads((shared / "edgetpu" / "ground_truth.json").read_text()):
        if m["source"] == "google-coral/test_data" and len(m["custom_ops"]) == 1:
            name = m["compiled"].split("/")[-1].removesuffix("_edgetpu.tflite")
            sizes[name] = _execution(m)["instr_bytes"]
    return sizes


def _execution(m: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the program of a compiled file that runs with each inference."""
    parts: list[Mapping[str, Any]] = m["custom_ops"][0]["executables"]
    return next(e for e in parts if e["type"] != "PARAMETER_CACHING")


def _points(shared: Path) -> Iterator[Published]:
    """Yield iwatake2222's times over USB 3 and USB 2, with the sizes of the files."""
    folder = shared / "edgetpu"
    ops = {
        m["compiled"].split("/")[-1].replace("_edgetpu", ""): tuple(
            record_work(op) for op in m["ops"] if op["mapped"]
        )
        for m in json.loads((folder / "ground_truth.json").read_text())
        if m["source"] == "iwatake2222/EdgeTPU_Analysis"
    }
    for p in json.loads((folder / "cost_points.json").read_text())["points"]:
        name = p["model"].split("/")[-1]
        work = TpuWork(
            p["in_bytes"],
            p["out_bytes_padded"],
            p["instr_bytes"],
            p["streamed_param_bytes"] + p["cached_param_bytes"],
            sum(o.cycles for o in ops[name]) / 1e6,
        )
        for link in ("usb3", "usb2"):
            if ms := p[f"{link}_ms"]:
                streamed = p["streamed_param_bytes"]
                yield Published(
                    "iwatake2222",
                    link,
                    "nano",
                    CLOCK_MHZ,
                    name,
                    ms,
                    work,
                    ops[name],
                    streamed,
                )
