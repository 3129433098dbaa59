"""Detectors, masks and poses whose times on an Edge TPU were published, layer by layer."""

from __future__ import annotations

from edgec_partitioner.cost import OpWork

from benchmarks.edgetpu_networks import (
    Net,
    bottleneck,
    mobiledet_backbone,
    mobilenet_edgetpu_backbone,
    mobilenet_v1_backbone,
    mobilenet_v2_backbone,
)
from tests.networks.stages import EFFICIENTDET_LITE


def _ssd(net: Net, first: Net, lite: bool, classes: int = 91) -> Net:
    """Add SSD's four further images and its heads on six.

    Args:
        net: the backbone
        first: the image of the first head
        lite: whether a depthwise convolution is before each other one
        classes: the number of classes
    """
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
        net.anchors += image.height * image.width * each
        for columns in (4, classes):
            head = image.branch()
            (head.depthwise() if lite else head).conv(each * columns).reshape()
    net.classes, net.boxes = classes, 10
    return _scores(net)


def _scores(net: Net) -> Net:
    """Add the concatenations of a detector's boxes and scores, and the logistic."""
    for columns in (4, net.classes):
        net.output(net.anchors, columns)
        net.add(OpWork(0, 2 * net.anchors * columns, 0))
    return net.add(OpWork(0, 2 * net.anchors * net.classes, 0))


def ssd_mobilenet_v1(width: float = 1.0) -> Net:
    """SSD on MobileNetV1 at 300, heads of 1 × 1."""
    net = Net(300, 300, 3)
    return _ssd(net, mobilenet_v1_backbone(net, width)[10], False)


def ssd_mobilenet_v2(size: int = 300, lite: bool = False, classes: int = 91) -> Net:
    """SSD or SSDLite on MobileNetV2 1.0."""
    net = Net(size, size, 3)
    first = mobilenet_v2_backbone(net)[5]
    return _ssd(net.conv(1280), first, lite, classes)


def ssdlite_mobilenet_edgetpu() -> Net:
    """SSDLite on MobileNetEdgeTPU at 320."""
    net = Net(320, 320, 3)
    return _ssd(net, mobilenet_edgetpu_backbone(net), True)


def ssdlite_mobiledet() -> Net:
    """SSDLite on MobileDet for the Edge TPU at 320."""
    net = Net(320, 320, 3)
    return _ssd(net, mobiledet_backbone(net), True)


def headless(detector: Net) -> Net:
    """Return a detector without its post-processing on the CPU."""
    detector.anchors = 0
    return detector


def efficientdet_lite(name: str) -> Net:
    """EfficientDet-Lite: EfficientNet-Lite (stem, first and last stage of fixed depth),
    BiFPN, shared heads.
    """
    lite = EFFICIENTDET_LITE[name]
    net = Net(lite.size, lite.size, 3).conv(32, 3, 2)
    levels = list[Net]()
    for i, (expand, channels, count, stride, kernel) in enumerate(lite.stages()):
        for k in range(count):
            bottleneck(net, channels, expand, kernel, stride if k == 0 else 1)
        if i in (2, 4, 6):
            levels.append(net.branch())
    for _ in range(2):
        levels.append(levels[-1].branch().conv(lite.channels).pool(2, 2, True))
    pyramid = [level.branch().conv(lite.channels) for level in levels]
    for _ in range(lite.cells):
        for image in (*pyramid[:-1], *pyramid[1:]):  # down, then up
            # resize or pool, then the sum
            image.branch().same(2).depthwise().conv(lite.channels)
    for image in pyramid:
        net.anchors += image.height * image.width * 9
        for columns in (4, 90):
            head = image.branch()
            for _ in range(lite.repeats):
                head.depthwise().conv(lite.channels)
            head.depthwise().conv(9 * columns).reshape()
    net.classes, net.boxes = 90, 25
    return _scores(net)


# ---- masks and poses
# --------------------------------------------------------------------------------------


def posenet(height: int, width: int, outputs: tuple[int, ...] = (17, 34, 64)) -> Net:
    """PoseNet on MobileNetV1 0.75 of stride 16; BodyPix with further outputs."""
    net = Net(height, width, 3)
    mobilenet_v1_backbone(net, 0.75, tail=((512, 1), (512, 1)))
    for columns in outputs:
        net.branch().conv(columns)
        net.output(net.height * net.width, columns)
    return net


def deeplab() -> Net:
    """DeepLabV3 on MobileNetV2 at 513, as far as the compiler maps it."""
    net = Net(513, 513, 3)
    mobilenet_v2_backbone(net, strides=16)
    net.branch().mean().conv(256)
    net.conv(256)
    return net.output(net.height * net.width, 256).output(1, 256)


def unet(size: int) -> Net:
    """TensorFlow's U-Net tutorial: MobileNetV2, and four transposed convolutions."""
    net = Net(size, size, 3)
    images = mobilenet_v2_backbone(net)
    skips = [images[i].channels for i in (5, 3, 2, 1)]
    for channels, skip in zip((512, 256, 128, 64), skips, strict=True):
        net.transposed(channels).concat(channels + skip)
    net.transposed(3)
    return net.output(net.height * net.width, 3)
