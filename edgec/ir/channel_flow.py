"""How the channels of an operation's results arise from those of its inputs.

A channel is an index of the last axis. Passes that remove, reorder, split or scale
channels ask an operation for this, and know nothing else about it.
"""

from __future__ import annotations

from enum import Enum


class ChannelFlow(Enum):
    """The way of the channels through an operation."""

    MIXES = "an output channel may depend on all input channels in any way"
    SUMS = "an output channel is a weighted sum over the input channels of a window"
    SCATTERS = "as SUMS, but the windows of an output pixel differ from pixel to pixel"
    DEPTHWISE = "an output channel is a weighted sum over one input channel of a window"
    KEEPS = "an output channel depends on the input channel of the same number alone"
    POINTWISE = "an element depends on elements of the inputs at the same place alone"
    ADDS = "POINTWISE, and the elements are added or subtracted"
    MULTIPLIES = "POINTWISE, and the elements are multiplied"
    MOVES = "an output element is an element of the inputs"

    @property
    def has_weights(self) -> bool:
        """Whether output channels are sums of products with weights."""
        flows = (ChannelFlow.SUMS, ChannelFlow.SCATTERS, ChannelFlow.DEPTHWISE)
        return self in flows

    @property
    def is_pointwise(self) -> bool:
        """Whether elements depend on elements at the same place alone."""
        flows = (ChannelFlow.POINTWISE, ChannelFlow.ADDS, ChannelFlow.MULTIPLIES)
        return self in flows
