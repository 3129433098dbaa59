"""Runs compiled files on our own driver, with the methods of a TFLite interpreter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy as np
from numpy.typing import NDArray

from ..edgetpu_file.compiled_file import (
    CompiledFile,
    CompiledOperator,
    CompiledTensor,
    read_compiled,
)
from ..errors import InputError
from ..model.interpreters import TfliteInterpreter
from .driver import StickDriver, StickOptions, open_stick
from .program import Model

Array = NDArray[Any]
OWN = "own"
"""The name of our driver."""
_DTYPES = {0: "<f4", 2: "<i4", 3: "u1", 7: "<i2", 9: "i1"}
"""numpy's types by the numbers of TFLite's schema."""
_FILE = "the segment's .tflite"
_opened: Dict[StickOptions, StickDriver] = {}
"""The sticks that this process has open."""


@dataclass(frozen=True)
class OwnStick:
    """A stick behind our driver; `open` is a delegate of a Session.

    Another process opens it (process.py), for which an instance is pickled.

    Attributes:
        options: which stick, and how it is driven
    """

    options: StickOptions = field(default_factory=StickOptions)

    def open(self, name: Optional[str] = None) -> StickDriver:
        """Return the driver, which all models of this process share.

        Args:
            name: not used: no interpreter is necessary

        Raises:
            DeviceError: the stick cannot be opened
        """
        driver = _opened.get(self.options)
        if driver is None or driver.lost:
            driver = _opened[self.options] = open_stick(self.options)
        return driver


def refusal(compiled: bytes) -> str:
    """Return why our driver cannot run a compiled file; "" if it can.

    It cannot where the file has operators for the CPU, or where its transfers depend on
    the data, as with an LSTM.

    Raises:
        InputError: the file is damaged
    """
    operators = read_compiled(compiled, _FILE).operators
    others = sum(o.package is None for o in operators)
    if others:
        return f"{others} of its {len(operators)} operators are for the CPU"
    packages = [o.package for o in operators if o.package is not None]
    if not all(e.deterministic for p in packages for e in p.executables):
        return "its transfers depend on the data"
    return ""


def own_interpreter(model: bytes, delegate: Any) -> TfliteInterpreter:
    """Return the interpreter of a compiled file, given the driver."""
    return CompiledInterpreter(model, delegate)


class CompiledInterpreter(TfliteInterpreter):
    """Runs a compiled file all of whose operators are for the Edge TPU.

    Raises:
        InputError: the file was not compiled, is damaged, or has other operators
    """

    def __init__(self, data: bytes, driver: StickDriver) -> None:
        self._driver = driver
        self._file = read_compiled(data, _FILE)
        others = sum(o.package is None for o in self._file.operators)
        if others:
            raise InputError(
                f"{others} operators of the compiled file are not for the Edge TPU",
                at=_FILE,
                hint='run it with driver="libedgetpu", which leaves them to LiteRT',
            )
        self._tensors: Dict[int, Array] = {}
        self._calls: List[Tuple[Model, Dict[str, Array], Dict[str, Array]]] = []

    def allocate_tensors(self) -> None:
        """Allocate the tensors, and link the programs."""
        file = self._file
        for operator in file.operators:
            for index in (*operator.inputs, *operator.outputs):
                self._tensors[index] = _zeros(file.tensors[index])
        self._calls = [
            (self._load(o), self._named(o.inputs), self._named(o.outputs))
            for o in file.operators
        ]

    def invoke(self) -> None:
        """Run one inference.

        Raises:
            DeviceError: the stick is gone, or stalls again and again
        """
        for model, inputs, outputs in self._calls:
            self._driver.run(model, inputs, outputs)

    def get_input_details(self) -> List[Mapping[str, Any]]:
        """Return "name", "index", "shape" and "dtype" of each input."""
        return self._details(self._file, self._file.inputs)

    def get_output_details(self) -> List[Mapping[str, Any]]:
        """Return "name", "index", "shape" and "dtype" of each output."""
        return self._details(self._file, self._file.outputs)

    def tensor(self, index: int) -> Callable[[], Array]:
        """Return a function that returns a tensor."""
        return lambda: self._tensors[index]

    def _load(self, operator: CompiledOperator) -> Model:
        assert operator.package is not None
        return self._driver.load(operator.package, self._file.data, _FILE)

    def _named(self, indexes: Tuple[int, ...]) -> Dict[str, Array]:
        return {self._file.tensors[i].name: self._tensors[i] for i in indexes}

    def _details(
        self, file: CompiledFile, indexes: Tuple[int, ...]
    ) -> List[Mapping[str, Any]]:
        return [
            {
                "name": file.tensors[i].name,
                "index": i,
                "shape": np.array(file.tensors[i].shape),
                "dtype": self._tensors[i].dtype.type,
            }
            for i in indexes
        ]


def _zeros(tensor: CompiledTensor) -> Array:
    if tensor.type not in _DTYPES:
        raise InputError(
            f"the tensor {tensor.name} has the type {tensor.type} of TFLite",
            at=_FILE,
            hint="compile the model again",
        )
    return np.zeros(tensor.shape, _DTYPES[tensor.type])
