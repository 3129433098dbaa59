"""Networks that classify, in the styles that people export from PyTorch: each a
function that builds one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.torch.layers import (
    Attention,
    Branches,
    Of,
    Residual,
    SqueezeExcite,
    Tokens,
    block,
    conv,
    head,
    net,
)


# ---- classification
# --------------------------------------------------------------------------------------
@net
def alexnet() -> nn.Module:
    body = nn.Sequential(
        nn.Conv2d(3, 16, 11, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(16, 24, 5, padding=2),
    )
    tail = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(24, 32), nn.ReLU())
    return nn.Sequential(body, nn.ReLU(), nn.MaxPool2d(2), tail, nn.Linear(32, 10))


@net
def vgg() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), conv(8, 8), nn.MaxPool2d(2), conv(8, 16), nn.MaxPool2d(2), head(16)
    )


@net
def resnet_basic() -> nn.Module:
    first = Residual(
        nn.Sequential(conv(8, 8), conv(8, 8, act=nn.Identity())), act=nn.ReLU()
    )
    down = nn.Sequential(conv(8, 16, s=2), conv(16, 16, act=nn.Identity()))
    second = Residual(down, conv(8, 16, 1, 2, act=nn.Identity()), nn.ReLU())
    return nn.Sequential(
        conv(3, 8, 7, 2), nn.MaxPool2d(3, 2, 1), first, second, head(16)
    )


@net
def resnext_bottleneck() -> nn.Module:
    f = nn.Sequential(
        conv(16, 8, 1), conv(8, 8, g=4), conv(8, 16, 1, act=nn.Identity())
    )
    return nn.Sequential(conv(3, 16, s=2), Residual(f, act=nn.ReLU()), head(16))


@net
def resnet_d() -> nn.Module:
    skip = nn.Sequential(
        nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False),
        conv(8, 16, 1, act=nn.Identity()),
    )
    f = nn.Sequential(conv(8, 16, s=2), conv(16, 16, act=nn.Identity()))
    return nn.Sequential(
        conv(3, 8, s=2),
        conv(8, 8),
        nn.MaxPool2d(3, 2, 1),
        Residual(f, skip, nn.ReLU()),
        head(16),
    )


@net
def densenet() -> nn.Module:
    def layer(i: int) -> nn.Module:
        return Branches(
            nn.Identity(),
            nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 4, 3, padding=1)),
        )

    turn = nn.Sequential(
        nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1), nn.AvgPool2d(2)
    )
    return nn.Sequential(conv(3, 8, s=2), layer(8), layer(12), turn, head(8))


@net
def squeezenet() -> nn.Module:
    fire = nn.Sequential(conv(16, 4, 1), Branches(conv(4, 8, 1), conv(4, 8, 3)))
    return nn.Sequential(
        conv(3, 16, s=2),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        fire,
        nn.Conv2d(16, 10, 1),
        head(10),
    )


@net
def inception() -> nn.Module:
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(16, 4, 1))
    long = nn.Sequential(
        conv(16, 4, 1),
        nn.Conv2d(4, 4, (1, 7), padding=(0, 3)),
        nn.Conv2d(4, 4, (7, 1), padding=(3, 0)),
    )
    return nn.Sequential(
        conv(3, 16, s=2), Branches(conv(16, 4, 1), long, pool), head(12)
    )


@net
def mobilenet_v1() -> nn.Module:
    return nn.Sequential(
        conv(3, 8, s=2),
        conv(8, 8, g=8),
        conv(8, 16, 1),
        conv(16, 16, s=2, g=16),
        conv(16, 24, 1),
        head(24),
    )


@net
def mobilenet_v2() -> nn.Module:
    def inverted(c: int) -> nn.Module:
        wide = 6 * c
        return nn.Sequential(
            conv(c, wide, 1, act=nn.ReLU6()),
            conv(wide, wide, g=wide, act=nn.ReLU6()),
            conv(wide, c, 1, act=nn.Identity()),
        )

    return nn.Sequential(
        conv(3, 8, s=2, act=nn.ReLU6()), Residual(inverted(8)), head(8)
    )


@net
def mobilenet_v3() -> nn.Module:
    gate = SqueezeExcite(24, nn.Hardsigmoid())
    f = nn.Sequential(
        conv(8, 24, 1, act=nn.Hardswish()),
        conv(24, 24, 5, g=24, act=nn.Hardswish()),
        gate,
        conv(24, 8, 1, act=nn.Identity()),
    )
    return nn.Sequential(conv(3, 8, s=2, act=nn.Hardswish()), Residual(f), head(8))


@net
def efficientnet() -> nn.Module:
    f = nn.Sequential(
        conv(8, 32, 1, act=nn.SiLU()),
        conv(32, 32, 5, g=32, act=nn.SiLU()),
        SqueezeExcite(32),
        conv(32, 8, 1, act=nn.Identity()),
    )
    return nn.Sequential(conv(3, 8, s=2, act=nn.SiLU()), Residual(f), head(8))


@net
def shufflenet() -> nn.Module:
    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(
                conv(8, 8, 1), conv(8, 8, g=8, act=nn.Identity()), conv(8, 8, 1)
            )

        def forward(self, x: Tensor) -> Tensor:
            a, b = x.chunk(2, 1)
            y = torch.cat([a, self.f(b)], 1)
            n, c, h, w = y.shape
            return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)

    return nn.Sequential(conv(3, 16, s=2), Unit(), Unit(), head(16))


@net
def regnet() -> nn.Module:
    f = nn.Sequential(
        conv(16, 16, 1),
        conv(16, 16, g=2),
        SqueezeExcite(16),
        conv(16, 16, 1, act=nn.Identity()),
    )
    return nn.Sequential(conv(3, 16, s=2), Residual(f, act=nn.ReLU()), head(16))


@net
def ghostnet() -> nn.Module:
    class Ghost(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.main = conv(i, o // 2, 1)
            self.cheap = conv(o // 2, o // 2, g=o // 2)

        def forward(self, x: Tensor) -> Tensor:
            y = self.main(x)
            return torch.cat([y, self.cheap(y)], 1)

    return nn.Sequential(conv(3, 8, s=2), Ghost(8, 16), Ghost(16, 16), head(16))


@net
def repvgg() -> nn.Module:
    return nn.Sequential(
        conv(3, 8, s=2),
        Residual(
            conv(8, 8, act=nn.Identity()), conv(8, 8, 1, act=nn.Identity()), nn.ReLU()
        ),
        head(8),
    )


@net
def convnext() -> nn.Module:
    class Norm(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.full((16, 1, 1), 0.5))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.gamma

    f = nn.Sequential(
        nn.Conv2d(16, 16, 7, padding=3, groups=16),
        Norm(16),
        nn.Conv2d(16, 64, 1),
        nn.GELU(),
        nn.Conv2d(64, 16, 1),
        Scale(),
    )
    return nn.Sequential(nn.Conv2d(3, 16, 4, 4), Norm(16), Residual(f), head(16))


@net
def convmixer() -> nn.Module:
    mix = nn.Sequential(
        nn.Conv2d(16, 16, 5, groups=16, padding="same"), nn.GELU(), nn.BatchNorm2d(16)
    )
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 4),
        nn.GELU(),
        Residual(mix),
        nn.Conv2d(16, 16, 1),
        nn.GELU(),
        head(16),
    )


# ---- transformers
# --------------------------------------------------------------------------------------
class _Vit(nn.Module):
    def __init__(self, mean: bool) -> None:
        super().__init__()
        self.mean = mean
        self.tokens = Tokens(8, 32)
        self.blocks = nn.Sequential(block(32), block(32))
        self.cls = nn.Parameter(torch.rand(1, 1, 32))
        self.pos = nn.Parameter(torch.rand(1, 17, 32))
        self.norm = nn.LayerNorm(32)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = (
            torch.cat([self.cls.expand(x.shape[0], -1, -1), self.tokens(x)], 1)
            + self.pos
        )
        y = self.norm(self.blocks(y))
        z: Tensor = self.out(y.mean(1) if self.mean else y[:, 0])
        return z


@net
def vit() -> nn.Module:
    return _Vit(False)


@net
def vit_mean() -> nn.Module:
    return _Vit(True)


@net
def torch_encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, batch_first=True, norm_first=True, activation="gelu"
    )
    return nn.Sequential(
        Tokens(8, 32),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        Of(lambda x: x.mean(1)),
    )


@net
def swin() -> nn.Module:
    class Windows(nn.Module):
        def __init__(self, shift: int) -> None:
            super().__init__()
            self.shift = shift
            self.attention = Attention(32)

        def forward(self, x: Tensor) -> Tensor:
            n, _, c = x.shape
            y = torch.roll(x.view(n, 4, 4, c), (-self.shift, -self.shift), (1, 2))
            y = y.view(n, 2, 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
            y = (
                self.attention(y)
                .view(n, 2, 2, 2, 2, c)
                .permute(0, 1, 3, 2, 4, 5)
                .reshape(n, 4, 4, c)
            )
            return torch.roll(y, (self.shift, self.shift), (1, 2)).reshape(n, 16, c)

    return nn.Sequential(
        Tokens(8, 32),
        block(32, Windows(0)),
        block(32, Windows(1)),
        Of(lambda x: x.mean(1)),
    )


@net
def mlp_mixer() -> nn.Module:
    class Mix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.f(x.transpose(1, 2)).transpose(1, 2)
            return y

    return nn.Sequential(
        Tokens(8, 32), block(32, Mix()), Of(lambda x: x.mean(1)), nn.Linear(32, 10)
    )


@net
def poolformer() -> nn.Module:
    mix = Of(lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) - x)
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 4, 2),
        Residual(nn.Sequential(nn.GroupNorm(1, 16), mix)),
        head(16),
    )


@net
def linear_attention() -> nn.Module:
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Conv2d(16, 48, 1)

        def forward(self, x: Tensor) -> Tensor:
            n, c, h, w = x.shape
            q, k, v = self.qkv(x).reshape(n, 3, c, h * w).unbind(1)
            q = F.relu(q)
            k = F.relu(k)
            v = F.pad(v, (0, 0, 0, 1), value=1.0)
            y = (v @ k.transpose(1, 2)) @ q
            return (y[:, :-1] / (y[:, -1:] + 1e-6)).reshape(n, c, h, w)

    return nn.Sequential(conv(3, 16, s=2), Residual(Linear()), head(16))


@net
def cbam() -> nn.Module:
    class Spatial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Conv2d(2, 1, 7, padding=3)

        def forward(self, x: Tensor) -> Tensor:
            both = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
            return x * torch.sigmoid(self.c(both))

    return nn.Sequential(conv(3, 16, s=2), SqueezeExcite(16), Spatial(), head(16))


@net
def eca() -> nn.Module:
    class Eca(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = nn.Conv1d(1, 1, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            y = self.c(x.mean((2, 3)).unsqueeze(1)).squeeze(1)
            return x * torch.sigmoid(y)[:, :, None, None].expand_as(x)

    return nn.Sequential(conv(3, 16, s=2), Eca(), head(16))
