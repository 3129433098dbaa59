"""Networks whose results are images, boxes, points or lines of text, in the styles that
people export from PyTorch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.torch.layers import Branches, Of, Residual, Several, block, conv, head, net


# ---- dense prediction
# --------------------------------------------------------------------------------------
@net
def unet() -> nn.Module:
    class Unet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = conv(3, 8)
            self.b = conv(8, 16)
            self.up = nn.ConvTranspose2d(16, 8, 2, 2)
            self.c = conv(16, 8)
            self.out = nn.Conv2d(8, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            a = self.a(x)
            b = self.b(F.max_pool2d(a, 2))
            return torch.sigmoid(self.out(self.c(torch.cat([self.up(b), a], 1))))

    return Unet()


@net
def fcn() -> nn.Module:
    class Fcn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(conv(3, 8, s=2), conv(8, 16, s=2))
            self.out = nn.Conv2d(16, 5, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(
                self.out(self.body(x)),
                size=x.shape[-2:],
                mode="bilinear",
                align_corners=False,
            )

    return Fcn()


@net
def deeplab_aspp() -> nn.Module:
    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c = conv(16, 8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return F.interpolate(
                self.c(F.adaptive_avg_pool2d(x, 1)), size=x.shape[-2:], mode="bilinear"
            )

    aspp = Branches(conv(16, 8, 1), conv(16, 8, d=2), conv(16, 8, d=4), Pool())
    return nn.Sequential(
        conv(3, 16, s=2), aspp, nn.Conv2d(32, 5, 1), Of(lambda x: x.argmax(1))
    )


@net
def pspnet() -> nn.Module:
    def level(n: int) -> nn.Module:
        return nn.Sequential(
            nn.AdaptiveAvgPool2d(n),
            conv(16, 4, 1),
            nn.Upsample((16, 16), mode="bilinear", align_corners=True),
        )

    return nn.Sequential(
        conv(3, 16, s=2),
        Branches(nn.Identity(), level(1), level(2), level(4)),
        nn.Conv2d(28, 5, 1),
    )


@net
def fpn() -> nn.Module:
    class Fpn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = conv(3, 8, s=2)
            self.b = conv(8, 16, s=2)
            self.la = nn.Conv2d(8, 8, 1)
            self.lb = nn.Conv2d(16, 8, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a = self.a(x)
            b = self.lb(self.b(a))
            return self.la(a) + F.interpolate(b, scale_factor=2, mode="nearest"), b

    return Fpn()


@net
def hourglass() -> nn.Module:
    inner = nn.Sequential(nn.MaxPool2d(2), conv(8, 8), nn.Upsample(scale_factor=2))
    return nn.Sequential(
        conv(3, 8, s=2), Residual(inner, conv(8, 8)), nn.Conv2d(8, 4, 1)
    )


@net
def segformer() -> nn.Module:
    class Stage(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 32, 7, 4, 3)
            self.block = block(32)

        def forward(self, x: Tensor) -> Tensor:
            y = self.patch(x)
            n, c, h, w = y.shape
            z: Tensor = (
                self.block(y.flatten(2).transpose(1, 2))
                .transpose(1, 2)
                .reshape(n, c, h, w)
            )
            return z

    return nn.Sequential(
        Stage(), nn.Conv2d(32, 5, 1), nn.Upsample(scale_factor=4, mode="bilinear")
    )


# ---- detection
# --------------------------------------------------------------------------------------
@net
def yolo_csp() -> nn.Module:
    class C2f(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = conv(16, 16, 1, act=nn.SiLU())
            self.b = conv(8, 8, act=nn.SiLU())
            self.c = conv(24, 16, 1, act=nn.SiLU())

        def forward(self, x: Tensor) -> Tensor:
            y = list(self.a(x).split((8, 8), 1))
            y.append(self.b(y[-1]))
            z: Tensor = self.c(torch.cat(y, 1))
            return z

    class Sppf(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            a = F.max_pool2d(x, 5, 1, 2)
            b = F.max_pool2d(a, 5, 1, 2)
            return torch.cat([x, a, b], 1)

    return nn.Sequential(
        conv(3, 16, s=2, act=nn.SiLU()),
        C2f(),
        Sppf(),
        nn.Conv2d(48, 9, 1),
        Of(lambda x: x.flatten(2)),
    )


@net
def yolo_decode() -> nn.Module:
    class Decode(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
            self.register_buffer("grid", torch.stack([x, y]).reshape(1, 2, 64))

        def forward(self, x: Tensor) -> Tensor:
            y = x.flatten(2)
            xy = (y[:, :2] + self.grid) * 4
            return torch.cat(
                [xy, torch.exp(y[:, 2:4].clamp(max=4)) * 4, y[:, 4:].sigmoid()], 1
            ).transpose(1, 2)

    return nn.Sequential(
        conv(3, 16, s=2),
        conv(16, 16, s=2, act=nn.LeakyReLU(0.1)),
        nn.Conv2d(16, 7, 1),
        Decode(),
    )


@net
def ssd_heads() -> nn.Module:
    def flat(o: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(16, o, 3, padding=1),
            Of(lambda x: x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4)),
        )

    scores = nn.Sequential(flat(16), nn.Softmax(-1))
    return Several(nn.Sequential(conv(3, 16, s=2), conv(16, 16, s=2)), flat(8), scores)


@net
def centernet() -> nn.Module:
    peaks = Of(lambda x: x * (F.max_pool2d(x, 3, 1, 1) == x).float())
    heat = nn.Sequential(conv(16, 8), nn.Conv2d(8, 3, 1), nn.Sigmoid(), peaks)
    return Several(conv(3, 16, s=4), heat, nn.Conv2d(16, 2, 1))


@net
def top_scores() -> nn.Module:
    class Top(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            values, index = torch.topk(torch.softmax(x, 1), 3)
            return values, index

    return nn.Sequential(conv(3, 16, s=2), head(16), Top())


@net
def soft_argmax() -> nn.Module:
    class Points(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            n, c, h, w = x.shape
            p = torch.softmax(x.reshape(n, c, h * w), -1).reshape(n, c, h, w)
            xs = torch.linspace(0, 1, w)
            ys = torch.linspace(0, 1, h)
            return torch.stack([(p.sum(2) * xs).sum(-1), (p.sum(3) * ys).sum(-1)], -1)

    return nn.Sequential(conv(3, 16, s=2), nn.Conv2d(16, 4, 1), Points())


# ---- images
# --------------------------------------------------------------------------------------
@net
def espcn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(16, 12, 3, padding=1),
        nn.PixelShuffle(2),
    )


@net
def edsr() -> nn.Module:
    f = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        Of(lambda x: 0.1 * x),
    )
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Residual(f),
        nn.Conv2d(8, 12, 3, padding=1),
        nn.PixelShuffle(2),
    )


@net
def style() -> nn.Module:
    def layer(i: int, o: int, k: int, s: int = 1) -> nn.Module:
        return nn.Sequential(
            nn.ReflectionPad2d(k // 2),
            nn.Conv2d(i, o, k, s),
            nn.InstanceNorm2d(o, affine=True),
            nn.ReLU(),
        )

    up = nn.Upsample(scale_factor=2, mode="nearest")
    return nn.Sequential(
        layer(3, 8, 9),
        layer(8, 16, 3, 2),
        Residual(layer(16, 16, 3)),
        up,
        layer(16, 3, 3),
    )


@net
def gan_generator() -> nn.Module:
    up = nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU()
    out = nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1), nn.Tanh()
    return nn.Sequential(conv(3, 8, s=4), *up, *out)


@net
def cartoon() -> nn.Module:
    side = nn.Sequential(
        conv(3, 8, s=2, act=nn.PReLU(8)),
        conv(8, 8, act=nn.ELU()),
        conv(8, 8, act=nn.Mish()),
    )
    return nn.Sequential(
        side,
        nn.Upsample(scale_factor=2, mode="bicubic"),
        nn.Conv2d(8, 3, 3, padding=1),
        nn.Sigmoid(),
    )


@net
def matting() -> nn.Module:
    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.box = nn.AvgPool2d(5, 1, 2, count_include_pad=False)

        def forward(self, x: Tensor) -> Tensor:
            mean = self.box(x)
            var = self.box(x * x) - mean**2
            return (x - mean) / torch.sqrt(var.clamp(min=1e-3))

    return nn.Sequential(Filter(), conv(3, 8), nn.Conv2d(8, 1, 1), nn.Hardtanh(0, 1))


@net
def warp() -> nn.Module:
    class Warp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.where = nn.Sequential(conv(3, 4, s=4), head(4, 6))

        def forward(self, x: Tensor) -> Tensor:
            theta = 0.1 * self.where(x).view(-1, 2, 3) + torch.eye(2, 3)
            grid = F.affine_grid(theta, list(x.shape), align_corners=False)
            return F.grid_sample(
                x, grid, mode="bilinear", padding_mode="border", align_corners=False
            )

    return Warp()


# ---- sequences
# --------------------------------------------------------------------------------------
class _Rows(nn.Module):
    """The columns of a feature map, read by a recurrent network."""

    def __init__(self, rnn: nn.Module, out: int) -> None:
        super().__init__()
        self.body = conv(3, 8, s=4)
        self.rnn = rnn
        self.out = nn.Linear(out, 7)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x).flatten(1, 2).permute(0, 2, 1)
        return F.log_softmax(self.out(self.rnn(y)[0]), -1)


@net
def crnn_lstm() -> nn.Module:
    return _Rows(nn.LSTM(64, 12, batch_first=True, bidirectional=True), 24)


@net
def crnn_gru() -> nn.Module:
    return _Rows(nn.GRU(64, 12, 2, batch_first=True), 12)


@net
def temporal() -> nn.Module:
    line = Of(lambda x: x.flatten(2))
    return nn.Sequential(
        line,
        nn.Conv1d(3, 8, 9, 4, 4),
        nn.GLU(1),
        nn.Conv1d(4, 8, 3, dilation=2),
        nn.MaxPool1d(4),
        head_1d(),
    )


def head_1d() -> nn.Module:
    """Mean of the line, and a linear layer."""
    return nn.Sequential(
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 5), nn.Softplus()
    )
