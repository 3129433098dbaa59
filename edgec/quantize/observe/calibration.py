"""Calibration samples: from an .npz file, a photo, or a folder of photos."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
"""The most samples that are kept from calibration to verify with."""
HELD_BACK_PART = 4
"""One sample in so many is kept from calibration, at most."""
CACHE_BYTES = 256 << 20
"""The samples that `CachedSamples` keeps in memory."""
READER_THREADS = 2
SPLIT_SEED = 0

NUMBERED_ARRAY = re.compile(r"in(\d+)_(\d+)")
"""The name of the array for input `in<k>_<j>`: sample k, input j."""


@dataclass(frozen=True)
class Photos(Sequence[Sample]):
    """One sample for each photo, read when it is asked for: memory holds one.

    Raises InputError for a file that is no photo.

    Attributes:
        paths: the photos.
        input: the input that they feed.
        preprocess: how a photo becomes an input; None: as is usual for its type.
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

        name = self.input.name
        photo = photo_input(self.paths[i], name, self.input.type, self.preprocess)
        return {name: photo}


def ahead(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield the samples in order, and read photos while those before are used."""
    # Arrays are in memory already: threads would only cost time.
    if not isinstance(samples, (Photos, CachedSamples)):
        yield from samples
        return
    yield from in_order(samples.__getitem__, range(len(samples)), READER_THREADS)


class CachedSamples(Sequence[Sample]):
    """Samples that are read again and again.

    Those for which `CACHE_BYTES` have room are read once.

    Attributes:
        of: all samples.
        numbers: the numbers of the samples that this sequence consists of.
    """

    def __init__(
        self,
        of: Sequence[Sample],
        numbers: Sequence[int] | None = None,
        cache: _SampleCache | None = None,
    ) -> None:
        self.of = of
        # Subsets share the cache of the whole.
        self._cache = cache if cache is not None else _SampleCache()
        self.numbers = range(len(of)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, i: int) -> Sample: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Sample]: ...
    def __getitem__(self, i: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(i, slice):
            return self.subset(self.numbers[i])
        return self._cache.get(self.of, self.numbers[i])

    def subset(self, numbers: Sequence[int]) -> CachedSamples:
        """Return the samples of these numbers among all; the cache is shared."""
        return CachedSamples(self.of, numbers, self._cache)


class _SampleCache:
    """Samples by number, up to `CACHE_BYTES`."""

    def __init__(self) -> None:
        self._samples: dict[int, Sample] = {}
        self._bytes = 0

    def get(self, of: Sequence[Sample], i: int) -> Sample:
        """Return sample `i` of `of`, read if it is not in the cache.

        of: all samples, not some of them: numbers count among all.
        """
        if i in self._samples:
            return self._samples[i]

        sample = of[i]
        nbytes = sum(array.nbytes for array in sample.values())
        # A sample once kept stays: samples are read in turn, and a cache that drops the
        # oldest one would never have the next.
        if self._bytes + nbytes <= CACHE_BYTES:
            self._samples[i] = sample
            self._bytes += nbytes

        return sample


def label(samples: Sequence[Sample], i: int) -> str:
    """Return a sample's name for people: that of its photo, else its number."""
    # The cache renumbers the samples that it was made of.
    if isinstance(samples, CachedSamples):
        return label(samples.of, samples.numbers[i])
    return samples.paths[i].name if isinstance(samples, Photos) else f"sample {i}"


def chosen(samples: Sequence[Sample], numbers: Sequence[int]) -> Sequence[Sample]:
    """Return the samples of these numbers; photos stay unread."""
    if isinstance(samples, CachedSamples):
        return samples.subset([samples.numbers[i] for i in numbers])

    if isinstance(samples, Photos):
        paths = [samples.paths[i] for i in numbers]
        return Photos(paths, samples.input, samples.preprocess)

    return [samples[i] for i in numbers]


def spread(total: int, count: int) -> list[int]:
    """Return at most `count` numbers below `total`, evenly spread."""
    return [i * total // min(total, count) for i in range(min(total, count))]


def split(
    samples: Sequence[Sample], limit: int, hold: bool = True
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Return the samples to calibrate with, and with `hold` others to verify with.

    A quarter is held back, at most `HELD_BACK`; none of fewer than 4 samples. Every
    call with the same number of samples chooses the same.

    limit: the most samples to calibrate with.
    """
    count = len(samples)
    # Both are drawn from all samples: the first photos of a folder may be all alike.
    order = np.random.default_rng(SPLIT_SEED).permutation(count).tolist()
    held = min(count // HELD_BACK_PART, HELD_BACK) if hold else 0
    to_calibrate = sorted(order[held : held + limit])
    to_verify = sorted(order[:held])

    return chosen(samples, to_calibrate), chosen(samples, to_verify)


def load_calibration(
    path: Path,
    inputs: Sequence[Value],
    preprocess: Preprocess | None = None,
    limit: int | None = None,
) -> Sequence[Sample]:
    """Return the samples at `path` for these graph inputs, at least one.

    A folder or a photo: photos (jpg, png, bmp, ppm) sorted by name, turned upright and
    put through `preprocess` (by default the usual one for the input's type). The photos
    may lie in a folder for each class.

    An .npz file: arrays named as the inputs, of the input's shape or with samples along
    a leading (or the batch) axis; or in<k>_<j> for input j of sample k; or a single
    array for a single input. Elements are taken as they are.

    limit: the most samples.

    Raises InputError where no sample can be read.
    """
    samples: Sequence[Sample]
    if path.is_dir():
        samples = _from_photos(_photos(path), path, inputs, preprocess)
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


# ---- photos
# --------------------------------------------------------------------------------------
def _photos(folder: Path) -> list[Path]:
    """Return the photos of a folder, sorted by name, without copies.

    A folder without photos of its own has those of its folders, one of each in turn: a
    data set of classes has a folder for each, and few samples shall have many classes.
    """
    photos = _own_photos(folder)
    if not photos:
        folders = [path for path in sorted(folder.iterdir()) if path.is_dir()]
        rounds = itertools.zip_longest(*map(_own_photos, folders))
        photos = [path for each in rounds for path in each if path is not None]
    if not photos:
        kinds = ", ".join(s[1:] for s in PHOTO_SUFFIXES)
        raise InputError(
            "the calibration folder holds no photo",
            str(folder),
            f"put some photos ({kinds}) in it",
        )
    return _distinct(photos)


def _own_photos(folder: Path) -> list[Path]:
    """Return the photos that lie in a folder itself, sorted by name."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return [path for path in files if path.suffix.lower() in PHOTO_SUFFIXES]


def _distinct(photos: list[Path]) -> list[Path]:
    """Return the photos without copies of one file.

    A copy among the held-back samples would be a sample that calibration has seen.
    """
    sizes = Counter(path.stat().st_size for path in photos)
    first: dict[bytes | Path, Path] = {}
    for path in photos:
        # Only files of the same size can be copies; the others need not be read.
        key: bytes | Path = path
        if sizes[path.stat().st_size] > 1:
            key = sha256(path.read_bytes()).digest()
        first.setdefault(key, path)

    return list(first.values())


def _from_photos(
    photos: list[Path],
    path: Path,
    inputs: Sequence[Value],
    preprocess: Preprocess | None,
) -> Photos:
    """Return a sample for each photo. path: where they are, for messages."""
    if len(inputs) != 1:
        names = ", ".join(v.name for v in inputs)
        what = f"photos feed one input, but the model has {len(inputs)}: {names}"
        raise InputError(
            what, str(path), "give an .npz file with an array for each input"
        )
    samples = Photos(photos, inputs[0], preprocess)
    # An input that no photo fits is an error now, not after minutes.
    samples[0]
    return samples


# ---- arrays
# --------------------------------------------------------------------------------------
def _from_npz(path: Path, inputs: Sequence[Value]) -> list[Sample]:
    """Return the samples of an .npz file. Raises InputError where it holds none."""
    arrays = read_arrays(path)
    # One numbered array decides: a file with both forms is refused for the missing ones.
    if any(NUMBERED_ARRAY.fullmatch(name) for name in arrays):
        samples = _numbered(arrays, path, inputs)
    else:
        samples = _named(arrays, path, inputs)

    if not samples:
        raise InputError(f"{path.name} holds no sample", str(path), _expected(inputs))

    return samples


def _numbered(
    arrays: Mapping[str, Array], path: Path, inputs: Sequence[Value]
) -> list[Sample]:
    """Return the samples of arrays in<k>_<j>, in the order of k, each with every input."""
    # Numbers may have gaps, and more digits than one: they are sorted as integers.
    matches = map(NUMBERED_ARRAY.fullmatch, arrays)
    numbers = sorted({int(match[1]) for match in matches if match})
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
            parts = _split_array(arrays[key], v, key, path)
            # An array of several samples contradicts its name.
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
    """Return the samples of arrays named as the inputs.

    A single array of any name does for a single input.
    """
    # A single array can belong to no other input.
    if len(inputs) == 1 and len(arrays) == 1 and inputs[0].name not in arrays:
        arrays = {inputs[0].name: next(iter(arrays.values()))}

    missing = [v.name for v in inputs if v.name not in arrays]
    if missing:
        present = ", ".join(arrays) or "nothing"
        raise InputError(
            f"{path.name} has no array named {missing[0]}; it has {present}",
            str(path),
            _expected(inputs),
        )

    columns = [_split_array(arrays[v.name], v, v.name, path) for v in inputs]
    _check_equal_counts(inputs, columns, path)

    # Sample k consists of the k-th part of every array.
    return [_joined(row) for row in zip(*columns, strict=True)]


def _joined(parts: Iterable[Mapping[str, Array]]) -> Sample:
    """Return one sample of several inputs, each a part by its name."""
    sample: dict[str, Array] = {}
    for part in parts:
        sample.update(part)

    return sample


def _check_equal_counts(
    inputs: Sequence[Value], columns: Sequence[Sequence[object]], path: Path
) -> None:
    """Raise InputError unless every input has as many samples (`columns`)."""
    counts = {v.name: len(c) for v, c in zip(inputs, columns, strict=True)}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{n} of {name}" for name, n in counts.items())
        raise InputError(
            f"{path.name} has unequal numbers of samples: {text}",
            str(path),
            "give as many for each input",
        )


def _split_array(
    array: Array, v: Value, key: str, path: Path
) -> list[dict[str, Array]]:
    """Return the samples of one array, each of exactly the input's type.

    key: the name of the array in the file at `path`, for messages.
    """
    shape = v.type.shape
    is_batched = shape[:1] == (1,) and array.ndim == len(shape)
    if array.shape == shape:
        parts: Sequence[Array] = [array]
    elif array.shape[1:] == shape:
        parts = list(array)
    elif is_batched and array.shape[1:] == shape[1:]:
        # The batch axis of the model has one element, that of the file has the samples.
        parts = [a[None] for a in array]
    else:
        what = (
            f"array {key} has shape {list(array.shape)}, but input {v.name} is {v.type}"
        )
        raise InputError(
            what,
            str(path),
            f"give {list(shape)}, or [samples, {', '.join(map(str, shape))}]",
        )

    return [{v.name: _checked(a, v.type, key, path)} for a in parts]


def _checked(array: Array, t: TensorType, key: str, path: Path) -> Array:
    """Return the array in the type of an input. Raises InputError where it does not fit."""
    if array.dtype.kind == "f" and t.dtype == "float32":
        # Elements beyond float32 become infinite and are refused below.
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, np.float32)

    # One NaN would spread to every value behind it.
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        count = array.size - int(np.isfinite(array).sum())
        what = (
            f"array {key} holds NaN or infinite elements, "
            f"{count} of {array.size} in one sample"
        )
        raise InputError(what, str(path), "leave such samples out")

    if array.dtype == t.np_dtype:
        return np.ascontiguousarray(array)

    # Integers are not cast: nobody knows whether they should be divided by 255.
    hint = f"convert it after your preprocessing: array.astype('{t.dtype}')"
    raise InputError(
        f"array {key} is {array.dtype}, but the input is {t}", str(path), hint
    )


def _expected(inputs: Sequence[Value]) -> str:
    """Return the hint that names the arrays a file should have."""
    arrays = ", ".join(f"{v.name} {v.type}" for v in inputs)
    return f"expected {arrays} with samples along a leading axis"
