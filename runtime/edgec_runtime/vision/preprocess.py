"""Defines how a photo becomes a model's input, as a manifest's record and as a text.

    imagenet            0_255,mean=103.5,std=57.4,bgr,letterbox=114,bilinear

`parse` reads the text, `str` writes it, and `bind` fills in the parts that a text leaves
open (docs/preprocessing.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..errors import InputError, did_you_mean
from ..tensors import TensorInfo

RANGES = ("raw", "0_1", "0_255")
COLORS = ("rgb", "bgr", "gray")
RESIZES = ("stretch", "crop", "letterbox")
POSITIONS = ("center", "topleft")
FILTERS = ("bilinear", "bicubic", "area", "nearest")
LAYOUTS = ("nhwc", "nchw")
LETTERBOX_FILL = 114
"""The grey with which detectors are usually trained."""

_SEE = "see docs/preprocessing.md"
MAX_FLOAT32 = 3.4028234e38
"""The largest finite float32."""
MAX_WRITTEN_INTEGER = 1e9
"""Numbers above it are written with an exponent."""


@dataclass(frozen=True)
class Values:
    """The values of pixels: (level - mean) / std, with levels of 0…255 in a range.

    Attributes:
        range: "0_1", "0_255", or "raw", the bytes themselves (for int8 minus 128),
            without mean and std
        mean: one number, or three, red first
        std: one number, or three, red first
    """

    range: str = "0_1"
    mean: Tuple[float, ...] = (0.0,)
    std: Tuple[float, ...] = (1.0,)

    def __str__(self) -> str:
        for name, values in PRESETS.items():
            if values == self:
                return name

        words = [self.range]
        if self.mean != (0.0,):
            words.append(f"mean={_numbers(self.mean)}")
        if self.std != (1.0,):
            words.append(f"std={_numbers(self.std)}")
        return ",".join(words)

    def fault(self) -> Optional[str]:
        """Return what is wrong with the numbers; None if nothing is."""
        if self.range not in RANGES:
            return f"a range is {', '.join(RANGES)}"
        if not (_is_channel_value(self.mean) and _is_channel_value(self.std)):
            return "mean and std are one number, or three separated by /"
        if min(self.std) <= 0:
            return f"std={_numbers(self.std)} is not above 0"
        if self.range == "raw" and self != PRESETS["raw"]:
            return "raw pixels have no mean and std"

        # A mean of 103.5 in 0…1 is a mistake, with which no network works.
        largest_mean = max(map(abs, self.mean))
        if self.range == "0_1" and largest_mean > 1:
            return (
                f"mean={_numbers(self.mean)} is not in 0…1; "
                "write "
                "0_255,mean=…,std=… "
                "for pixels of 0…255"
            )
        if (255 + largest_mean) / min(self.std) > MAX_FLOAT32:
            return (
                f"by mean={_numbers(self.mean)} and std={_numbers(self.std)} a "
                "pixel is beyond float32"
            )
        return None


PRESETS: Mapping[str, Values] = {
    "raw": Values("raw"),
    "0_1": Values("0_1"),
    "0_255": Values("0_255"),
    "m1_1": Values("0_1", (0.5,), (0.5,)),
    "imagenet": Values("0_1", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
"""Values with a name: unchanged pixels, those in 0…1, 0…255 and -1…1, and the
normalization of torchvision's networks.
"""


@dataclass(frozen=True)
class Fit:
    """How a photo of any shape fills the input.

    Attributes:
        resize: "stretch": the whole photo, distorted to the input's shape; "crop": the
            largest middle part with the shape of the input; "letterbox": the whole photo
            in its own shape, with a border
        crop: the fraction of that middle part that is used, in each direction
        fill: levels of the border, one number, or three, red first
        position: place of the photo in a letterbox, "center" or "topleft"
    """

    resize: str = "stretch"
    crop: float = 1.0
    fill: Tuple[int, ...] = (LETTERBOX_FILL,)
    position: str = "center"

    def __str__(self) -> str:
        if self.resize == "crop" and self.crop != 1:
            return f"crop={_numbers((self.crop,))}"
        if self.resize == "letterbox":
            position = ",topleft" if self.position == "topleft" else ""
            return f"letterbox={_numbers(self.fill)}{position}"
        return self.resize

    def fault(self) -> Optional[str]:
        """Return what is wrong with the fields; None if nothing is."""
        if self.resize not in RESIZES or self.position not in POSITIONS:
            return f"resizing is {', '.join(RESIZES)}, at {' or '.join(POSITIONS)}"
        if not 0 < self.crop <= 1:
            return f"crop={_numbers((self.crop,))} is not in 0…1"
        if len(self.fill) not in (1, 3) or not all(0 <= n <= 255 for n in self.fill):
            return (
                f"letterbox={_numbers(self.fill)} is not one number of 0…255, "
                "or three separated by /"
            )

        # A manifest could have them although they have no effect.
        has_crop = self.crop != 1
        has_position = self.position != "center"
        if has_crop and self.resize != "crop":
            return f"{self.resize} has no crop or position"
        if has_position and self.resize != "letterbox":
            return f"{self.resize} has no crop or position"
        return None


@dataclass(frozen=True)
class Wish:
    """The parts of a preprocessing that a person or a file states; None: not stated.

    Attributes:
        values: values of pixels
        color: order of colours
        fit: how a photo fills the input
        filter: filter of resizing
        layout: order of the input's axes
    """

    values: Optional[Values] = None
    color: Optional[str] = None
    fit: Optional[Fit] = None
    filter: Optional[str] = None
    layout: Optional[str] = None

    def __str__(self) -> str:
        return ",".join(str(part) for part in self.parts().values())

    def __bool__(self) -> bool:
        return bool(self.parts())

    def parts(self) -> Dict[str, Any]:
        """Return the parts that are stated, by field."""
        parts: Dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None:
                parts[f.name] = value
        return parts


NOTHING = Wish()
"""No part is stated."""


@dataclass(frozen=True)
class Preprocess:
    """A complete preprocessing.

    Attributes:
        values: values of pixels
        color: order of colours, one of `COLORS`
        fit: how a photo fills the input
        filter: filter of resizing, one of `FILTERS`
        layout: order of the input's axes, one of `LAYOUTS`
        given: the parts that a person stated
        stated: the parts that the model's file stated
    """

    values: Values
    color: str
    fit: Fit
    filter: str
    layout: str
    given: Wish = NOTHING
    stated: Wish = NOTHING

    def __str__(self) -> str:
        parts = (self.values, self.color, self.fit, self.filter, self.layout)
        return ",".join(map(str, parts))

    def explained(self) -> str:
        """Return the text with the sources of its parts."""
        sources: List[str] = []
        if self.given:
            sources.append(f"given: {self.given}")

        if self.stated:
            sources.append(f"from the file's metadata: {self.stated}")

        if not sources:
            sources.append("assumed; --preprocess says otherwise")
        return f"{self} ({'; '.join(sources)})"

    @property
    def assumed(self) -> bool:
        """Whether neither a person nor the file stated any part."""
        return not self.given and not self.stated

    def fault(self, info: TensorInfo) -> Optional[str]:
        """Return why it cannot make a tensor of this type; None if it can."""
        fault = self.values.fault() or self.fit.fault() or self._word_fault()
        if fault is not None:
            return fault

        layout = ImageLayout.of(info, self.layout) if self.layout in LAYOUTS else None
        if layout is None:
            return (
                f"the shape {list(info.shape)} is not an image with 1 or 3 channels in "
                f"{self.layout}"
            )

        if layout.channels == 1 and self.color != "gray":
            return f"an input of 1 channel takes gray, not {self.color}"
        return self._type_fault(info)

    def _word_fault(self) -> Optional[str]:
        """Return which word is unknown; None if all are known."""
        if self.filter not in FILTERS:
            return f"a filter is {', '.join(FILTERS)}"
        if self.color not in COLORS:
            return f"a colour order is {', '.join(COLORS)}"
        return None

    def _type_fault(self, info: TensorInfo) -> Optional[str]:
        """Return why it does not suit the element type; None if it does."""
        is_raw = self.values.range == "raw"
        if info.dtype == "<f4":
            return "raw is for int8 and uint8; write 0_255" if is_raw else None

        if info.dtype not in ("|i1", "|u1"):
            return f"an input of {info.numpy_dtype.name} cannot take a photo"
        # One table of 256 elements serves all pixels, so there has to be one scale.
        has_scale = info.quant is not None and len(info.quant.scale) == 1

        if not is_raw and not has_scale:
            return "the input has no scale to quantize with; write raw"
        return self._contradiction()

    def _contradiction(self) -> Optional[str]:
        """Return a part that differs from the statement that it claims to follow."""
        stated = {**self.stated.parts(), **self.given.parts()}
        for name, part in stated.items():
            if getattr(self, name) != part:
                return f"it is not {part}, as it says it should be"
        return None

    def to_json(self) -> Dict[str, Any]:
        """Return the record of manifest.json, which bundle/manifest.py reads."""
        values = self.values
        fit = self.fit
        return {
            "range": values.range,
            "mean": list(values.mean),
            "std": list(values.std),
            "color": self.color,
            "resize": fit.resize,
            "crop": fit.crop,
            "fill": list(fit.fill),
            "position": fit.position,
            "filter": self.filter,
            "layout": self.layout,
            "given": str(self.given) or None,
            "metadata": str(self.stated) or None,
        }


@dataclass(frozen=True)
class ImageLayout:
    """How a tensor stores an image: [N, H, W, C] or [N, C, H, W], C being 1 or 3.

    Attributes:
        batch: N
        height: H
        width: W
        channels: C
        channels_first: whether it is [N, C, H, W]
    """

    batch: int
    height: int
    width: int
    channels: int
    channels_first: bool

    @classmethod
    def of(
        cls, info: TensorInfo, layout: Optional[str] = None
    ) -> Optional[ImageLayout]:
        """Return the layout of a tensor; None if it is no image.

        Args:
            info: the tensor
            layout: "nhwc" or "nchw"; None to choose by the shape, "nhwc" first
        """
        if len(info.shape) != 4:
            return None

        # Images of 1 or 3 columns are rarer than channels at the end.
        if info.shape[3] in (1, 3) and layout != "nchw":
            n, h, w, c = info.shape
            return cls(n, h, w, c, False)
        if info.shape[1] in (1, 3) and layout != "nhwc":
            n, c, h, w = info.shape
            return cls(n, h, w, c, True)
        return None

    def __str__(self) -> str:
        return LAYOUTS[self.channels_first]


def bind(info: TensorInfo, given: Wish = NOTHING, stated: Wish = NOTHING) -> Preprocess:
    """Return the complete preprocessing of an image input.

    A part is as a person gave it, else as the file states it, else the usual one: 0_1
    for floats and raw for integers, colours by the number of channels, stretch,
    bilinear.

    Args:
        info: the input
        given: the parts that a person stated
        stated: the parts that the model's file stated

    Raises:
        InputError: the input is no image, or the preprocessing does not suit it
    """
    statements = {**stated.parts(), **given.parts()}
    layout = ImageLayout.of(info, statements.get("layout"))
    if layout is None:
        what = f"input {info} is not an image of 1 or 3 channels"
        if "layout" in statements:
            what += f" in {statements['layout']}"
        raise InputError(what, hint="give an .npz file with an array of that shape")

    parts: Dict[str, Any] = {
        "values": PRESETS["0_1" if info.dtype == "<f4" else "raw"],
        "color": "gray" if layout.channels == 1 else "rgb",
        "fit": Fit(),
        "filter": FILTERS[0],
        "layout": str(layout),
    }

    parts.update(statements)
    bound = Preprocess(**parts, given=given, stated=stated)

    # Both statements may be right alone and contradict the input.
    fault = bound.fault(info)
    if fault is not None:
        raise InputError(
            f"preprocessing {bound} does not suit input {info}: {fault}", hint=_SEE
        )
    return bound


# ---- the text form
# --------------------------------------------------------------------------------------


def _subjects() -> Dict[str, Tuple[str, Any]]:
    """Return for each word of the text its subject and its value."""
    words: Dict[str, Tuple[str, Any]] = {}
    for name, values in PRESETS.items():
        words[name] = ("range", values)

    for subject, names in (
        ("color", COLORS),
        ("resize", RESIZES),
        ("position", ("topleft",)),
        ("filter", FILTERS),
        ("layout", LAYOUTS),
    ):
        for name in names:
            words[name] = (subject, name)
    return words


_WORDS = _subjects()
"""Words of the text; a suggestion for an unknown one is chosen in this order."""
_NUMBERED = {"mean": "mean", "std": "std", "crop": "resize", "letterbox": "resize"}
"""Words with numbers, as in mean=0.5, and their subjects."""


def parse(text: str) -> Wish:
    """Return the parts in a text: words separated by commas, in any order.

    Raises:
        InputError: a word is unknown, or a subject has two
    """
    words = _read_words(text)
    wish = Wish(
        _values(words, text),
        words.get("color"),
        _fit(words, text),
        words.get("filter"),
        words.get("layout"),
    )
    for part in (wish.values, wish.fit):
        fault = part.fault() if part is not None else None
        if fault is not None:
            raise InputError(
                f'the preprocessing "{text}" cannot be: {fault}', "--preprocess", _SEE
            )
    return wish


def _read_words(text: str) -> Dict[str, Any]:
    """Return the value of each subject in a text, and the numbers of "=" and a word."""
    words: Dict[str, Any] = {}
    for item in text.split(","):
        word, equals, number = item.strip().partition("=")
        if equals and word in _NUMBERED:
            subject = _NUMBERED[word]
            value: Any = word
        elif not equals and word in _WORDS:
            subject, value = _WORDS[word]
        else:
            raise _unknown(item.strip())

        # The order of words has no meaning, so neither of the two could win.
        if subject in words:
            raise InputError(
                f'the preprocessing "{text}" says its {subject} twice',
                hint=f"leave out {item.strip()}",
            )
        words[subject] = value
        if equals:
            words[f"={word}"] = _read_numbers(item, number)
    return words


def _values(words: Mapping[str, Any], text: str) -> Optional[Values]:
    """Return the values of pixels in a text; None if it states none."""
    if not {"range", "mean", "std"} & set(words):
        return None
    base: Values = words.get("range", PRESETS["0_1"])

    # Presets other than plain ranges have a mean and a deviation already.
    is_normalized = base not in (PRESETS["0_1"], PRESETS["0_255"])
    if is_normalized and {"mean", "std"} & set(words):
        what = f'the preprocessing "{text}" says mean and std twice: {base} has its own'
        raise InputError(
            what,
            hint="write 0_1 or 0_255 before mean=…,std=…, "
            "the range of a pixel that they are for",
        )

    mean = words.get("=mean", base.mean)
    std = words.get("=std", base.std)
    return Values(base.range, mean, std)


def _fit(words: Mapping[str, Any], text: str) -> Optional[Fit]:
    """Return how a photo fills the input by a text; None if it does not state it."""
    if "position" in words and words.get("resize") != "letterbox":
        raise InputError(
            f'the preprocessing "{text}" has topleft without letterbox',
            hint="write letterbox,topleft",
        )
    if "resize" not in words:
        return None

    fill = words.get("=letterbox", (float(LETTERBOX_FILL),))

    crop = words.get("=crop", (1.0,))

    if len(crop) != 1 or any(n != int(n) for n in fill):
        what = f'the preprocessing "{text}" has a crop or a fill that cannot be'
        raise InputError(
            what,
            "--preprocess",
            "write for example crop=0.875, letterbox=114 or letterbox=124/116/104",
        )

    levels = tuple(int(n) for n in fill)
    return Fit(words["resize"], crop[0], levels, words.get("position", "center"))


def _read_numbers(item: str, text: str) -> Tuple[float, ...]:
    """Return the numbers after an "=".

    Args:
        item: the whole item, for messages
        text: the numbers
    """
    try:
        numbers = tuple(float(n) for n in text.split("/"))
    except ValueError:
        numbers = ()
    if not _is_channel_value(numbers):
        raise InputError(
            f'"{item}" is not one number, or three separated by /',
            hint="for example mean=0.485/0.456/0.406",
        )
    return numbers


def _is_channel_value(numbers: Tuple[float, ...]) -> bool:
    """Return whether there is one finite number, or one for each colour."""
    return len(numbers) in (1, 3) and all(map(math.isfinite, numbers))


def _numbers(numbers: Tuple[float, ...]) -> str:
    """Return numbers as a text has them, integers without a point."""
    texts: List[str] = []
    for n in numbers:
        is_integer = n == int(n) and abs(n) < MAX_WRITTEN_INTEGER
        texts.append(repr(int(n)) if is_integer else repr(float(n)))
    return "/".join(texts)


def _unknown(word: str) -> InputError:
    """Return the error for an unknown word, with a suggestion."""

    what = f'there is no preprocessing "{word}"'
    # These are the spellings of version 0.1.0.
    if word.startswith("bgr_") and word[4:] in PRESETS:
        return InputError(what, "--preprocess", f"write {word[4:]},bgr")
    if "+" in word:
        words = word.strip("+").replace("+", ",")
        return InputError(what, "--preprocess", f"separate by commas: {words}")

    near = did_you_mean(word, [*_WORDS, *(f"{name}=…" for name in _NUMBERED)])
    hint = (
        f"use {', '.join(PRESETS)}, mean=…,std=…; {', '.join(COLORS)}; "
        f"{', '.join(RESIZES)}; {', '.join(FILTERS)}; "
        "for example imagenet,bgr,crop=0.875 (docs/preprocessing.md)"
    )
    return InputError(what + near, "--preprocess", hint)
