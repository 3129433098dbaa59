"""A network of the shape of MediaPipe's hand landmarks: inverted bottlenecks of few
channels with depthwise convolutions of 3x3 and 5x5, with random weights.

Its outputs are those of the published model (MediaPipe Hands, arXiv 2006.10214): 21
points of a 224x224 picture in three coordinates twice, whether there is a hand, and
which one.
"""

from __future__ import annotations

from pathlib import Path

from tests.networks import Net
from tests.networks import layers as nn

BLOCKS = (
    (16, 16, 3, 1),
    (64, 16, 3, 2),
    (64, 16, 3, 1),
    (96, 24, 5, 2),
    (96, 24, 5, 1),
    (96, 24, 5, 1),
    (144, 40, 3, 2),
    (160, 40, 3, 1),
    (160, 48, 5, 1),
    (192, 48, 5, 1),
    (192, 64, 5, 2),
    (256, 64, 5, 1),
    (256, 64, 5, 1),
    (288, 72, 3, 1),
)
"""Of each block: channels in the middle and behind, kernel and stride of the depthwise
convolution.
"""


def hand_landmarks(path: Path, size: int = 224) -> Path:
    """Write the network as ONNX."""
    net = Net("hand_landmarks", (1, 3, size, size), seed=21)
    x = nn.conv(net, "images", 16, 3, 2, name="relu6")
    for middle, out, k, stride in BLOCKS:
        y = x
        if middle > net.channels[x]:
            y = nn.conv(net, y, middle, name="relu6")
        y = nn.depthwise(net, y, k, stride, "relu6")
        y = nn.conv(net, y, out)
        is_same = stride == 1 and net.channels[x] == out
        x = net.op("Add", x, y) if is_same else y
    x = nn.conv(net, x, 288, name="relu6")
    flat = net.op("Flatten", net.op("GlobalAveragePool", x), axis=1)
    points = [nn.gemm(net, flat, 288, 63) for _ in range(2)]
    scores = [net.op("Sigmoid", nn.gemm(net, flat, 288, 1)) for _ in range(2)]
    return net.save(path, *points, *scores)
