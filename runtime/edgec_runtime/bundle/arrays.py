"""Arrays in .npy and .npz files, of anyone: read within bounds, written by any name."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import IO, Any, Dict, Mapping

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..device_end.printable import printable
from ..errors import InputError

Array = NDArray[Any]

LARGEST = 4 << 30
"""Bytes of one array."""


def read_arrays(path: Path) -> Dict[str, Array]:
    """Return the arrays of an .npz file by name, or that of an .npy file as "".

    Raises:
        InputError: the file is neither
    """
    try:
        if path.exists() and not path.is_file():
            raise ValueError("it is not a plain file")  # a pipe would be waited for
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                return {"": read_array(file)}
        with zipfile.ZipFile(path) as archive:
            found = {}
            for name in archive.namelist():
                with archive.open(name) as member:
                    found[name[:-4] if name.endswith(".npy") else name] = read_array(
                        member
                    )
            return found
    except Exception as e:  # as of read_array; and of zipfile
        what = f"{path.name} cannot be read: {_told(e)}"
        raise InputError(what, at=str(path), hint="save it with numpy.savez") from e


def read_array(file: IO[bytes]) -> Array:
    """Return an array in numpy's format.

    Raises:
        ValueError: the bytes are none, or the array exceeds LARGEST or the memory
    """
    try:
        return _read(file)
    except Exception as e:
        # numpy and a zip file's decompressors raise two dozen kinds for damaged bytes
        raise ValueError(_told(e)) from e


def _told(e: Exception) -> str:
    if isinstance(e, MemoryError):
        return "it holds more than there is memory for"
    return str(e) or type(e).__name__


def _read(file: IO[bytes]) -> Array:
    """Its size is looked at before there is memory for it."""
    version = npy.read_magic(file)
    if version == (1, 0):
        header = npy.read_array_header_1_0
    else:
        header = npy.read_array_header_2_0
    shape, fortran, dtype = header(file)
    if dtype.hasobject:
        raise ValueError("it holds objects of Python")
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size > LARGEST or any(n < 0 for n in shape):
        raise ValueError(f"an array of shape {list(shape)} has {size} bytes")
    data = file.read(size)
    if len(data) != size:
        raise ValueError(
            f"an array of shape {list(shape)} has {len(data)} of its {size} bytes"
        )
    flat: Array = np.frombuffer(bytearray(data), dtype) if size else np.zeros(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz file of arrays with any names; numpy.savez reserves some."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(
                f"{printable(name)}.npy", "w", force_zip64=True
            ) as member:
                npy.write_array(member, np.asanyarray(array), allow_pickle=False)
