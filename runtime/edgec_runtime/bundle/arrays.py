"""Reads and writes arrays in .npy and .npz files.

Files are not trusted: sizes are checked before memory is allocated.
"""

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
"""Largest size of an array in bytes."""


def read_arrays(path: Path) -> Dict[str, Array]:
    """Return the arrays of an .npz file by name, or that of an .npy file as "".

    Raises:
        InputError: the file is neither
    """
    try:
        if path.exists() and not path.is_file():
            # Opening a pipe would wait for its writer.
            raise ValueError("it is not a plain file")
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                return {"": read_array(file)}
        with zipfile.ZipFile(path) as archive:
            arrays = {}
            for name in archive.namelist():
                with archive.open(name) as member:
                    arrays[name[:-4] if name.endswith(".npy") else name] = read_array(
                        member
                    )
            return arrays
    # zipfile and numpy raise two dozen kinds of exceptions for damaged bytes.
    except Exception as e:
        what = f"{path.name} cannot be read: {_reason(e)}"
        raise InputError(what, at=str(path), hint="save it with numpy.savez") from e


def read_array(file: IO[bytes]) -> Array:
    """Return an array in numpy's format.

    Raises:
        ValueError: the bytes are not an array, or it exceeds LARGEST or the memory
    """
    try:
        return _read(file)
    except Exception as e:
        # numpy and the decompressors of a zip raise two dozen kinds of exceptions for
        # damaged bytes.
        raise ValueError(_reason(e)) from e


def _reason(e: Exception) -> str:
    """Return the reason in an exception, for a message."""
    if isinstance(e, MemoryError):
        return "it holds more than there is memory for"
    return str(e) or type(e).__name__


def _read(file: IO[bytes]) -> Array:
    """Return an array, after its size is checked."""
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
