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
from statistics import linear_regression

from edgec_devices.boards import Board
from edgec_partitioner.cost import CODE, CYCLES, LINKS, OpWork, TpuWork, streamed_bytes


@dataclass
class Net:
    """A network under construction.

    Attributes:
        height: of the current image
        width: of the current image
        channels: of the current image
        ops: the work of each op so far
    """

    height: int
    width: int
    channels: int
    ops: list[OpWork] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bytes_in = self.height * self.width * self.channels
        self.bytes_out = 0

    @property
    def elements(self) -> int:
        """The elements of the current image."""
        return self.height * self.width * self.channels

    @property
    def macs(self) -> int:
        """The multiply-accumulates of the convolutions."""
        return sum(o.dense_macs + o.depthwise_macs for o in self.ops)

    def conv(
        self, channels: int, kernel: int = 1, stride: int = 1, same: bool = True
    ) -> Net:
        """Add a convolution with its bias and a fused activation."""
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
        """Add a depthwise convolution with its bias."""
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
        """Add a pool of size × size."""
        before = self.elements
        self.height = self.height // size
        self.width = self.width // size
        return self._add(OpWork(0, 0, self.elements, before + self.elements, 0))

    def dense(self, units: int) -> Net:
        """Add a fully connected layer on the whole image."""
        constants = units * (self.elements + 4)
        before = self.elements
        self.height = 1
        self.width = 1
        self.channels = units
        return self._add(OpWork(0, 0, units, before + units, constants))

    def same(self, count: int = 1, inputs: int = 2) -> Net:
        """Add elementwise ops of some images: additions, or activations of one."""
        for _ in range(count):
            self._add(OpWork(0, 0, self.elements, (inputs + 1) * self.elements, 0))
        return self

    def branch(self) -> Net:
        """Return a branch from the current image, whose ops count here too."""
        twin = Net(self.height, self.width, self.channels)
        twin.ops = self.ops
        return twin

    def output(self, rows: int, columns: int) -> None:
        """Add an output tensor, whose columns are padded to a multiple of 4."""
        self.bytes_out += rows * -(-columns // 4) * 4

    def work(self) -> TpuWork:
        """Return the work of all ops as one segment."""
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
    """Add MobileNetV2's inverted bottleneck; return the image after the expansion, which
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
    """Add MobileNetV2 up to its last convolution of 1280 channels; return the image that
    SSD reads first (576 channels, stride 16).
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
    """Add MobileDet's backbone for the Edge TPU, of TensorFlow's object detection API;
    return its image C4.
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
    """Add SSD's four further images and its heads on six; return the number of anchors.

    Args:
        net: the backbone
        first: the image of the first head
        lite: whether a depthwise convolution is before each other one
        classes: the number of classes
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
    """A network with post-processing on the CPU.

    Attributes:
        net: the network
        anchors: the number of anchors
        classes: the number of scores of an anchor
        boxes: the number of boxes that come out
    """

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
    """Return the ms of post-processing on a core of this many 1e9 instructions a second.

    Each score and each box takes its time, by a line through BOXES. The exporters'
    defaults say how many boxes there are: 10 in TensorFlow's detection API, 25 in
    EfficientDet-Lite.
    """
    slope, intercept = linear_regression(*zip(*BOXES, strict=True))
    score_ms = intercept / (2034 * 91)
    ms = score_ms * d.anchors * d.classes + slope * d.boxes
    return ms * core(BOXES_BOARD) / rate


def core(board: str, ghz: float | None = None) -> float:
    """Return the 1e9 instructions a second of a board's core, at a clock or its own."""
    b = Board.load(board)
    return (ghz or b.clock_ghz) * b.ipc


LITERT = {"pi3": 1.9, "pi4": 3.4}
"""Multiply-accumulates per cycle of LiteRT's int8 kernels on MobileNetV2, one thread,
counted on an emulated core.
"""


@dataclass(frozen=True)
class Prediction:
    """A published time and the model's.

    Attributes:
        network: the network
        place: the board and the link
        published: the published time, ms
        parts: the parts of the model's time, ms
    """

    network: str
    place: str
    published: float
    parts: dict[str, float]

    @property
    def predicted(self) -> float:
        """The model's time, ms."""
        return sum(self.parts.values())

    @property
    def error(self) -> float:
        """The relative error of the model."""
        return self.predicted / self.published - 1


PI4_THEN = 1.5
"""GHz of a Raspberry Pi 4 when these were published; firmware of 2021 and later sets
1.8.
"""

Network = tuple[str, Callable[[], Detector]]
"""The name of a network, and what makes it."""
MOBILENET: Network = ("SSDLite MobileNetV2 300", ssdlite_mobilenet_v2)
MOBILEDET: Network = ("SSDLite MobileDet 320", ssdlite_mobiledet)
LITE0: Network = (
    "EfficientDet-Lite0 320",
    lambda: efficientdet_lite(320, 1.0, 1.0, 64, 3),
)
LITE1: Network = (
    "EfficientDet-Lite1 384",
    lambda: efficientdet_lite(384, 1.0, 1.1, 88, 4),
)
LITE2: Network = (
    "EfficientDet-Lite2 448",
    lambda: efficientdet_lite(448, 1.1, 1.2, 112, 5),
)
SSD: Network = ("SSD MobileNetV2 300", ssd_mobilenet_v2)
DETECTORS = (
    (MOBILENET, "pi4", "usb3", 14.8),
    (MOBILEDET, "pi4", "usb3", 14.8),
    (LITE0, "pi4", "usb3", 99.8),
    (LITE1, "pi4", "usb3", 141.2),
    (LITE2, "pi4", "usb3", 219.8),
    (SSD, "pi4", "usb3", 18.2),
    (SSD, "pi3", "usb2", 58.1),
    (MOBILENET, "pi3", "usb2", 60.6),
    (SSD, "coral-dev-board", "pcie", 20.9),
)
"""Detectors with an Edge TPU: network, board, link and published ms."""
SMALL_CNN = (
    ("pi4", "usb3", 1.4),
    ("pi3", "usb2", 5.0),
    ("coral-dev-board", "pcie", 1.3),
)
"""The small CNN with an Edge TPU: board, link and published ms."""
CPU_ALONE = (
    (MOBILENET, "pi4", 168.2),
    (MOBILEDET, "pi4", 276.5),
    (LITE0, "pi4", 344.0),
    (LITE1, "pi4", 546.9),
    (LITE2, "pi4", 857.9),
    (MOBILENET, "pi3", 341.9),
)
"""Detectors by TFLite on the CPU: network, board and published ms."""


def predictions() -> list[Prediction]:
    """Return the published times of boards whose network is known."""
    rows = []
    for (name, make), board, link, ms in DETECTORS:
        detector = make()
        parts = _edgetpu_parts(detector.net, link)
        parts["post-process"] = post_process(detector, core(board, _then(board)))
        rows.append(Prediction(name, f"{board}, {link}", ms, parts))
    for board, link, ms in SMALL_CNN:
        parts = _edgetpu_parts(rock_paper_scissors(), link)
        rows.append(Prediction("small CNN", f"{board}, {link}", ms, parts))
    for (name, make), board, ms in CPU_ALONE:
        detector = make()
        ghz = _then(board) or Board.load(board).clock_ghz
        parts = {
            "compute": detector.net.macs / (LITERT[board] * ghz * 1e6),
            "post-process": post_process(detector, core(board, _then(board))),
        }
        rows.append(Prediction(name, f"{board}, TFLite, 1 thread", ms, parts))
    return rows


def _then(board: str) -> float | None:
    """Return the clock of a board at that time, GHz; None if it is still the same."""
    return PI4_THEN if board == "pi4" else None


def _edgetpu_parts(net: Net, link: str) -> dict[str, float]:
    work = net.work()
    (streamed,) = streamed_bytes([work])
    return work.parts(LINKS[link], streamed).parts()
