"""The TFLite interpreters a device may have, behind one small interface; and the Edge
TPU's delegate.

LiteRT (`ai_edge_litert`) and `tflite_runtime` have the same Python class.  Neither is a
dependency: a bundle runs without them, on its C.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Callable, List, Mapping, Optional, Tuple

from numpy.typing import NDArray

from ..device_end.facts import EDGETPU_LIBRARIES, MODULES
from ..errors import DeviceError, InputError, did_you_mean

Array = NDArray[Any]


class TfliteInterpreter:
    """The methods of `tf.lite.Interpreter` for a session; any class with them will do."""

    def allocate_tensors(self) -> None:
        """Makes the buffers; called once, before anything else."""
        raise NotImplementedError

    def invoke(self) -> None:
        """One inference.  RuntimeError when it fails."""
        raise NotImplementedError

    def get_input_details(self) -> List[Mapping[str, Any]]:
        """At least "name", "index", "shape" and "dtype" of each input."""
        raise NotImplementedError

    def get_output_details(self) -> List[Mapping[str, Any]]:
        """Return index, shape and type of each output tensor."""
        raise NotImplementedError

    def tensor(self, index: int) -> Callable[[], Array]:
        """Return a function for a view of the tensor; nobody may keep the view in a
        run.
        """
        raise NotImplementedError


# (the .tflite's bytes, the Edge TPU delegate or None) -> an interpreter, not yet
# allocated
InterpreterFactory = Callable[[bytes, Any], TfliteInterpreter]


def find_interpreter(name: Optional[str] = None) -> Tuple[str, Any]:
    """(name, module) of the interpreter called `name`, or of the first that can be
    imported.

    Raises InputError for an unknown name, DeviceError when there is none.
    """
    if name is not None and name not in MODULES:
        what = f'there is no interpreter "{name}"{did_you_mean(name, MODULES)}'
        raise InputError(what, hint="use " + " or ".join(MODULES))
    seen = []
    for known, module in MODULES.items():
        if name in (None, known):
            try:
                return known, importlib.import_module(module)
            except Exception as e:
                # a wheel for another numpy or CPU fails with all sorts of errors
                seen.append(f"{module}: {e}")
    raise DeviceError(
        f"no TFLite interpreter can be imported ({'; '.join(seen)})",
        hint='python3 -m pip install ai-edge-litert, or run with tpu="c"',
    )


def interpreter_factory(name: Optional[str] = None) -> InterpreterFactory:
    """Interpreters with the reference kernels: they agree bit for bit with the C twin,
    the optimised ones do not.
    """
    _, module = find_interpreter(name)

    def make(model: bytes, delegate: Any) -> TfliteInterpreter:
        if delegate is not None:
            made: TfliteInterpreter = module.Interpreter(
                model_content=model, experimental_delegates=[delegate]
            )
            return made
        resolver = module.OpResolverType.BUILTIN_REF
        return module.Interpreter(  # type: ignore[no-any-return]
            model_content=model, experimental_op_resolver_type=resolver
        )

    return make


def edgetpu_library() -> str:
    """Return the name of a libedgetpu that can be loaded.

    Raises:
        DeviceError: none can, with the names tried
    """
    seen = []
    for library in EDGETPU_LIBRARIES:
        try:
            ctypes.CDLL(library)
            return library
        except OSError as e:
            seen.append(f"{library}: {e}")
    raise _no_edgetpu("; ".join(seen))


def load_edgetpu(name: Optional[str] = None) -> Any:
    """Return the delegate of libedgetpu, which opens the first Edge TPU.

    Raises:
        DeviceError: it cannot be opened, with the attempts
    """
    _, module = find_interpreter(name)
    # first: LiteRT's Delegate prints a traceback of its own when this fails
    library = edgetpu_library()
    try:
        return module.load_delegate(library)
    except (OSError, ValueError, RuntimeError) as e:
        raise _no_edgetpu(f"{library}: {e}".strip().rstrip(":")) from e


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
    """The interpreter's tensors in the order of `names`: by name when it has those
    names, else in its own order.

    None when there are too few or too many of them.
    """
    if len(details) != len(names):
        return None
    by_name = {str(d["name"]): d for d in details}
    if set(by_name) == set(names):
        return [by_name[n] for n in names]
    return list(details)
