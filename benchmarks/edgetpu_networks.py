"""Networks whose times on an Edge TPU were published, written down layer by layer.

They are not in the data folder; their layers are from their papers and public sources.
No figure has a factor of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from edgec_partitioner.cost import (
    CODE,
    OpWork,
    TpuWork,
    convolution,
    depthwise,
    fully_connected,
)

from tests.networks.stages import MOBILENET_V2, rounded

Kernel = int | tuple[int, int]
Convs = list[tuple[int, Kernel]]
"""Channels and kernels of convolutions, one after the other."""


@dataclass
class Net:
    """A network under construction.

    Attributes:
        height: of the current image
        width: of the current image
        channels: of the current image
        ops: the work of each op so far
        macs: the multiply-accumulates of the convolutions so far, in a list of one
    """

    height: int
    width: int
    channels: int
    ops: list[OpWork] = field(default_factory=list)
    macs: list[int] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.bytes_in = self.elements
        self.bytes_out = 0
        self.anchors = 0
        self.classes = 0
        self.boxes = 0

    @property
    def elements(self) -> int:
        """The elements of the current image."""
        return self.height * self.width * self.channels

    def conv(
        self, channels: int, kernel: Kernel = 1, stride: int = 1, same: bool = True
    ) -> Net:
        """Add a convolution with its bias and a fused activation."""
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        before, depth = self.elements, self.channels
        self._shrink(high, wide, stride, same)
        self.channels = channels
        positions = self.height * self.width
        self.macs[0] += self.elements * high * wide * depth
        touched = before + self.elements
        return self.add(convolution(positions, high * wide, depth, channels, touched))

    def transposed(self, channels: int) -> Net:
        """Add a transposed convolution of 3 × 3 that doubles the image."""
        before, depth, positions = (
            self.elements,
            self.channels,
            self.height * self.width,
        )
        self.height, self.width, self.channels = (
            2 * self.height,
            2 * self.width,
            channels,
        )
        touched = before + self.elements
        return self.add(convolution(positions, 9, depth, channels, touched))

    def depthwise(self, kernel: int = 3, stride: int = 1) -> Net:
        """Add a depthwise convolution with its bias."""
        before = self.elements
        self._shrink(kernel, kernel, stride, True)
        self.macs[0] += self.elements * kernel**2
        return self.add(depthwise(kernel**2, self.channels, before + self.elements))

    def pool(self, size: int, stride: int = 0, same: bool = False) -> Net:
        """Add a pool of size × size; the stride is the size where it is 0."""
        before = self.elements
        self._shrink(size, size, stride or size, same)
        return self.add(OpWork(0, before + self.elements, 0))

    def mean(self) -> Net:
        """Add the mean of the whole image."""
        before = self.elements
        self.height = self.width = 1
        return self.add(OpWork(0, before + self.elements, 0))

    def dense(self, units: int) -> Net:
        """Add a fully connected layer on the whole image."""
        before = self.elements
        self.height, self.width, self.channels = 1, 1, units
        return self.add(fully_connected(before, units, before + units))

    def same(self, count: int = 1, inputs: int = 2) -> Net:
        """Add elementwise ops of some images: additions, or activations of one."""
        for _ in range(count):
            self.add(OpWork(0, (inputs + 1) * self.elements, 0))
        return self

    def concat(self, channels: int) -> Net:
        """Join branches: the image has this many channels now."""
        self.channels = channels
        return self.same(inputs=1)

    def reshape(self) -> Net:
        """Add a reshape, which costs instructions only."""
        return self.add(OpWork(0, 0, 0))

    def branch(self) -> Net:
        """Return a branch from the current image, whose ops count here too."""
        return Net(self.height, self.width, self.channels, self.ops, self.macs)

    def output(self, rows: int, columns: int) -> Net:
        """Add an output tensor, whose columns are padded to a multiple of 4."""
        self.bytes_out += rows * -(-columns // 4) * 4
        return self

    def classifier(self, classes: int = 1001) -> Net:
        """Add mean, fully connected layer and softmax, and their output."""
        return self.mean().dense(classes).same(inputs=1).output(1, classes)

    def work(self, code: int = 0) -> TpuWork:
        """Return the work of all ops as one segment.

        `code` is the size of its instructions in bytes where that is known.
        """
        estimate = CODE["segment"] + sum(o.code for o in self.ops)
        return TpuWork(
            self.bytes_in,
            self.bytes_out,
            code or round(estimate),
            sum(o.parameters for o in self.ops),
            sum(o.cycles for o in self.ops) / 1e6,
        )

    def _shrink(self, high: int, wide: int, stride: int, same: bool) -> None:
        lost = (0, 0) if same else (high - 1, wide - 1)
        self.height = -(-(self.height - lost[0]) // stride)
        self.width = -(-(self.width - lost[1]) // stride)

    def add(self, work: OpWork) -> Net:
        """Add an op."""
        self.ops.append(work)
        return self


# ---- MobileNet and EfficientNet
# --------------------------------------------------------------------------------------


def bottleneck(
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
) -> Net:
    """Add a bottleneck whose expansion is a dense convolution."""
    alike = stride == 1 and net.channels == channels
    inner = net.conv(net.channels * expand, kernel, stride).branch()
    net.conv(channels)
    if alike:
        net.same()
    return inner


def mobilenet_v1_backbone(
    net: Net, width: float, tail: Sequence[tuple[int, int]] = ((1024, 2), (1024, 1))
) -> list[Net]:
    """Add MobileNetV1 without its head; return the image after each block. `tail` has
    the channels and strides of the last two.
    """
    net.conv(int(32 * width), 3, 2)
    images = []
    blocks = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
    for channels, stride in (*blocks, *((512, 1),) * 5, *tail):
        net.depthwise(3, stride).conv(int(channels * width))
        images.append(net.branch())
    return images


def mobilenet_v2_backbone(net: Net, strides: int = 32) -> list[Net]:
    """Add MobileNetV2 without its last convolution; return the image after the expansion
    of each stage's first block. Stages beyond `strides` have a stride of 1, dilated.
    """
    net.conv(32, 3, 2)
    images = []
    now = 2
    for expand, channels, count, stride, kernel in MOBILENET_V2:
        step = stride if now * stride <= strides else 1
        now *= step
        for i in range(count):
            inner = bottleneck(net, channels, expand, kernel, step if i == 0 else 1)
            if i == 0:
                images.append(inner)
    return images


def mobilenet_edgetpu_backbone(net: Net) -> Net:
    """Add MobileNetEdgeTPU without its head; return the image that SSD reads first."""
    net.conv(32, 3, 2).conv(16)
    image = net
    for channels, first, others, kernel, stride, add in (
        (32, 8, 4, 3, 2, _fused),
        (48, 8, 4, 3, 2, _fused),
        (96, 8, 4, 3, 2, bottleneck),
        (96, 8, 4, 3, 1, bottleneck),
        (160, 8, 4, 5, 2, bottleneck),
    ):
        image = add(net, channels, first, kernel, stride)
        for _ in range(3):
            add(net, channels, others, kernel)
    bottleneck(net, 192, 8)
    return image


def mobiledet_backbone(net: Net) -> Net:
    """Add MobileDet's backbone for the Edge TPU, of TensorFlow's object detection API;
    return its image C4.
    """
    net.conv(32, 3, 2).conv(8).conv(16, 3).conv(16)
    for channels, expand, kernel, stride, add in (
        (16, 8, 3, 2, _fused),
        (16, 4, 3, 1, _fused),
        (16, 8, 3, 1, _fused),
        (16, 4, 3, 1, _fused),
        (40, 8, 5, 2, _fused),
        (40, 4, 3, 1, _fused),
        (40, 4, 3, 1, _fused),
        (40, 4, 3, 1, _fused),
        (72, 8, 3, 2, bottleneck),
        (72, 8, 3, 1, bottleneck),
        (72, 4, 3, 1, _fused),
        (72, 4, 3, 1, _fused),
        (96, 8, 5, 1, bottleneck),
        (96, 8, 5, 1, bottleneck),
        (96, 8, 3, 1, bottleneck),
        (96, 8, 3, 1, bottleneck),
    ):
        add(net, channels, expand, kernel, stride)
    c4 = net.branch()
    for channels, expand, kernel, stride in (
        (120, 8, 5, 2),
        (120, 8, 3, 1),
        (120, 4, 5, 1),
        (120, 8, 3, 1),
        (384, 8, 5, 1),
    ):
        bottleneck(net, channels, expand, kernel, stride)
    return c4


def mobilenet_v1(size: int = 224, width: float = 1.0) -> Net:
    """Return MobileNetV1, a classifier of 1001 classes."""
    net = Net(size, size, 3)
    mobilenet_v1_backbone(net, width)
    return net.classifier()


def mobilenet_v2(classes: int = 1001) -> Net:
    """Return MobileNetV2 of width 1.0, a classifier of images of 224 × 224."""
    net = Net(224, 224, 3)
    mobilenet_v2_backbone(net)
    return net.conv(1280).classifier(classes)


def mobilenet_edgetpu() -> Net:
    """Return MobileNetEdgeTPU, a classifier of images of 224 × 224."""
    net = Net(224, 224, 3)
    mobilenet_edgetpu_backbone(net)
    return net.conv(1280).classifier()


def efficientnet_edgetpu(size: int, depth: float, width: float) -> Net:
    """Return EfficientNet-EdgeTPU, a classifier; S, M and L differ in the sizes."""
    net = Net(size, size, 3).conv(rounded(32 * width), 3, 2)
    for count, kernel, stride, expand, channels, add in (
        (1, 3, 1, 4, 24, _fused),
        (2, 3, 2, 8, 32, _fused),
        (4, 3, 2, 8, 48, _fused),
        (5, 5, 2, 8, 96, bottleneck),
        (4, 5, 1, 8, 144, bottleneck),
        (2, 5, 2, 8, 192, bottleneck),
    ):
        for i in range(math.ceil(count * depth)):
            step = stride if i == 0 else 1
            add(net, rounded(channels * width), expand, kernel, step)
    return net.conv(rounded(1280 * width)).classifier()


# ---- Inception and ResNet
# --------------------------------------------------------------------------------------


def _path(net: Net, *convs: tuple[int, Kernel]) -> Net:
    """Return a branch with convolutions of some channels and kernels."""
    branch = net.branch()
    for channels, kernel in convs:
        branch.conv(channels, kernel)
    return branch


def _paths(net: Net, *branches: Convs, pooled: int = 0) -> None:
    """Add such branches, and one of a pool of 3 × 3 and a convolution."""
    for convs in branches:
        _path(net, *convs)
    if pooled:
        net.branch().pool(3, 1, True).conv(pooled)


def _reduced(net: Net, *branches: Net) -> None:
    """Join branches of half the image's size with its pool."""
    channels = net.channels + sum(b.channels for b in branches)
    net.pool(3, 2)
    net.height, net.width = branches[0].height, branches[0].width
    net.concat(channels)


def inception_v1(size: int = 224) -> Net:
    """Return Inception V1 (GoogLeNet), a classifier."""
    net = Net(size, size, 3).conv(64, 7, 2).pool(3, 2, True)
    net.conv(64).conv(192, 3).pool(3, 2, True)
    for a, b, c, d, e, f, pool in (
        (64, 96, 128, 16, 32, 32, 0),
        (128, 128, 192, 32, 96, 64, 3),
        (192, 96, 208, 16, 48, 64, 0),
        (160, 112, 224, 24, 64, 64, 0),
        (128, 128, 256, 24, 64, 64, 0),
        (112, 144, 288, 32, 64, 64, 0),
        (256, 160, 320, 32, 128, 128, 2),
        (256, 160, 320, 32, 128, 128, 0),
        (384, 192, 384, 48, 128, 128, 0),
    ):
        _paths(net, [(a, 1)], [(b, 1), (c, 3)], [(d, 1), (e, 3)], pooled=f)
        net.concat(a + c + e + f)
        if pool:
            net.pool(pool, 2, True)
    return net.classifier()


def inception_v2(size: int = 224) -> Net:
    """Return Inception V2, a classifier, with batch normalization folded."""
    net = Net(size, size, 3).conv(64, 7, 2).pool(3, 2, True)
    net.conv(64).conv(192, 3).pool(3, 2, True)
    for a, b, c, d, e, f in (
        (64, 64, 64, 64, 96, 32),
        (64, 64, 96, 64, 96, 64),
        (0, 128, 160, 64, 96, 0),
        (224, 64, 96, 96, 128, 128),
        (192, 96, 128, 96, 128, 128),
        (160, 128, 160, 128, 160, 96),
        (96, 128, 192, 160, 192, 96),
        (0, 128, 192, 192, 256, 0),
        (352, 192, 320, 160, 224, 128),
        (352, 192, 320, 192, 224, 128),
    ):
        if a:
            twice: Convs = [(d, 1), (e, 3), (e, 3)]
            _paths(net, [(a, 1)], [(b, 1), (c, 3)], twice, pooled=f)
            net.concat(a + c + e + f)
        else:
            half = _path(net, (d, 1), (e, 3)).conv(e, 3, 2)
            _reduced(net, _path(net, (b, 1)).conv(c, 3, 2), half)
    return net.classifier()


def inception_v3(size: int = 299) -> Net:
    """Return Inception V3, a classifier."""
    net = Net(size, size, 3).conv(32, 3, 2, False).conv(32, 3, 1, False).conv(64, 3)
    net.pool(3, 2).conv(80).conv(192, 3, 1, False).pool(3, 2)
    for last in (32, 64, 64):
        twice: Convs = [(64, 1), (96, 3), (96, 3)]
        _paths(net, [(64, 1)], [(48, 1), (64, 5)], twice, pooled=last)
        net.concat(224 + last)
    half = _path(net, (64, 1), (96, 3)).conv(96, 3, 2, False)
    _reduced(net, net.branch().conv(384, 3, 2, False), half)
    for n in (128, 160, 160, 192):
        short: Convs = [(n, 1), (n, (1, 7)), (192, (7, 1))]
        long: Convs = [(n, 1), (n, (7, 1)), (n, (1, 7)), (n, (7, 1)), (192, (1, 7))]
        _paths(net, [(192, 1)], short, long, pooled=192)
        net.concat(768)
    seven = _path(net, (192, 1), (192, (1, 7)), (192, (7, 1))).conv(192, 3, 2, False)
    _reduced(net, _path(net, (192, 1)).conv(320, 3, 2, False), seven)
    for _ in range(2):
        _paths(net, [(320, 1)], pooled=192)
        for start in (_path(net, (384, 1)), _path(net, (448, 1), (384, 3))):
            _paths(start, [(384, (1, 3))], [(384, (3, 1))])
        net.concat(2048)
    return net.classifier()


def inception_v4(size: int = 299) -> Net:
    """Return Inception V4, a classifier."""
    net = Net(size, size, 3).conv(32, 3, 2, False).conv(32, 3, 1, False).conv(64, 3)
    _reduced(net, net.branch().conv(96, 3, 2, False))
    short = _path(net, (64, 1)).conv(96, 3, 1, False)
    _path(net, (64, 1), (64, (1, 7)), (64, (7, 1))).conv(96, 3, 1, False)
    net.height, net.width = short.height, short.width
    net.concat(192)
    _reduced(net, net.branch().conv(192, 3, 2, False))
    for _ in range(4):
        twice: Convs = [(64, 1), (96, 3), (96, 3)]
        _paths(net, [(96, 1)], [(64, 1), (96, 3)], twice, pooled=96)
        net.concat(384)
    half = _path(net, (192, 1), (224, 3)).conv(256, 3, 2, False)
    _reduced(net, net.branch().conv(384, 3, 2, False), half)
    for _ in range(7):
        one: Convs = [(192, 1), (224, (1, 7)), (256, (7, 1))]
        two: Convs = [
            (192, 1),
            (192, (7, 1)),
            (224, (1, 7)),
            (224, (7, 1)),
            (256, (1, 7)),
        ]
        _paths(net, [(384, 1)], one, two, pooled=128)
        net.concat(1024)
    seven = _path(net, (256, 1), (256, (1, 7)), (320, (7, 1))).conv(320, 3, 2, False)
    _reduced(net, _path(net, (192, 1)).conv(192, 3, 2, False), seven)
    for _ in range(3):
        _paths(net, [(256, 1)], pooled=256)
        for start in (
            _path(net, (384, 1)),
            _path(net, (384, 1), (448, (3, 1)), (512, (1, 3))),
        ):
            _paths(start, [(256, (1, 3))], [(256, (3, 1))])
        net.concat(1536)
    return net.classifier()


def resnet50(size: int = 224) -> Net:
    """Return ResNet-50 V1, a classifier."""
    net = Net(size, size, 3).conv(64, 7, 2).pool(3, 2, True)
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            step = stride if i == 0 else 1
            if i == 0:
                net.branch().conv(4 * width, 1, step)
            net.conv(width).conv(width, 3, step).conv(4 * width).same()
    return net.classifier()


# ---- networks made to be measured
# --------------------------------------------------------------------------------------


def rock_paper_scissors() -> Net:
    """Return the small CNN of EscVM/RPS_with_Edge_TPU (its training notebook)."""
    net = Net(150, 150, 3)
    for channels in (64, 64, 128, 128):
        net.conv(channels, 3, same=False).pool(2)
    return net.dense(512).dense(3).same(inputs=1).output(1, 3)


def mnist(images: int) -> Net:
    """Return tinygrad's beautiful_mnist on images below each other, as one image."""
    net = Net(28 * images, 28, 1)
    for channels, kernel in ((32, 5), (64, 3)):
        net.conv(channels, kernel, same=False).conv(channels, kernel, same=False)
        net.pool(2)
    if images == 1:
        return net.dense(10).output(1, 10)
    return net.conv(10, 3, same=False).output(images, 10)


def dense(inputs: int, outputs: int) -> Net:
    """Return one fully connected layer."""
    return Net(1, 1, inputs).dense(outputs).output(1, outputs)


def dense_stack(units: int) -> Net:
    """Return Jorgitou98's four layers of as many units, tanh after each, and one of 10."""
    net = Net(1, 1, 64)
    for _ in range(4):
        net.dense(units).same(inputs=1)
    return net.dense(10).output(1, 10)


def conv_stack(filters: int) -> Net:
    """Return Jorgitou98's five convolutions of 3 × 3 on 64 × 64."""
    net = Net(64, 64, 3)
    for _ in range(5):
        net.conv(filters, 3)
    return net.output(64 * 64, filters)
