"""Finds the TFLite interpreters of a device, and opens the delegate of the Edge TPU.

LiteRT (`ai_edge_litert`) and `tflite_runtime` have the same Python class.  Neither is a
dependency, since a bundle runs without them, on its C.
"""

from __future__ import annotations

import ctypes
import importlib
from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Tuple

from numpy.typing import NDArray

from ..device_end.facts import EDGETPU_LIBRARIES, MODULES
from ..errors import DeviceError, InputError, did_you_mean

Array = NDArray[Any]


class TfliteInterpreter:
    """The methods of `tf.lite.Interpreter` that a session uses; any class may have them."""

    def allocate_tensors(self) -> None:
        """Allocate the tensors; this is called once, before anything else."""
        raise NotImplementedError

    def invoke(self) -> None:
        """Run one inference; raise RuntimeError if it fails."""
        raise NotImplementedError

    def get_input_details(self) -> List[Mapping[str, Any]]:
        """Return at least "name", "index", "shape" and "dtype" of each input."""
        raise NotImplementedError

    def get_output_details(self) -> List[Mapping[str, Any]]:
        """Return at least "name", "index", "shape" and "dtype" of each output."""
        raise NotImplementedError

    def tensor(self, index: int) -> Callable[[], Array]:
        """Return a function that returns a view of a tensor.

        No view may exist during a run.
        """
        raise NotImplementedError


InterpreterFactory = Callable[[bytes, Any], TfliteInterpreter]
"""Returns an interpreter without tensors, given the bytes of a .tflite and the Edge TPU's
delegate, or None.
"""


def find_interpreter(name: Optional[str] = None) -> Tuple[str, Any]:
    """Return the name and the module of an interpreter.

    Raises InputError for an unknown name, DeviceError if none can be imported.

    Args:
        name: its name; None for the first that can be imported
    """
    if name is not None and name not in MODULES:
        what = f'there is no interpreter "{name}"{did_you_mean(name, MODULES)}'
        raise InputError(what, hint="use " + " or ".join(MODULES))
    failures = []
    for known, module in MODULES.items():
        if name in (None, known):
            try:
                return known, importlib.import_module(module)
            except Exception as e:
                # A wheel for another numpy or CPU can raise any kind of exception.
                failures.append(f"{module}: {e}")
    raise DeviceError(
        f"no TFLite interpreter can be imported ({'; '.join(failures)})",
        hint='python3 -m pip install ai-edge-litert, or run with tpu="c"',
    )


def interpreter_factory(name: Optional[str] = None) -> InterpreterFactory:
    """Return a factory of interpreters with the reference kernels.

    These agree bit for bit with the C twin; the optimized kernels do not.
    """
    _, module = find_interpreter(name)

    def make(model: bytes, delegate: Any) -> TfliteInterpreter:
        if delegate is not None:
            interpreter: TfliteInterpreter = module.Interpreter(
                model_content=model, experimental_delegates=[delegate]
            )
            return interpreter
        resolver = module.OpResolverType.BUILTIN_REF
        return module.Interpreter(  # type: ignore[no-any-return]
            model_content=model, experimental_op_resolver_type=resolver
        )

    return make


def edgetpu_library() -> str:
    """Return the name of a libedgetpu that can be loaded.

    Raises:
        DeviceError: none can be loaded; the message has the reasons
    """
    failures = []
    for library in EDGETPU_LIBRARIES:
        try:
            ctypes.CDLL(library)
            return library
        except OSError as e:
            failures.append(f"{library}: {e}")
    raise _no_edgetpu("; ".join(failures))


def load_edgetpu(name: Optional[str] = None) -> Any:
    """Return the delegate of libedgetpu, which opens the first Edge TPU.

    Raises:
        DeviceError: it cannot be opened; the message has the reasons
    """
    _, module = find_interpreter(name)
    # The library is tried first, since LiteRT prints a traceback if this fails.
    library = edgetpu_library()
    try:
        return module.load_delegate(library)
    except (OSError, ValueError, RuntimeError) as e:
        raise _no_edgetpu(f"{library}: {e}".strip().rstrip(":")) from e


@dataclass(frozen=True)
class EdgeTpuDelegate:
    """An Edge TPU's library and its options; `open` is a delegate of a Session.

    Another process opens the device (stick/process.py), for which an instance is
    pickled.

    Attributes:
        library: the name or path of libedgetpu
        options: pairs of the library's options, such as ("device", "usb:0")
    """

    library: str
    options: Tuple[Tuple[str, str], ...] = ()

    @property
    def device(self) -> str:
        """The option "device"; "" for any device."""
        return dict(self.options).get("device", "")

    def open(self, name: Optional[str] = None) -> Any:
        """Return the delegate of an interpreter's module.

        Raises:
            DeviceError: the device cannot be opened
        """
        _, module = find_interpreter(name)
        try:
            return module.load_delegate(self.library, dict(self.options))
        except (OSError, ValueError, RuntimeError) as e:
            raise _no_edgetpu(f"{self.library}: {e}".strip().rstrip(":")) from e


def _no_edgetpu(why: str) -> DeviceError:
    """Return the error for an Edge TPU that cannot be opened."""
    return DeviceError(
        f"no Edge TPU can be opened ({why})",
        hint="plug the stick in and install libedgetpu; `edgec doctor` looks at both, "
        "and says from where",
    )


def match_ports(
    details: List[Mapping[str, Any]], names: Tuple[str, ...]
) -> Optional[List[Mapping[str, Any]]]:
    """Return the details of an interpreter's tensors in the order of names.

    If the interpreter has other names, they stay in its order; None if their number
    differs.
    """
    if len(details) != len(names):
        return None
    by_name = {str(d["name"]): d for d in details}
    if set(by_name) == set(names):
        return [by_name[n] for n in names]
    return list(details)
