"""The preprocessing of photos: its text, its geometry, its numbers.

Pillow is here only to compare with.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import (
    InputError,
    Placement,
    Preprocess,
    QuantInfo,
    TensorInfo,
    prepare,
)
from edgec_runtime.vision import resample
from edgec_runtime.vision.photo import quantized
from edgec_runtime.vision.preprocess import (
    COLORS,
    FILTERS,
    LAYOUTS,
    NOTHING,
    PRESETS,
    RESIZES,
    Fit,
    ImageLayout,
    Values,
    Wish,
    bind,
    parse,
)
from edgec_runtime.vision.resample import resize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from edgec.ir import Array, TensorType
from edgec.ir import Quant as IrQuant
from edgec.ops.quantize import Quantize

FLOAT = TensorInfo("x", (1, 8, 8, 3), "<f4")
PLANES = TensorInfo("x", (1, 3, 8, 8), "<f4")
GREY = TensorInfo("x", (1, 8, 8, 1), "<f4")
INT8 = TensorInfo("x", (1, 8, 8, 3), "|i1", QuantInfo((1 / 127,), (0,)))
UINT8 = TensorInfo("x", (1, 8, 8, 3), "|u1")


def photo(
    height: int, width: int, channels: int = 3, seed: int = 0
) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(
        0, 256, (height, width, channels), np.uint8
    )


# ---- the text
# --------------------------------------------------------------------------------------


def _some(element: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[float, ...]]:
    return st.one_of(st.tuples(element), st.tuples(element, element, element))


_FINITE = st.floats(-1e6, 1e6, allow_nan=False)
_VALUES = st.one_of(
    st.sampled_from(sorted(PRESETS)).map(PRESETS.__getitem__),
    st.builds(
        Values, st.just("0_1"), _some(st.floats(-1, 1)), _some(st.floats(1e-6, 1e6))
    ),
    st.builds(Values, st.just("0_255"), _some(_FINITE), _some(st.floats(1e-6, 1e6))),
)
_FILL = st.integers(0, 255)
_FITS = st.one_of(
    st.just(Fit()),
    st.builds(Fit, st.just("crop"), st.floats(1e-3, 1)),
    st.builds(
        Fit,
        st.just("letterbox"),
        fill=st.one_of(st.tuples(_FILL), st.tuples(_FILL, _FILL, _FILL)),
        position=st.sampled_from(["center", "topleft"]),
    ),
)
_WISHES = st.builds(
    Wish,
    st.none() | _VALUES,
    st.none() | st.sampled_from(COLORS),
    st.none() | _FITS,
    st.none() | st.sampled_from(FILTERS),
    st.none() | st.sampled_from(LAYOUTS),
).filter(bool)


@settings(max_examples=500)
@given(_WISHES, st.randoms())
def test_what_is_printed_is_read_back_in_any_order(
    wish: Wish, random: np.random.Generator
) -> None:
    assert parse(str(wish)) == wish
    words = str(wish).split(",")
    random.shuffle(words)
    assert parse(" , ".join(words)) == wish


@given(_WISHES)
def test_what_is_bound_prints_to_what_binds_to_it(wish: Wish) -> None:
    for info in (FLOAT, PLANES, GREY, INT8, UINT8):
        try:
            bound = bind(info, wish)
        except InputError:
            continue
        again = bind(info, parse(str(bound)))
        assert (str(again), again.values, again.fit) == (
            str(bound),
            bound.values,
            bound.fit,
        )
        assert bound.fault(info) is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("imagenet", "imagenet,rgb,stretch,bilinear,nhwc"),
        ("letterbox, bgr ,0_255", "0_255,bgr,letterbox=114,bilinear,nhwc"),
        ("mean=0.5,std=0.5", "m1_1,rgb,stretch,bilinear,nhwc"),
        (
            "0_255,mean=123.675/116.28/103.53,std=58.395/57.12/57.375,crop=0.875,bicubic",
            "0_255,mean=123.675/116.28/103.53,std=58.395/57.12/57.375,rgb,crop=0.875,bicubic,nhwc",
        ),
        (
            "letterbox=0/10/20,topleft,area",
            "0_1,rgb,letterbox=0/10/20,topleft,area,nhwc",
        ),
        ("std=0.5,crop=1", "0_1,std=0.5,rgb,crop,bilinear,nhwc"),
    ],
)
def test_the_canonical_text(text: str, canonical: str) -> None:
    assert str(bind(FLOAT, parse(text))) == canonical


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("bgr_imagenet", 'no preprocessing "bgr_imagenet"', "write imagenet,bgr"),
        ("imagenet+bgr", 'no preprocessing "imagenet+bgr"', "imagenet,bgr"),
        ("+bgr", 'no preprocessing "+bgr"', "commas: bgr"),
        (
            "leterbox",
            'no preprocessing "leterbox"; did you mean "letterbox"?',
            "raw, 0_1, 0_255, m1_1, imagenet",
        ),
        ("0_2", 'no preprocessing "0_2"; did you mean', "0_255"),
        ("", 'no preprocessing ""', "imagenet"),
        ("0_1,", 'no preprocessing ""', "imagenet"),
        ("fill=3", 'no preprocessing "fill=3"', "letterbox"),
        ("rgb,bgr", "says its color twice", "leave out bgr"),
        ("crop,letterbox=3", "says its resize twice", "leave out letterbox=3"),
        ("mean=1,mean=2", "says its mean twice", "leave out mean=2"),
        (
            "imagenet,std=2",
            "says mean and std twice: imagenet has its own",
            "0_255 before mean",
        ),
        ("raw,mean=2", "says mean and std twice", "0_255"),
        ("mean=123.675", "mean=123.675 is not in 0…1; write 0_255,mean=", "docs"),
        ("mean=1/2,std=1", '"mean=1/2" is not one number, or three', "0.485"),
        ("mean=nan", '"mean=nan" is not one number', "0.485"),
        ("mean=", '"mean=" is not one number', "0.485"),
        ("std=0", "std=0 is not above 0", "docs"),
        (
            "0_255,std=1e-37",
            "by mean=0 and std=1e-37 a pixel is beyond float32",
            "docs",
        ),
        (
            "0_255,mean=1e39",
            "by mean=1e+39 and std=1 a pixel is beyond float32",
            "docs",
        ),
        ("std=1/-1/1", "std=1/-1/1 is not above 0", "docs"),
        ("crop=1.5", "crop=1.5 is not in 0…1", "docs"),
        ("letterbox=256", "letterbox=256 is not one number of 0…255", "docs"),
        ("letterbox=1.5", "a crop or a fill that cannot be", "letterbox"),
        ("topleft", "topleft without letterbox", "letterbox,topleft"),
        ("imagenet=3", 'no preprocessing "imagenet=3"', "imagenet"),
    ],
)
def test_what_is_wrong_is_said(text: str, what: str, hint: str) -> None:
    with pytest.raises(InputError) as e:
        parse(text)
    assert what in e.value.what
    assert hint in (e.value.hint or "")
    assert e.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "info", "what"),
    [
        ("raw", FLOAT, "raw is for int8 and uint8; write 0_255"),
        ("0_1", UINT8, "the input has no scale to quantize with; write raw"),
        ("rgb", GREY, "an input of 1 channel takes gray, not rgb"),
        ("nchw", FLOAT, "is not an image of 1 or 3 channels in nchw"),
        (
            "0_1",
            TensorInfo("x", (1, 8, 8, 4), "<f4"),
            "is not an image of 1 or 3 channels",
        ),
        (
            "0_1",
            TensorInfo("x", (1, 8, 8, 3), "<i8"),
            "an input of int64 cannot take a photo",
        ),
    ],
)
def test_what_does_not_suit_an_input_is_said(
    text: str, info: TensorInfo, what: str
) -> None:
    with pytest.raises(InputError, match="x") as e:
        bind(info, parse(text))
    assert what in e.value.what


def test_the_page_has_every_word_and_says_nothing_that_is_not_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "preprocessing.md").read_text()
    quoted = set(re.findall(r"`([^`]*)`", page))
    for word in (*PRESETS, *COLORS, *RESIZES, *FILTERS, *LAYOUTS, "topleft"):
        assert word in quoted, word
    assert parse("mean=0.485/0.456/0.406,std=0.229/0.224/0.225") == parse("imagenet")
    specs = [
        q
        for q in quoted
        if re.fullmatch(r"[a-z0-9_]+(=[0-9./]+)?(,[a-z0-9_]+(=[0-9./]+)?)+", q)
    ]
    assert len(specs) >= 10
    for spec in specs:
        assert bind(FLOAT, parse(spec))


def test_the_default_is_by_type_and_says_that_it_is_assumed() -> None:
    assert str(bind(FLOAT)) == "0_1,rgb,stretch,bilinear,nhwc"
    assert str(bind(PLANES)) == "0_1,rgb,stretch,bilinear,nchw"
    assert str(bind(INT8)) == "raw,rgb,stretch,bilinear,nhwc"
    assert str(bind(GREY)) == "0_1,gray,stretch,bilinear,nhwc"
    assert bind(FLOAT).explained().endswith("(assumed; --preprocess says otherwise)")
    both = bind(FLOAT, parse("letterbox"), parse("m1_1,rgb"))
    assert both.explained() == (
        "m1_1,rgb,letterbox=114,bilinear,nhwc (given: letterbox=114; "
        "from the file's metadata: m1_1,rgb)"
    )
    assert not both.assumed
    assert bind(FLOAT, parse("0_255"), parse("m1_1")).values == PRESETS["0_255"]


def test_an_ambiguous_shape_takes_the_layout_that_is_said() -> None:
    square = TensorInfo("x", (1, 3, 8, 3), "<f4")
    assert ImageLayout.of(square) == ImageLayout(1, 3, 8, 3, False)
    assert bind(square, parse("nchw")).layout == "nchw"
    assert prepare(photo(20, 20), bind(square, parse("nchw")), square).shape == (
        1,
        3,
        8,
        3,
    )


# ---- geometry
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "image", "fit", "box", "target"),
    [
        (
            (4000, 3000),
            (640, 640),
            Fit("letterbox"),
            (0, 0, 4000, 3000),
            (0, 80, 640, 480),
        ),
        (
            (3000, 4000),
            (640, 640),
            Fit("letterbox"),
            (0, 0, 3000, 4000),
            (80, 0, 480, 640),
        ),
        # 278.69 rows from 68.66 on: those whose middle is in it, 69 to 346
        (
            (512, 343),
            (416, 416),
            Fit("letterbox"),
            (0, 5.5 / 13, 512, 278 * 16 / 13),
            (0, 69, 416, 278),
        ),
        (
            (512, 343),
            (416, 416),
            Fit("letterbox", position="topleft"),
            (0, 0, 512, 279 * 16 / 13),
            (0, 0, 416, 279),
        ),
        (
            (512, 600),
            (128, 128),
            Fit("letterbox"),
            (-29 / 16, 0, 110 * 75 / 16, 600),
            (9, 0, 110, 128),
        ),
        ((10, 20), (320, 240), Fit("letterbox"), (0, 0, 10, 20), (100, 0, 120, 240)),
        (
            (5000, 1),
            (64, 64),
            Fit("letterbox"),
            (0, -77.625, 5000, 78.125),
            (0, 31, 64, 1),
        ),
        ((640, 480), (224, 224), Fit("crop"), (80, 0, 480, 480), (0, 0, 224, 224)),
        (
            (640, 480),
            (224, 224),
            Fit("crop", 0.875),
            (110, 30, 420, 420),
            (0, 0, 224, 224),
        ),
        ((100, 100), (200, 100), Fit("crop"), (0, 25, 100, 50), (0, 0, 200, 100)),
        ((7, 9), (3, 5), Fit(), (0, 0, 7, 9), (0, 0, 3, 5)),
    ],
)
def test_where_a_photo_goes(
    size: tuple[int, int],
    image: tuple[int, int],
    fit: Fit,
    box: tuple[float, ...],
    target: tuple[int, ...],
) -> None:
    assert Placement.of(size, image, fit) == Placement(pytest.approx(box), target)  # type: ignore[arg-type]


def test_a_letterbox_is_the_photo_and_its_fill() -> None:
    info = TensorInfo("x", (1, 8, 8, 3), "|u1")
    found = prepare(photo(4, 8), bind(info, parse("letterbox=1/2/3")), info)[0]
    np.testing.assert_array_equal(found[2:6], photo(4, 8))
    np.testing.assert_array_equal(
        found[[0, 1, 6, 7]], np.broadcast_to([1, 2, 3], (4, 8, 3))
    )
    blue_first = prepare(
        photo(4, 8), bind(info, parse("letterbox=1/2/3,bgr,topleft")), info
    )[0]
    np.testing.assert_array_equal(blue_first[:4], photo(4, 8)[..., ::-1])
    np.testing.assert_array_equal(blue_first[7, 7], [3, 2, 1])


def test_a_crop_is_the_middle() -> None:
    info = TensorInfo("x", (1, 4, 4, 3), "|u1")
    whole = photo(4, 10)
    np.testing.assert_array_equal(
        prepare(whole, bind(info, parse("crop")), info)[0], whole[:, 3:7]
    )
    whole = photo(8, 10)
    np.testing.assert_array_equal(
        prepare(whole, bind(info, parse("crop=0.5")), info)[0], whole[2:6, 3:7]
    )


# ---- resampling
# --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 70),
    st.integers(1, 70),
    st.sampled_from([1, 3]),
    st.integers(0, 9),
)
def test_bilinear_is_within_one_level_of_pillows(
    h: int, w: int, height: int, width: int, c: int, seed: int
) -> None:
    pixels = photo(h, w, c, seed)
    picture = Image.fromarray(pixels[..., 0] if c == 1 else pixels)
    theirs = np.asarray(
        picture.resize((width, height), Image.Resampling.BILINEAR)
    ).reshape(height, width, c)
    ours = resize(pixels, (0, 0, w, h), (width, height), "bilinear")
    assert np.abs(ours.astype(int) - theirs).max() <= 1


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(0, 1),
    st.integers(0, 9),
)
def test_the_weighted_sum_in_exact_arithmetic(
    h: int, w: int, height: int, width: int, part: float, seed: int
) -> None:
    """Against the definition, in float64 and without separating it: within the weights'
    rounding.
    """
    pixels = photo(h, w, 1, seed)
    box = (part * w / 3, part * h / 4, w * (1 - part / 2), h * (1 - part / 2))
    for how in ("bilinear", "bicubic", "area"):
        down = _dense(how, h, box[1], box[3], height)
        across = _dense(how, w, box[0], box[2], width)
        exact = np.clip(down @ pixels[..., 0].astype(np.float64) @ across.T, 0, 255)
        assert (
            np.abs(resize(pixels, box, (width, height), how)[..., 0] - exact).max()
            <= 0.55
        )


def _dense(how: str, length: int, start: float, extent: float, count: int) -> Array:
    step = extent / count
    at = np.arange(length) + 0.5
    rows = []
    for i in range(count):
        x = np.abs(at - (start + (i + 0.5) * step)) / max(1.0, step)
        if how == "bilinear":
            row = np.maximum(1 - x, 0)
        elif how == "bicubic":
            row = np.where(
                x < 1, 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
            ) * (x < 2)
        else:
            low = start + i * step
            row = np.maximum(
                np.minimum(at + 0.5, low + step) - np.maximum(at - 0.5, low), 0
            )
        rows.append(row / row.sum())
    return np.array(rows)


def test_known_reductions() -> None:
    ramp = np.arange(16, dtype=np.uint8).reshape(1, 16, 1)
    # 1.5, 5.5, …: half goes up
    assert resize(ramp, (0, 0, 16, 1), (4, 1), "area").ravel().tolist() == [
        2,
        6,
        10,
        14,
    ]
    assert resize(ramp, (0, 0, 16, 1), (4, 1), "nearest").ravel().tolist() == [
        2,
        6,
        10,
        14,
    ]
    white = np.full((37, 91, 3), 255, np.uint8)
    for how in FILTERS:
        assert (resize(white, (0, 0, 91, 37), (13, 64), how) == 255).all()


@given(
    st.integers(1, 5000),
    st.integers(1, 700),
    st.sampled_from(["bilinear", "bicubic", "area"]),
    st.floats(0.1, 1),
)
@settings(max_examples=60)
def test_no_sum_leaves_what_float32_holds(
    length: int, count: int, how: str, part: float
) -> None:
    """Even white under every positive weight and black under the others: so every order
    of adding is exact.
    """
    for first, weights in resample._taps(
        how, length, (1 - part) * length / 2, part * length, count
    ):
        assert 0 <= first < first + len(weights) <= length
        assert weights.sum() == resample.ONE
        assert (weights == np.rint(weights)).all()
        assert 255 * np.abs(weights).sum() < 2**24


_PRINTS_BITS = """
import hashlib, sys, numpy as np
from edgec_runtime import TensorInfo, prepare
from edgec_runtime.vision.preprocess import bind, parse
photo = np.random.default_rng(7).integers(0, 256, (211, 307, 3), np.uint8)
for text in sys.argv[1:]:
    info = TensorInfo("x", (1, 3, 96, 64), "<f4")
    print(hashlib.sha256(prepare(photo, bind(info, parse(text)), info).tobytes()).hexdigest())
"""


def test_the_same_bits_by_other_kernels_and_another_numpy() -> None:
    """OpenBLAS without fused multiply-add, and the numpy of the device's environment,
    where there is one.
    """
    texts = [
        "imagenet,letterbox",
        "m1_1,crop=0.875,bicubic",
        "0_255,mean=1/2/3,std=3,area",
        "bgr,nearest,letterbox",
    ]
    root = Path(__file__).parents[2]
    seen = set()
    pythons = [sys.executable, str(root / ".venv-tflite-runtime" / "bin" / "python")]
    for python in filter(os.path.exists, pythons):
        for core in ("", "Prescott", "Haswell"):
            env = {
                **os.environ,
                "PYTHONPATH": str(root / "runtime"),
                **({"OPENBLAS_CORETYPE": core} if core else {}),
            }
            done = subprocess.run(
                [python, "-c", _PRINTS_BITS, *texts],
                env=env,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done.stderr
            seen.add(done.stdout)
    assert len(seen) == 1


# ---- numbers
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "level", "expected"),
    [
        ("0_1", 51, [0.2] * 3),
        ("0_255", 51, [51] * 3),
        ("m1_1", 51, [-0.6] * 3),
        (
            "imagenet",
            51,
            [(0.2 - 0.485) / 0.229, (0.2 - 0.456) / 0.224, (0.2 - 0.406) / 0.225],
        ),
        (
            "imagenet,bgr",
            51,
            [(0.2 - 0.406) / 0.225, (0.2 - 0.456) / 0.224, (0.2 - 0.485) / 0.229],
        ),
        ("0_255,mean=1/2/3,std=4/5/6", 51, [50 / 4, 49 / 5, 48 / 6]),
        ("0_255,mean=127,std=128", 51, [(51 - 127) / 128] * 3),
    ],
)
def test_what_a_pixel_becomes(text: str, level: int, expected: list[float]) -> None:
    for info in (FLOAT, PLANES):
        found = prepare(
            np.full((3, 5, 3), level, np.uint8), bind(info, parse(text)), info
        )
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        pixel = found[0, 4, 4] if info is FLOAT else found[0, :, 4, 4]
        np.testing.assert_allclose(pixel, expected, rtol=1e-6)


def test_the_order_of_colours_and_grey() -> None:
    red = np.zeros((2, 2, 3), np.uint8)
    red[..., 0] = 200
    u8 = TensorInfo("x", (2, 2, 2, 3), "|u1")
    assert prepare(red, bind(u8), u8)[1, 0, 0].tolist() == [200, 0, 0]
    assert prepare(red, bind(u8, parse("bgr")), u8)[1, 0, 0].tolist() == [0, 0, 200]
    assert prepare(red, bind(u8, parse("gray")), u8)[1, 0, 0].tolist() == [60, 60, 60]
    one = TensorInfo("x", (1, 1, 2, 2), "|i1")
    assert prepare(red, bind(one), one).tolist() == [[[[60 - 128] * 2] * 2]]
    grey = TensorInfo("x", (1, 2, 2, 1), "<f4")
    assert prepare(red, bind(grey, parse("imagenet")), grey)[
        0, 0, 0, 0
    ] == pytest.approx((60 / 255 - 0.449) / 0.226)
    many = photo(30, 40)
    theirs = np.asarray(Image.fromarray(many).convert("L"))
    np.testing.assert_array_equal(
        prepare(many, bind(info := TensorInfo("x", (1, 30, 40, 1), "|u1")), info)[
            0, ..., 0
        ],
        theirs,
    )


def test_photos_of_one_and_four_channels() -> None:
    alpha = photo(5, 6, 4)
    np.testing.assert_array_equal(
        prepare(alpha, bind(FLOAT), FLOAT), prepare(alpha[..., :3], bind(FLOAT), FLOAT)
    )
    flat = photo(5, 6, 1)
    three = np.repeat(flat, 3, axis=2)
    for grey in (flat, flat[..., 0]):
        np.testing.assert_array_equal(
            prepare(grey, bind(FLOAT), FLOAT), prepare(three, bind(FLOAT), FLOAT)
        )
    with pytest.raises(InputError, match="is empty"):
        prepare(photo(0, 6), bind(FLOAT), FLOAT)


@given(
    st.floats(1e-4, 10),
    st.integers(-128, 127),
    st.sampled_from(["m1_1", "imagenet", "0_255", "0_1"]),
)
def test_quantized_inputs_are_quantized_as_by_the_law(
    scale: float, zero: int, name: str
) -> None:
    scale = float(np.float32(scale))
    info = TensorInfo("x", (1, 1, 256, 3), "|i1", QuantInfo((scale,), (zero,)))
    levels = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    real = prepare(
        levels, bind(f := TensorInfo("x", info.shape, "<f4"), parse(name)), f
    )
    t = TensorType(info.shape, "int8", IrQuant((scale,), (zero,)))
    (law,) = Quantize("int8").ref([real], [TensorType(info.shape)], [t])
    np.testing.assert_array_equal(prepare(levels, bind(info, parse(name)), info), law)


def test_ties_are_rounded_away_from_zero() -> None:
    found = quantized(
        np.array([0.5, 1.5, -0.5, -1.5, 0.49], np.float32), 1.0, 0, np.int8
    )
    assert found.tolist() == [1, 2, -1, -2, 0]


def test_a_record_keeps_what_was_said() -> None:
    p = bind(FLOAT, parse("bgr,letterbox"), parse("m1_1"))
    assert isinstance(p, Preprocess)
    assert p.to_json()["given"] == "bgr,letterbox=114"
    assert p.to_json()["metadata"] == "m1_1"
    assert bind(FLOAT).to_json()["given"] is None
    assert bind(FLOAT).given == NOTHING
