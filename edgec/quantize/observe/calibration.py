"""Calibration samples: from an .npz file, a photo, or a folder of photos."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import overload

import numpy as np
from edgec_runtime import Preprocess
from edgec_runtime.bundle.arrays import read_arrays
from edgec_runtime.vision.photo import PHOTO_SUFFIXES

from edgec.errors import InputError
from edgec.executors import in_order
from edgec.ir import Array, TensorType, Value
from edgec.quantize.observe.preprocess import photo_input

Sample = Mapping[str, Array]
"""One set of inputs, by name."""

HELD_BACK = 16
"""At most so many samples are kept from calibration to verify with, and at most a
quarter.
"""
KEPT_BYTES = 256 << 20
_READERS = 2
_SEED = 0

_NUMBERED = re.compile(r"in(\d+)_(\d+)")


@dataclass(frozen=True)
class Photos(Sequence[Sample]):
    """A sample for each photo, read when it is asked for: memory holds one.

    Raises InputError for what is no photo.
    """

    paths: Sequence[Path]
    input: Value
    preprocess: Preprocess | None

    def __len__(self) -> int:
        return len(self.paths)

    @overload
    def __getitem__(self, i: int) -> Sample: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Sample]: ...
    def __getitem__(self, i: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(i, slice):
            return Photos(self.paths[i], self.input, self.preprocess)
        return {
            self.input.name: photo_input(
                self.paths[i], self.input.name, self.input.type, self.preprocess
            )
        }


def ahead(samples: Sequence[Sample]) -> Iterator[Sample]:
    """The samples in order; photos are read while those before them are used."""
    if not isinstance(samples, (Photos, CachedSamples)):
        yield from samples
        return
    yield from in_order(samples.__getitem__, range(len(samples)), _READERS)


class CachedSamples(Sequence[Sample]):
    """Samples that are read again and again: those that KEPT_BYTES have room for are
    read once.
    """

    def __init__(
        self,
        of: Sequence[Sample],
        numbers: Sequence[int] | None = None,
        cache: _Cache | None = None,
    ) -> None:
        self.of = of
        self._cache = cache if cache is not None else _Cache()
        self.numbers = range(len(of)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, i: int) -> Sample: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Sample]: ...
    def __getitem__(self, i: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(i, slice):
            return self.some(self.numbers[i])
        return self._cache.get(self.of, self.numbers[i])

    def some(self, numbers: Sequence[int]) -> CachedSamples:
        """Of all samples, these; what was read stays read."""
        return CachedSamples(self.of, numbers, self._cache)


class _Cache:
    def __init__(self) -> None:
        self._known: dict[int, Sample] = {}
        self._bytes = 0

    def get(self, of: Sequence[Sample], i: int) -> Sample:
        if i in self._known:
            return self._known[i]
        sample = of[i]
        nbytes = sum(array.nbytes for array in sample.values())
        if self._bytes + nbytes <= KEPT_BYTES:
            self._known[i], self._bytes = sample, self._bytes + nbytes
        return sample


def label(samples: Sequence[Sample], i: int) -> str:
    """What people call a sample: the name of its photo, else its number."""
    if isinstance(samples, CachedSamples):
        return label(samples.of, samples.numbers[i])
    return samples.paths[i].name if isinstance(samples, Photos) else f"sample {i}"


def chosen(samples: Sequence[Sample], numbers: Sequence[int]) -> Sequence[Sample]:
    """Those of these numbers; photos stay unread."""
    if isinstance(samples, CachedSamples):
        return samples.some([samples.numbers[i] for i in numbers])
    if isinstance(samples, Photos):
        return Photos(
            [samples.paths[i] for i in numbers], samples.input, samples.preprocess
        )
    return [samples[i] for i in numbers]


def spread(total: int, count: int) -> list[int]:
    """At most so many numbers below `total`, evenly."""
    return [i * total // min(total, count) for i in range(min(total, count))]


def split(
    samples: Sequence[Sample], limit: int, hold: bool = True
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """At most `limit` samples to calibrate with and, with `hold`, others to verify
    with; the same at every call.

    A quarter is held back, at least 1 and at most HELD_BACK; none of fewer than 4
    samples. Both are drawn from all samples: the first photos of a folder may be all of
    one kind.
    """
    count = len(samples)
    order = np.random.default_rng(_SEED).permutation(count).tolist()
    held = min(count // 4, HELD_BACK) if hold else 0
    return chosen(samples, sorted(order[held : held + limit])), chosen(
        samples, sorted(order[:held])
    )


def load_calibration(
    path: Path,
    inputs: Sequence[Value],
    preprocess: Preprocess | None = None,
    limit: int | None = None,
) -> Sequence[Sample]:
    """The samples at `path` for these graph inputs, at most `limit` of them.

    Raises InputError, never returns none.

    A folder or a photo: photos (jpg, png, bmp, ppm) sorted by name, turned upright and
    put through `preprocess` (by default what is usual for the input's type).

    An .npz file: arrays named as the inputs, of the input's shape or with samples along
    a leading (or the batch) axis; or in<k>_<j> for input j of sample k; or a single
    array for a single input. Elements are taken as they are.
    """
    if path.is_dir():
        samples: Sequence[Sample] = _from_photos(
            _photos(path), path, inputs, preprocess
        )
    elif not path.is_file():
        raise InputError(
            f"no such calibration data: {path}",
            hint="give a folder of photos or an .npz file",
        )
    elif path.suffix.lower() == ".npz":
        samples = _from_npz(path, inputs)
    elif path.suffix.lower() in PHOTO_SUFFIXES:
        samples = _from_photos([path], path, inputs, preprocess)
    else:
        what = f"{path.name} is neither an .npz file, a photo nor a folder"
        raise InputError(what, str(path), "give a folder of photos or an .npz file")
    return samples[:limit]


def _photos(folder: Path) -> list[Path]:
    found = sorted(
        p
        for p in folder.iterdir()
        if p.suffix.lower() in PHOTO_SUFFIXES and p.is_file()
    )
    if not found:
        kinds = ", ".join(s[1:] for s in PHOTO_SUFFIXES)
        raise InputError(
            "the calibration folder holds no photo",
            str(folder),
            f"put some photos ({kinds}) in it",
        )
    return _different(found)


def _different(photos: list[Path]) -> list[Path]:
    """Without copies of one file: one that is held back to verify with would have been
    seen after all.
    """
    sizes = Counter(p.stat().st_size for p in photos)
    first: dict[bytes | Path, Path] = {}
    for p in photos:
        first.setdefault(
            sha256(p.read_bytes()).digest() if sizes[p.stat().st_size] > 1 else p, p
        )
    return list(first.values())


def _from_photos(
    photos: list[Path],
    path: Path,
    inputs: Sequence[Value],
    preprocess: Preprocess | None,
) -> Photos:
    if len(inputs) != 1:
        names = ", ".join(v.name for v in inputs)
        what = f"photos feed one input, but the model has {len(inputs)}: {names}"
        raise InputError(
            what, str(path), "give an .npz file with an array for each input"
        )
    found = Photos(photos, inputs[0], preprocess)
    found[0]  # an input that no photo fits is told of at once
    return found


def _from_npz(path: Path, inputs: Sequence[Value]) -> list[Sample]:
    arrays = read_arrays(path)
    if any(_NUMBERED.fullmatch(name) for name in arrays):
        samples = _numbered(arrays, path, inputs)
    else:
        samples = _named(arrays, path, inputs)
    if not samples:
        raise InputError(f"{path.name} holds no sample", str(path), _expected(inputs))
    return samples


def _numbered(
    arrays: Mapping[str, Array], path: Path, inputs: Sequence[Value]
) -> list[Sample]:
    """in<k>_<j>: the sample numbers in order, each with every input."""
    numbers = sorted({int(m[1]) for m in map(_NUMBERED.fullmatch, arrays) if m})
    samples: list[Sample] = []
    for k in numbers:
        sample: dict[str, Array] = {}
        for j, v in enumerate(inputs):
            key = f"in{k}_{j}"
            if key not in arrays:
                raise InputError(
                    f"{path.name} has no array {key} for input {v.name}",
                    str(path),
                    _expected(inputs),
                )
            parts = _split(arrays[key], v, key, path)
            if len(parts) != 1:
                what = (
                    f"array {key} holds {len(parts)} samples, "
                    "and its name says which one it is"
                )
                raise InputError(what, str(path), _expected(inputs))
            sample.update(parts[0])
        samples.append(sample)
    return samples


def _named(
    arrays: Mapping[str, Array], path: Path, inputs: Sequence[Value]
) -> list[Sample]:
    """Arrays named as the inputs, or a single one of any name for a single input."""
    if len(inputs) == 1 and len(arrays) == 1 and inputs[0].name not in arrays:
        arrays = {inputs[0].name: next(iter(arrays.values()))}
    missing = [v.name for v in inputs if v.name not in arrays]
    if missing:
        has = ", ".join(arrays) or "nothing"
        raise InputError(
            f"{path.name} has no array named {missing[0]}; it has {has}",
            str(path),
            _expected(inputs),
        )
    columns = [_split(arrays[v.name], v, v.name, path) for v in inputs]
    counts = {v.name: len(c) for v, c in zip(inputs, columns, strict=True)}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{n} of {name}" for name, n in counts.items())
        raise InputError(
            f"{path.name} has unequal numbers of samples: {text}",
            str(path),
            "give as many for each input",
        )
    return [
        {k: a for part in row for k, a in part.items()}
        for row in zip(*columns, strict=True)
    ]


def _split(array: Array, v: Value, key: str, path: Path) -> list[dict[str, Array]]:
    """The samples of one array, each of exactly the input's type."""
    shape = v.type.shape
    t = v.type
    if array.shape == shape:
        parts: Sequence[Array] = [array]
    elif array.shape[1:] == shape:
        parts = list(array)
    elif (
        shape[:1] == (1,) and array.ndim == len(shape) and array.shape[1:] == shape[1:]
    ):
        parts = [a[None] for a in array]
    else:
        what = f"array {key} has shape {list(array.shape)}, but input {v.name} is {t}"
        raise InputError(
            what,
            str(path),
            f"give {list(shape)}, or [samples, {', '.join(map(str, shape))}]",
        )
    return [{v.name: _cast(a, t, key, path)} for a in parts]


def _cast(array: Array, t: TensorType, key: str, path: Path) -> Array:
    if array.dtype.kind == "f" and t.dtype == "float32":
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, np.float32)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        count = array.size - int(np.isfinite(array).sum())
        what = (
            f"array {key} holds NaN or infinite elements, "
            f"{count} of "
            f"{array.size} in one sample"
        )
        raise InputError(what, str(path), "leave such samples out")
    if array.dtype == t.np_dtype:
        return np.ascontiguousarray(array)
    hint = f"convert it after your preprocessing: array.astype('{t.dtype}')"
    raise InputError(
        f"array {key} is {array.dtype}, but the input is {t}", str(path), hint
    )


def _expected(inputs: Sequence[Value]) -> str:
    return (
        "expected "
        + ", ".join(f"{v.name} {v.type}" for v in inputs)
        + " with samples along a leading axis"
    )
