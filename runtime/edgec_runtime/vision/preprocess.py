"""How a photo becomes a model's input: the record that the manifest holds, and its text
form (docs/preprocessing.md).

    imagenet            0_255,mean=103.5,std=57.4,bgr,letterbox=114,bilinear

`parse` reads that text, `str` writes it.  What the text leaves open is `bind`'s to fill
in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Optional, Tuple

from ..errors import InputError, did_you_mean
from ..tensors import TensorInfo

RANGES = ("raw", "0_1", "0_255")
COLORS = ("rgb", "bgr", "gray")
RESIZES = ("stretch", "crop", "letterbox")
POSITIONS = ("center", "topleft")
FILTERS = ("bilinear", "bicubic", "area", "nearest")
LAYOUTS = ("nhwc", "nchw")
LETTERBOX_FILL = 114
"""The grey that detectors are usually trained with."""

_SEE = "see docs/preprocessing.md"
_FLOAT32_MOST = 3.4028234e38


@dataclass(frozen=True)
class Values:
    """What a pixel of 0…255 becomes: in `range`, less `mean`, by `std`; each one
    number, or three, red first.

    range: "0_1", "0_255", or "raw", the bytes as they are (int8: less 128), with no
    mean and std.
    """

    range: str = "0_1"
    mean: Tuple[float, ...] = (0.0,)
    std: Tuple[float, ...] = (1.0,)

    def __str__(self) -> str:
        name = next((name for name, values in PRESETS.items() if values == self), None)
        if name is not None:
            return name
        parts = [("mean", self.mean, (0.0,)), ("std", self.std, (1.0,))]
        return ",".join(
            [self.range, *(f"{k}={_numbers(v)}" for k, v, usual in parts if v != usual)]
        )

    def fault(self) -> Optional[str]:
        """What is wrong with the numbers, if anything."""
        if self.range not in RANGES:
            return f"a range is {', '.join(RANGES)}"
        if not all(
            len(n) in (1, 3) and all(map(math.isfinite, n))
            for n in (self.mean, self.std)
        ):
            return "mean and std are one number, or three separated by /"
        if min(self.std) <= 0:
            return f"std={_numbers(self.std)} is not above 0"
        if self.range == "raw" and self != PRESETS["raw"]:
            return "raw pixels have no mean and std"
        if self.range == "0_1" and max(map(abs, self.mean)) > 1:
            return (
                f"mean={_numbers(self.mean)} is not in 0…1; "
                "write "
                "0_255,mean=…,std=… "
                "for pixels of 0…255"
            )
        if (255 + max(map(abs, self.mean))) / min(self.std) > _FLOAT32_MOST:
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
"""Pixels as they are, in 0…1, in 0…255, in -1…1, and normalised as torchvision's
networks want them.
"""


@dataclass(frozen=True)
class Fit:
    """How a photo of any shape fills the input.

    stretch: all of it, whatever its shape.  crop: its middle of the input's shape, of
    which the part `crop`. letterbox: all of it in its own shape, in the middle or at
    the top left, and `fill` (0…255, red first) around it.
    """

    resize: str = "stretch"
    crop: float = 1.0
    fill: Tuple[int, ...] = (LETTERBOX_FILL,)
    position: str = "center"

    def __str__(self) -> str:
        if self.resize == "crop" and self.crop != 1:
            return f"crop={_numbers((self.crop,))}"
        if self.resize == "letterbox":
            return f"letterbox={_numbers(self.fill)}" + (
                ",topleft" if self.position == "topleft" else ""
            )
        return self.resize

    def fault(self) -> Optional[str]:
        """What is wrong with it, if anything."""
        if self.resize not in RESIZES or self.position not in POSITIONS:
            return f"resizing is {', '.join(RESIZES)}, at {' or '.join(POSITIONS)}"
        if not 0 < self.crop <= 1:
            return f"crop={_numbers((self.crop,))} is not in 0…1"
        if len(self.fill) not in (1, 3) or not all(0 <= n <= 255 for n in self.fill):
            return (
                f"letterbox={_numbers(self.fill)} is not one number of 0…255, "
                "or three separated by /"
            )
        if (self.crop != 1 and self.resize != "crop") or (
            self.position != "center" and self.resize != "letterbox"
        ):
            return f"{self.resize} has no crop or position"
        return None


@dataclass(frozen=True)
class Wish:
    """What somebody said of a preprocessing: the parts that are not None."""

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
        """What is said, by field."""
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) is not None
        }


NOTHING = Wish()


@dataclass(frozen=True)
class Preprocess:
    """All of a preprocessing.  given, stated: what of it a person said, and what the
    model's file did.
    """

    values: Values
    color: str
    fit: Fit
    filter: str
    layout: str
    given: Wish = NOTHING
    stated: Wish = NOTHING

    def __str__(self) -> str:
        return ",".join(
            str(part)
            for part in (self.values, self.color, self.fit, self.filter, self.layout)
        )

    def explained(self) -> str:
        """The text, and who said so."""
        said = [f"given: {self.given}"] if self.given else []
        said += [f"from the file's metadata: {self.stated}"] if self.stated else []
        return f"{self} ({'; '.join(said) or 'assumed; --preprocess says otherwise'})"

    @property
    def assumed(self) -> bool:
        """Whether nobody said anything."""
        return not self.given and not self.stated

    def fault(self, info: TensorInfo) -> Optional[str]:
        """Why it cannot make a tensor of this type, if it cannot."""
        own = self.values.fault() or self.fit.fault()
        if own is not None:
            return own
        for kind, value, known in (
            ("filter", self.filter, FILTERS),
            ("colour order", self.color, COLORS),
        ):
            if value not in known:
                return f"a {kind} is {', '.join(known)}"
        layout = ImageLayout.of(info, self.layout) if self.layout in LAYOUTS else None
        if layout is None:
            return (
                f"the shape {list(info.shape)} is no image with 1 or 3 channels in "
                f"{self.layout}"
            )
        if layout.channels == 1 and self.color != "gray":
            return f"an input of 1 channel takes gray, not {self.color}"
        if info.dtype == "<f4":
            if self.values.range == "raw":
                return "raw is for int8 and uint8; write 0_255"
            return None
        if info.dtype not in ("|i1", "|u1"):
            return f"an input of {info.numpy_dtype.name} cannot take a photo"
        if self.values.range != "raw" and (
            info.quant is None or len(info.quant.scale) != 1
        ):
            return "the input has no scale to quantize with; write raw"
        return self._contradiction()

    def _contradiction(self) -> Optional[str]:
        """Where it is not what it says that somebody said."""
        said = {**self.stated.parts(), **self.given.parts()}
        wrong = next(
            (str(part) for name, part in said.items() if getattr(self, name) != part),
            None,
        )
        return None if wrong is None else f"it is not {wrong}, as it says it should be"

    def to_json(self) -> Dict[str, Any]:
        """For manifest.json; manifest.py reads it."""
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
    """How a tensor stores an image: [N,H,W,C] or [N,C,H,W] with one or three channels."""

    batch: int
    height: int
    width: int
    channels: int
    channels_first: bool

    @classmethod
    def of(
        cls, info: TensorInfo, layout: Optional[str] = None
    ) -> Optional[ImageLayout]:
        """As said, else by the shape: the last axis if it has 1 or 3 channels, then the
        second.  None if no image.
        """
        if len(info.shape) != 4:
            return None
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
    """All of the preprocessing of an image input: as given, else as its file states,
    else as is usual.

    Usual is 0_1 for floats and raw for integers, the colours by the channels, stretch,
    bilinear.  Raises InputError for an input that is no image, and for one that it does
    not suit.
    """
    said = {**stated.parts(), **given.parts()}
    layout = ImageLayout.of(info, said.get("layout"))
    if layout is None:
        what = f"input {info} is no image of 1 or 3 channels" + (
            f" in {said['layout']}" if "layout" in said else ""
        )
        raise InputError(what, hint="give an .npz file with an array of that shape")
    usual = Preprocess(
        values=PRESETS["0_1" if info.dtype == "<f4" else "raw"],
        color="gray" if layout.channels == 1 else "rgb",
        fit=Fit(),
        filter=FILTERS[0],
        layout=str(layout),
    )
    parts = {
        name: said.get(name, getattr(usual, name))
        for name in usual.__dict__
        if name not in ("given", "stated")
    }
    bound = Preprocess(**parts, given=given, stated=stated)
    fault = bound.fault(info)
    if fault is not None:
        raise InputError(
            f"preprocessing {bound} does not suit input {info}: {fault}", hint=_SEE
        )
    return bound


# ---- the text form
# --------------------------------------------------------------------------------------

_WORDS: Dict[str, Tuple[str, Any]] = {
    **{name: ("range", values) for name, values in PRESETS.items()},
    **{name: ("color", name) for name in COLORS},
    **{name: ("resize", name) for name in RESIZES},
    "topleft": ("position", "topleft"),
    **{name: ("filter", name) for name in FILTERS},
    **{name: ("layout", name) for name in LAYOUTS},
}
_NUMBERED = {"mean": "mean", "std": "std", "crop": "resize", "letterbox": "resize"}


def parse(text: str) -> Wish:
    """Words separated by commas, in any order, each subject once.

    Raises InputError with what is wrong.
    """
    found: Dict[str, Any] = {}
    for item in text.split(","):
        word, equals, number = item.strip().partition("=")
        if not (word in _NUMBERED if equals else word in _WORDS):
            raise _unknown(item.strip())
        subject, value = (_NUMBERED[word], word) if equals else _WORDS[word]
        if subject in found:
            raise InputError(
                f'the preprocessing "{text}" says its {subject} twice',
                hint=f"leave out {item.strip()}",
            )
        found[subject] = value
        if equals:
            found[f"={word}"] = _read(item, number)
    wish = Wish(
        _values(found, text),
        found.get("color"),
        _fit(found, text),
        found.get("filter"),
        found.get("layout"),
    )
    for part in (wish.values, wish.fit):
        fault = part.fault() if part is not None else None
        if fault is not None:
            raise InputError(
                f'the preprocessing "{text}" cannot be: {fault}', "--preprocess", _SEE
            )
    return wish


def _values(found: Mapping[str, Any], text: str) -> Optional[Values]:
    if not {"range", "mean", "std"} & set(found):
        return None
    base: Values = found.get("range", PRESETS["0_1"])
    own = {"mean": found.get("=mean", base.mean), "std": found.get("=std", base.std)}
    if {"mean", "std"} & set(found) and base not in (PRESETS["0_1"], PRESETS["0_255"]):
        what = f'the preprocessing "{text}" says mean and std twice: {base} has its own'
        raise InputError(
            what,
            hint="write 0_1 or 0_255 before mean=…,std=…, "
            "the range of a pixel that they are for",
        )
    return Values(base.range, **own)


def _fit(found: Mapping[str, Any], text: str) -> Optional[Fit]:
    if "position" in found and found.get("resize") != "letterbox":
        raise InputError(
            f'the preprocessing "{text}" has topleft without letterbox',
            hint="write letterbox,topleft",
        )
    if "resize" not in found:
        return None
    fill = found.get("=letterbox", (float(LETTERBOX_FILL),))
    crop = found.get("=crop", (1.0,))
    if len(crop) != 1 or any(n != int(n) for n in fill):
        what = f'the preprocessing "{text}" has a crop or a fill that cannot be'
        raise InputError(
            what,
            "--preprocess",
            "write for example crop=0.875, letterbox=114 or letterbox=124/116/104",
        )
    return Fit(
        found["resize"],
        crop[0],
        tuple(int(n) for n in fill),
        found.get("position", "center"),
    )


def _read(item: str, text: str) -> Tuple[float, ...]:
    try:
        numbers = tuple(float(n) for n in text.split("/"))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise InputError(
            f'"{item}" is not one number, or three separated by /',
            hint="for example mean=0.485/0.456/0.406",
        )
    return numbers


def _numbers(numbers: Tuple[float, ...]) -> str:
    return "/".join(
        repr(int(n)) if n == int(n) and abs(n) < 1e9 else repr(float(n))
        for n in numbers
    )


def _unknown(word: str) -> InputError:
    what = f'there is no preprocessing "{word}"'
    if word.startswith("bgr_") and word[4:] in PRESETS:  # the spellings of 0.1.0
        return InputError(what, "--preprocess", f"write {word[4:]},bgr")
    if "+" in word:
        return InputError(
            what,
            "--preprocess",
            f"separate by commas: {word.strip('+').replace('+', ',')}",
        )
    near = did_you_mean(word, [*_WORDS, *(f"{name}=…" for name in _NUMBERED)])
    hint = (
        f"use {', '.join(PRESETS)}, mean=…,std=…; {', '.join(COLORS)}; "
        f"{', '.join(RESIZES)}; {', '.join(FILTERS)}; "
        "for example imagenet,bgr,crop=0.875 (docs/preprocessing.md)"
    )
    return InputError(what + near, "--preprocess", hint)
