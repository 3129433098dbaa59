"""Published latencies (support.md 7.3) and what the cost model says of them, from the
networks' layers.

The networks are not in the data folder, so their layers are written down here from
their papers and public sources. No figure has a factor of its own. That the compiled
file has more parameters for depthwise weights (cost.LAYOUT) was seen when the small CNN
came out 33 % too slow; its factors are fitted to compiled files alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from edgec_devices.boards import Board
from edgec_partitioner.cost import CODE, CYCLES, LINKS, OpWork, TpuWork, streamed_bytes

# ---- networks
# --------------------------------------------------------------------------------------


@dataclass
class Net:
    """A network under construction: the image so far, and the work of every op."""

    height: int
    width: int
    channels: int
    ops: list[OpWork] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes_in = self.height * self.width * self.channels
        self.bytes_out = 0

    @property
    def elements(self) -> int:
        """Of the current image."""
        return self.height * self.width * self.channels

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the convolutions."""
        return sum(o.dense_macs + o.depthwise_macs for o in self.ops)

    def conv(
        self, channels: int, kernel: int = 1, stride: int = 1, same: bool = True
    ) -> Net:
        """A convolution with its bias; the activation is fused."""
        before = self.elements
        old = self.channels
        constants = channels * (kernel * kernel * self.channels + 4)
        self._shrink(kernel, stride, same)
        self.channels = channels
        macs = self.elements * kernel * kernel * old
        return self._add(
            OpWork(macs, 0, self.elements, before + self.elements, constants)
        )

    def depthwise(self, kernel: int = 3, stride: int = 1) -> Net:
        """A depthwise convolution with its bias."""
        before = self.elements
        constants = self.channels * (kernel * kernel + 4)
        self._shrink(kernel, stride, True)
        return self._add(
            OpWork(
                0,
                self.elements * kernel**2,
                self.elements,
                before + self.elements,
                constants,
            )
        )

    def pool(self, size: int) -> Net:
        """Maximum over size × size."""
        before = self.elements
        self.height = self.height // size
        self.width = self.width // size
        return self._add(OpWork(0, 0, self.elements, before + self.elements, 0))

    def dense(self, units: int) -> Net:
        """A fully connected layer on everything."""
        constants = units * (self.elements + 4)
        before = self.elements
        self.height = 1
        self.width = 1
        self.channels = units
        return self._add(OpWork(0, 0, units, before + units, constants))

    def same(self, count: int = 1, inputs: int = 2) -> Net:
        """Elementwise ops: additions of `inputs` images, or activations."""
        for _ in range(count):
            self._add(OpWork(0, 0, self.elements, (inputs + 1) * self.elements, 0))
        return self

    def branch(self) -> Net:
        """The same image; what is added there counts here."""
        twin = Net(self.height, self.width, self.channels)
        twin.ops = self.ops
        return twin

    def output(self, rows: int, columns: int) -> None:
        """An output tensor: channels are padded to 4."""
        self.bytes_out += rows * -(-columns // 4) * 4

    def work(self) -> TpuWork:
        """All of it as one segment."""
        code = CODE["segment"] + sum(o.code for o in self.ops)
        cycles = CYCLES["segment"] + sum(o.cycles for o in self.ops)
        parameters = sum(o.parameters for o in self.ops)
        return TpuWork(
            self.bytes_in, self.bytes_out, round(code), parameters, cycles / 1e6
        )

    def _shrink(self, kernel: int, stride: int, same: bool) -> None:
        lost = 0 if same else kernel - 1
        self.height = -(-(self.height - lost) // stride)
        self.width = -(-(self.width - lost) // stride)

    def _add(self, work: OpWork) -> Net:
        self.ops.append(work)
        return self


def _bottleneck(
    net: Net, channels: int, expand: int, kernel: int = 3, stride: int = 1
) -> Net:
    """MobileNetV2's inverted bottleneck; returns the image after the expansion, which
    SSD may read.
    """
    alike = stride == 1 and net.channels == channels
    if expand > 1:
        net.conv(net.channels * expand)
    inner = net.branch()
    net.depthwise(kernel, stride).conv(channels)
    if alike:
        net.same()
    return inner


def _fused(
    net: Net, channels: int, expand: int, kernel: int = 3, stride: int = 1
) -> None:
    alike = stride == 1 and net.channels == channels
    net.conv(net.channels * expand, kernel, stride).conv(channels)
    if alike:
        net.same()


def _mobilenet_v2(net: Net) -> Net:
    """To the last convolution of 1280 channels; returns the image that SSD reads first
    (576 channels, stride 16).
    """
    net.conv(32, 3, 2)
    first = net
    for expand, channels, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(count):
            inner = _bottleneck(net, channels, expand, 3, stride if i == 0 else 1)
            if channels == 160 and i == 0:
                first = inner
    net.conv(1280)
    return first


def _mobiledet(net: Net) -> Net:
    """MobileDet's backbone for the Edge TPU (TensorFlow's object detection API);
    returns its C4.
    """
    net.conv(32, 3, 2).conv(8).conv(16, 3).conv(16)
    for channels, expand, kernel, stride, fused in (
        (16, 8, 3, 2, True),
        (16, 4, 3, 1, True),
        (16, 8, 3, 1, True),
        (16, 4, 3, 1, True),
        (40, 8, 5, 2, True),
        (40, 4, 3, 1, True),
        (40, 4, 3, 1, True),
        (40, 4, 3, 1, True),
        (72, 8, 3, 2, False),
        (72, 8, 3, 1, False),
        (72, 4, 3, 1, True),
        (72, 4, 3, 1, True),
        (96, 8, 5, 1, False),
        (96, 8, 5, 1, False),
        (96, 8, 3, 1, False),
        (96, 8, 3, 1, False),
    ):
        (_fused if fused else _bottleneck)(net, channels, expand, kernel, stride)
    c4 = net.branch()
    for channels, expand, kernel, stride in (
        (120, 8, 5, 2),
        (120, 8, 3, 1),
        (120, 4, 5, 1),
        (120, 8, 3, 1),
        (384, 8, 5, 1),
    ):
        _bottleneck(net, channels, expand, kernel, stride)
    return c4


def _ssd(net: Net, first: Net, lite: bool, classes: int = 91) -> int:
    """SSD's four further images and its heads on six; returns the number of anchors.
    lite: depthwise before each.
    """
    anchors = 0
    images = [first, net.branch()]
    for channels in (512, 256, 256, 128):
        net.conv(channels // 2)
        if lite:
            net.depthwise(3, 2).conv(channels)
        else:
            net.conv(channels, 3, 2)
        images.append(net.branch())
    for i, image in enumerate(images):
        each = 3 if i == 0 else 6
        anchors += image.height * image.width * each
        for columns in (4, classes):
            head = image.branch()
            (head.depthwise() if lite else head).conv(each * columns)
            head.same(inputs=1)  # the reshape to [anchors, columns]
    for columns in (4, classes):
        net.output(anchors, columns)
        # the concatenation
        net._add(OpWork(0, 0, anchors * columns, 2 * anchors * columns, 0))
    net._add(OpWork(0, 0, anchors * classes, 2 * anchors * classes, 0))  # the logistic
    return anchors


@dataclass(frozen=True)
class Detector:
    """A network, and what its post-processing on the CPU has to look at and to return."""

    net: Net
    anchors: int
    classes: int
    boxes: int


def ssdlite_mobilenet_v2(size: int = 300) -> Detector:
    """SSDLite on MobileNetV2 1.0."""
    net = Net(size, size, 3)
    return Detector(net, _ssd(net, _mobilenet_v2(net), True), 91, 10)


def ssd_mobilenet_v2(size: int = 300) -> Detector:
    """SSD on MobileNetV2 1.0, heads of 1 × 1."""
    net = Net(size, size, 3)
    return Detector(net, _ssd(net, _mobilenet_v2(net), False), 91, 10)


def ssdlite_mobiledet(size: int = 320) -> Detector:
    """SSDLite on MobileDet for the Edge TPU."""
    net = Net(size, size, 3)
    return Detector(net, _ssd(net, _mobiledet(net), True), 91, 10)


_B0 = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def efficientdet_lite(
    size: int, width: float, depth: float, fpn: int, cells: int
) -> Detector:
    """EfficientDet-Lite: EfficientNet-Lite (stem and first and last stage of fixed
    depth), BiFPN, shared heads of 3.
    """
    net = Net(size, size, 3)
    net.conv(32, 3, 2)
    levels = list[Net]()
    for i, (expand, channels, count, stride, kernel) in enumerate(_B0):
        scaled = max(8, int(channels * width + 4) // 8 * 8)
        for k in range(count if i in (0, len(_B0) - 1) else -int(-count * depth // 1)):
            _bottleneck(net, scaled, expand, kernel, stride if k == 0 else 1)
        if i in (2, 4, 6):
            levels.append(net.branch())
    for _ in range(2):
        levels.append(levels[-1].branch().conv(fpn).pool(2))
        levels[-1].height = -(-levels[-2].height // 2)
        levels[-1].width = -(-levels[-2].width // 2)
    pyramid = [level.branch().conv(fpn) for level in levels]
    for _ in range(cells):
        for image in (*pyramid[:-1], *pyramid[1:]):  # down, then up
            node = image.branch().same(2)  # resize or pool, then the sum
            node.depthwise().conv(fpn)
    anchors = 0
    for image in pyramid:
        anchors += image.height * image.width * 9
        for columns in (4, 90):
            head = image.branch()
            for _ in range(3):
                head.depthwise().conv(fpn)
            head.depthwise().conv(9 * columns).same(inputs=1)
    for columns in (4, 90):
        net.output(anchors, columns)
        net._add(OpWork(0, 0, anchors * columns, 2 * anchors * columns, 0))
    return Detector(net, anchors, 90, 25)


def rock_paper_scissors() -> Net:
    """The small CNN of EscVM/RPS_with_Edge_TPU (its training notebook)."""
    net = Net(150, 150, 3)
    for channels in (64, 64, 128, 128):
        net.conv(channels, 3, same=False).pool(2)
    net.dense(512).dense(3).same(inputs=1)
    net.output(1, 3)
    return net


# ---- time on the CPU
# --------------------------------------------------------------------------------------

BOXES = ((10, 5.7), (25, 11.4), (50, 15.9), (100, 22.5))
"""ms of TFLite's detection post-processing on the Dev Board by the number of boxes;
2034 anchors with 91 scores.
"""

BOXES_BOARD = "coral-dev-board"


def post_process(d: Detector, rate: float) -> float:
    """ms on a core of this many 1e9 instructions per second: so much for each score and
    each box, a line through BOXES.

    The exporters' defaults say how many boxes there are: 10 in TensorFlow's detection
    API, 25 in EfficientDet-Lite.
    """
    n = len(BOXES)
    mean_x = sum(b for b, _ in BOXES) / n
    mean_y = sum(t for _, t in BOXES) / n
    slope = sum((b - mean_x) * (t - mean_y) for b, t in BOXES) / sum(
        (b - mean_x) ** 2 for b, _ in BOXES
    )
    each = (mean_y - slope * mean_x) / (2034 * 91)
    return (each * d.anchors * d.classes + slope * d.boxes) * core(BOXES_BOARD) / rate


def core(board: str, ghz: float | None = None) -> float:
    """1e9 instructions per second of a board's core, at the clock it had then."""
    b = Board.load(board)
    return (ghz or b.clock_ghz) * b.ipc


LITERT = {"pi3": 1.9, "pi4": 3.4}
"""Multiply-accumulates per cycle of LiteRT's int8 kernels on MobileNetV2, one thread,
counted on an emulated core.
"""

# ---- what was published
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prediction:
    """A published time and the model's, in ms. parts: of the latter."""

    what: str
    where: str
    published: float
    predicted: float
    parts: dict[str, float]

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.published - 1


PI4_THEN = 1.5
"""GHz of a Raspberry Pi 4 when these were published; firmware of 2021 and later sets
1.8.
"""

DETECTORS: tuple[tuple[str, Callable[[], Detector], str, str, float], ...] = (
    ("SSDLite MobileNetV2 300", ssdlite_mobilenet_v2, "pi4", "usb3", 14.8),
    ("SSDLite MobileDet 320", ssdlite_mobiledet, "pi4", "usb3", 14.8),
    (
        "EfficientDet-Lite0 320",
        lambda: efficientdet_lite(320, 1.0, 1.0, 64, 3),
        "pi4",
        "usb3",
        99.8,
    ),
    (
        "EfficientDet-Lite1 384",
        lambda: efficientdet_lite(384, 1.0, 1.1, 88, 4),
        "pi4",
        "usb3",
        141.2,
    ),
    (
        "EfficientDet-Lite2 448",
        lambda: efficientdet_lite(448, 1.1, 1.2, 112, 5),
        "pi4",
        "usb3",
        219.8,
    ),
    ("SSD MobileNetV2 300", ssd_mobilenet_v2, "pi4", "usb3", 18.2),
    ("SSD MobileNetV2 300", ssd_mobilenet_v2, "pi3", "usb2", 58.1),
    ("SSDLite MobileNetV2 300", ssdlite_mobilenet_v2, "pi3", "usb2", 60.6),
    ("SSD MobileNetV2 300", ssd_mobilenet_v2, "coral-dev-board", "pcie", 20.9),
)

CPU_ALONE: tuple[tuple[str, Callable[[], Detector], str, float], ...] = (
    ("SSDLite MobileNetV2 300", ssdlite_mobilenet_v2, "pi4", 168.2),
    ("SSDLite MobileDet 320", ssdlite_mobiledet, "pi4", 276.5),
    ("EfficientDet-Lite0 320", DETECTORS[2][1], "pi4", 344.0),
    ("EfficientDet-Lite1 384", DETECTORS[3][1], "pi4", 546.9),
    ("EfficientDet-Lite2 448", DETECTORS[4][1], "pi4", 857.9),
    ("SSDLite MobileNetV2 300", ssdlite_mobilenet_v2, "pi3", 341.9),
)


def predictions() -> list[Prediction]:
    """All published figures of a Raspberry Pi whose network is known, and some others."""
    found = list[Prediction]()
    for name, make, board, link, published in DETECTORS:
        d = make()
        parts = _tpu(d.net, link) | {"post-process": post_process(d, _then(board))}
        found.append(
            Prediction(name, f"{board}, {link}", published, sum(parts.values()), parts)
        )
    for board, link, published in (
        ("pi4", "usb3", 1.4),
        ("pi3", "usb2", 5.0),
        ("coral-dev-board", "pcie", 1.3),
    ):
        parts = _tpu(rock_paper_scissors(), link)
        found.append(
            Prediction(
                "small CNN", f"{board}, {link}", published, sum(parts.values()), parts
            )
        )
    for name, make, board, published in CPU_ALONE:
        d = make()
        ghz = PI4_THEN if board == "pi4" else Board.load(board).clock_ghz
        parts = {
            "compute": d.net.macs / (LITERT[board] * ghz * 1e6),
            "post-process": post_process(d, _then(board)),
        }
        found.append(
            Prediction(
                name,
                f"{board}, TFLite, 1 thread",
                published,
                sum(parts.values()),
                parts,
            )
        )
    return found


def _then(board: str) -> float:
    return core(board, PI4_THEN if board == "pi4" else None)


def _tpu(net: Net, link: str) -> dict[str, float]:
    work = net.work()
    (streamed,) = streamed_bytes([work])
    return work.parts(LINKS[link], streamed).parts()
