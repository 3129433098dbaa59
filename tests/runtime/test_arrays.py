"""Files of arrays: read as numpy reads them, refused where they are damaged, written by
any name.
"""

from __future__ import annotations

import contextlib
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgec_runtime import InputError
from edgec_runtime.bundle.arrays import Array, read_array, read_arrays, write_npz
from hypothesis import given, settings
from hypothesis import strategies as st

ARRAYS: dict[str, Array] = {
    "x": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "f": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "one": np.array(5, np.int8),
    "none": np.zeros((0, 4), np.uint8),
}


def packed() -> bytes:
    file = io.BytesIO()
    repeated: dict[str, Any] = {
        k: v.repeat(50) if v.size else v for k, v in ARRAYS.items()
    }
    np.savez_compressed(file, **repeated)
    return file.getvalue()


PACKED = packed()


def npy(shape: str, data: bytes = b"", descr: str = "'<f4'") -> bytes:
    text = (
        f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    )
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def same(got: dict[str, Array], want: dict[str, Array]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize(
    "save", [np.savez, np.savez_compressed, lambda p, **a: write_npz(p, a)]
)
def test_as_numpy_reads_them(save: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save(path, **ARRAYS)
    same(read_arrays(path), ARRAYS)
    with np.load(path) as found:
        same(dict(found), ARRAYS)
    np.save(tmp_path / "a.npy", ARRAYS["x"])
    same(read_arrays(tmp_path / "a.npy"), {"": ARRAYS["x"]})


def test_outputs_of_any_name_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    names = ("file", "allow_pickle", "a/b", "..", "self", "y" * 60_000)
    write_npz(path, dict.fromkeys(names, ARRAYS["x"]))
    same(read_arrays(path), dict.fromkeys(names, ARRAYS["x"]))
    write_npz(path, {"a\0b\x1b": ARRAYS["x"]})
    same(read_arrays(path), {"a b ": ARRAYS["x"]})


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (npy("(1024000000000,)"), "has 4096000000000 bytes"),
        (npy("(100,)", bytes(396)), "has 396 of its 400 bytes"),
        (npy("(-1,)"), "shape"),
        (npy("(1,)", b"1234", "'|O'"), "objects of Python"),
        (npy("(" * 500), "."),
        (npy("(1,)", b"1234", "'<f9'"), "."),
        (b"\x93NUMPY\x09\x00", "."),
        (b"", "."),
    ],
)
def test_what_no_array_can_be(data: bytes, what: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=what):
        read_array(io.BytesIO(data))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", data)
    with pytest.raises(InputError, match="cannot be read"):
        read_arrays(tmp_path / "a.npz")


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(st.integers(0, len(PACKED) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=3,
    )
)
def test_flipped_bytes(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(PACKED)
    for at, value in flips:
        data[at] = value
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert all(isinstance(a, np.ndarray) for a in read_arrays(path).values())
