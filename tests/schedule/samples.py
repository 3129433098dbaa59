"""Sizes and numbers at which vectors end, saturate or tie."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgec.ir import OpDef, Quant, Rounding, Sample, TensorType
from edgec.ir.opdef import Arg
from edgec.ops.argmax import ArgMax
from edgec.ops.binary import Add, Mul, Sub
from edgec.ops.norm import InstanceNorm
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.reduce import Mean
from edgec.ops.resampling import TFLITE_MODES
from edgec.ops.resize import ResizeBilinear
from edgec.ops.softmax import Softmax

_UNSUMMED = (
    (0.07222045020512041, 2.3460354641111314, 2.213665750981553, 83, 76, 64),
    (0.4, 0.05, 0.02, -1, 7, 3),
)
"""Scales and zero points of ADDs for which no single sum is found: a tie on both sides
of 0, a factor of 20.
"""
_BYTES = np.arange(-128, 128, dtype=np.int8)


def edges() -> Iterator[Sample]:
    """Of every family."""
    yield from _sums()
    yield from _lengths()
    yield from _images()
    yield from _rows()


def _sums() -> Iterator[Sample]:
    """All pairs of bytes: equal scales, one twice the other (ties), saturated outputs,
    extreme zero points.
    """
    a = _BYTES.reshape(256, 1)
    b = _BYTES.reshape(1, 256)
    pairs = [np.ascontiguousarray(np.broadcast_to(x, (256, 256))) for x in (a, b)]
    for i, (sa, sb, sy, za, zb, zy) in enumerate(
        (
            (0.1, 0.1, 0.1, 0, 0, 0),
            (0.1, 0.1, 0.2, 3, -128, 127),
            (0.1, 0.05, 0.1, -7, 9, 1),
            (0.05, 0.1, 0.05, 127, -128, -128),
            (0.03, 0.11, 0.09, -5, 17, 2),
            (0.3, 0.0001, 0.3, 127, 127, -3),
            (1.0, 0.7, 0.9, -128, -128, 0),
            (0.07, 0.19, 0.09, -128, 4, -128),
            (0.3, 0.0001, 0.03, 2, -9, 5),
            *_UNSUMMED,
        )
    ):
        args = [
            Arg(TensorType((256, 256), "int8", Quant.per_tensor(s, z)), data=data)
            for s, z, data in zip((sa, sb), (za, zb), pairs, strict=True)
        ]
        for kind in (Add, Sub, Mul):
            for act in ("none", "relu6"):
                yield Sample(
                    kind(act),
                    tuple(args),
                    Quant.per_tensor(sy, zy),
                    f"{kind.kind}{i}{act}",
                )
        for spec in (
            Add(rounding=Rounding.ONNXRUNTIME),
            Add(rounding=Rounding.ONNXRUNTIME_UINT8),
            Sub("relu6", rounding=Rounding.ONNXRUNTIME),
            Mul(rounding=Rounding.ONNXRUNTIME),
            Mul(rounding=Rounding.ONNXRUNTIME_UINT8),
        ):
            yield Sample(
                spec, tuple(args), Quant.per_tensor(sy, zy), f"even_{spec.kind}{i}"
            )
        one = Arg(
            TensorType((1,), "int8", Quant.per_tensor(sb, zb)),
            True,
            np.array([5 * i], np.int8),
        )
        yield Sample(Add(), (args[0], one), Quant.per_tensor(sy, zy), f"one{i}")
        yield Sample(Mul(), (one, args[0]), Quant.per_tensor(sy, zy), f"mulone{i}")
        shared = Arg(TensorType((24,), "int8", Quant.per_tensor(sb, zb)))
        channels = Arg(TensorType((5, 7, 24), "int8", Quant.per_tensor(sa, za)))
        yield Sample(Add(), (channels, shared), Quant.per_tensor(sy, zy), f"shared{i}")
        yield Sample(
            Mul(), (channels, shared), Quant.per_tensor(sy, zy), f"mulshared{i}"
        )
        few = Arg(
            TensorType((8,), "int8", Quant.per_tensor(sb, zb)),
            True,
            np.arange(8, dtype=np.int8),
        )
        image = Arg(TensorType((3, 7, 8), "int8", Quant.per_tensor(sa, za)))
        yield Sample(Sub(), (image, few), Quant.per_tensor(sy, zy), f"few{i}")


def _lengths() -> Iterator[Sample]:
    q = Quant.per_tensor(0.04, -11)
    for n in (1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 200):
        floats, s8, u8 = (
            TensorType((n,), t, q if t != "float32" else None)
            for t in ("float32", "int8", "uint8")
        )
        yield Sample(OpDef.registry["logistic"](), (Arg(floats),), label=f"logistic{n}")
        yield Sample(OpDef.registry["hard_swish"](), (Arg(s8),), q, f"hard_swish{n}")
        yield Sample(Quantize(), (Arg(floats),), q, f"quantize{n}")
        yield Sample(
            Quantize("uint8"),
            (Arg(floats),),
            Quant.per_tensor(0.01, 255),
            f"quantize_u8_{n}",
        )
        yield Sample(Dequantize(), (Arg(u8),), label=f"dequantize{n}")
        yield Sample(Quantize(), (Arg(u8),), Quant.per_tensor(0.04, -139), f"flip{n}")
        yield Sample(
            Quantize("uint8"), (Arg(s8),), Quant.per_tensor(0.031, 7), f"rescale{n}"
        )
        yield Sample(Add(), (Arg(s8), Arg(s8)), Quant.per_tensor(0.05, 3), f"add{n}")
    ties = np.array(
        [
            -2.5,
            -1.5,
            -0.5,
            0.5,
            1.5,
            2.5,
            0.49999997,
            -0.49999997,
            1e30,
            -1e30,
            126.5,
            -127.5,
        ],
        np.float32,
    )
    yield Sample(
        Quantize(),
        (Arg(TensorType(ties.shape), data=ties),),
        Quant.per_tensor(1.0, 0),
        "ties",
    )


def _images() -> Iterator[Sample]:
    """Resizes by whole numbers and by others, of few and many channels, wide ones in
    strips; equal extremes.
    """
    for size, out, c in (
        ((5, 6), (10, 12), 3),
        ((5, 6), (10, 12), 16),
        ((4, 4), (25, 25), 21),
        ((3, 40), (5, 90), 130),
        ((9, 7), (4, 3), 33),
        ((1, 1), (6, 5), 24),
        ((6, 5), (6, 5), 7),
        ((2, 3), (3, 5), 1024),
        ((3, 3), (17, 17), 5),
    ):
        for mode in TFLITE_MODES:
            t = TensorType((2, *size, c))
            q = t.with_quant(Quant.per_tensor(0.1, 3), "int8")
            label = f"{mode}{size[0]}to{out[0]}c{c}"
            yield Sample(ResizeBilinear(out, mode), (Arg(t),), label=label)
            yield Sample(ResizeBilinear(out, mode), (Arg(q),), label=f"{label}s8")
            yield Sample(
                ResizeBilinear(out, mode, rounding=Rounding.TFLITE_UINT8),
                (Arg(q),),
                label=f"{label}u8",
            )
    for n in (16, 17, 21, 31, 32):
        for last in (False, True):
            for high in (2, 256):
                data = (
                    np.random.default_rng(n)
                    .integers(0, high, (1, 11, 13, n))
                    .astype(np.uint8)
                    .view(np.int8)
                )
                arg = Arg(
                    TensorType(data.shape, "int8", Quant.per_tensor(0.1, 3)), data=data
                )
                yield Sample(
                    ArgMax(3, "int64", last), (arg,), label=f"arg{n}{last}{high}"
                )


def _rows() -> Iterator[Sample]:
    """Short and long rows, and channels that end within a vector."""
    for n in (1, 2, 15, 16, 17, 33, 100):
        yield Sample(Softmax(), (Arg(TensorType((37, n))),), label=f"softmax{n}")
    far = np.array([[-1e4, 0, 88, 1e4], [-200, -100, -300, -100]], np.float32)
    yield Sample(
        Softmax(), (Arg(TensorType(far.shape), data=far),), label="softmax_far"
    )
    for c in (3, 16, 100, 300):
        for const in (False, True):
            row = Arg(TensorType((c,)), const)
            image = Arg(TensorType((2, 7, 5, c)))
            yield Sample(Mul("relu6"), (image, row), label=f"mul{c}{const}")
            yield Sample(
                OpDef.registry["prelu"](), (image, row), label=f"prelu{c}{const}"
            )
    for c in (16, 17, 24, 32, 50, 65):
        image = Arg(TensorType((2, 13, 11, c)))
        yield Sample(Mean((1, 2)), (image,), label=f"mean{c}")
        channels = Arg(TensorType((c,)), True)
        yield Sample(InstanceNorm(), (image, channels, channels), label=f"norm{c}")
    image = Arg(TensorType((1, 9, 9, 48)))
    channels = Arg(TensorType((48,)), True)
    yield Sample(InstanceNorm(groups=4), (image, channels, channels), label="groups")
