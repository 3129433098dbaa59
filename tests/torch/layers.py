"""Parts that the networks share, and their register."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NETS: dict[str, Callable[[], nn.Module]] = {}


def net(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Enter a network under its name."""
    NETS[make.__name__] = make
    return make


def conv(
    i: int,
    o: int,
    k: int = 3,
    s: int = 1,
    g: int = 1,
    act: nn.Module | None = None,
    d: int = 1,
) -> nn.Sequential:
    """Convolution, batch norm, and ReLU unless something else is asked for."""
    pad = d * (k // 2)
    parts = [
        nn.Conv2d(i, o, k, s, pad, dilation=d, groups=g, bias=False),
        nn.BatchNorm2d(o),
    ]
    return nn.Sequential(*parts, nn.ReLU() if act is None else act)


def head(channels: int, classes: int = 10) -> nn.Sequential:
    """Mean of the image, and a linear layer."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


class Residual(nn.Module):
    """x + f(x), and an activation after it."""

    def __init__(
        self, f: nn.Module, skip: nn.Module | None = None, act: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.f = f
        self.skip = skip or nn.Identity()
        self.act = act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.f(x) + self.skip(x))
        return y


class Branches(nn.Module):
    """What several compute of the same, side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([b(x) for b in self.branches], 1)


class SqueezeExcite(nn.Module):
    """Channels weighted by what their means say."""

    def __init__(self, channels: int, gate: nn.Module | None = None) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels // 4, 1)
        self.up = nn.Conv2d(channels // 4, channels, 1)
        self.gate = gate or nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x * self.gate(
            self.up(F.relu(self.down(x.mean((2, 3), keepdim=True))))
        )
        return y


class Attention(nn.Module):
    """Of tokens [batch, n, channels], several heads."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(b, n, 3, self.heads, c // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        y: Tensor = self.out(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, c)
        )
        return y


class Tokens(nn.Module):
    """An image as tokens: patches of a size, each a vector."""

    def __init__(self, patch: int, channels: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, channels, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.proj(x).flatten(2).transpose(1, 2)
        return y


def block(channels: int, mixer: nn.Module | None = None) -> nn.Sequential:
    """A transformer's: mixing of tokens, then of channels."""
    mlp = nn.Sequential(
        nn.Linear(channels, 2 * channels), nn.GELU(), nn.Linear(2 * channels, channels)
    )
    return nn.Sequential(
        Residual(nn.Sequential(nn.LayerNorm(channels), mixer or Attention(channels))),
        Residual(nn.Sequential(nn.LayerNorm(channels), mlp)),
    )


class Of(nn.Module):
    """A plain function as a module."""

    def __init__(self, f: object) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.f(x)  # type: ignore[operator]
        return y


class Several(nn.Module):
    """A backbone and what several heads make of it."""

    def __init__(self, backbone: nn.Module, *heads: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleList(heads)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.backbone(x)
        return tuple(h(y) for h in self.heads)
