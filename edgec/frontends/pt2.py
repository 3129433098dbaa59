"""Networks of PyTorch: a .pt2 file of torch.export.save.

Torch's own ONNX exporter converts them. PyTorch, the extra `edgec[torch]`, is needed
only here.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgec_devices.temporary import temporary_folder
from onnx import ModelProto

from edgec.errors import InputError

SUFFIX = ".pt2"
OTHERS = (".pt", ".pth", ".torchscript", ".ckpt")
"""Files of torch.save and torch.jit.save: code or weights, without shapes of a graph."""
EXPORT = (
    "program = torch.export.export(model.eval(), (example,)); "
    'torch.export.save(program, "model.pt2")'
)
"""The two lines that write a file edgec can read."""


def load(path: Path) -> ModelProto:
    """Return the file as ONNX.

    Raises InputError if torch is absent, the file damaged, or an operator has no ONNX
    form.
    """
    with _torch(str(path)) as torch:
        try:
            program = torch.export.load(str(path))
        # Whatever zip, JSON and torch's own checks raise.
        except Exception as e:
            message = (
                f"{path.name} is not a network that torch.export.save wrote: "
                f"{_first_line(e)}"
            )
            raise InputError(message, str(path), EXPORT) from e
        return _as_onnx(torch, program, path.name, str(path))


@contextmanager
def saved(module: Any, example_inputs: Sequence[Any] | None) -> Iterator[Path]:
    """Provide a file of a torch.nn.Module or an ExportedProgram during the block.

    example_inputs: tensors or arrays for the module, of the shapes that it will get.
    Raises InputError.
    """
    name = type(module).__name__
    with _torch(name) as torch, temporary_folder("torch") as folder:
        if isinstance(module, torch.export.ExportedProgram):
            program = module
            name = "model"
        else:
            program = _program_of(torch, module, example_inputs, name)
        # The reader takes files.
        path = folder / f"{name}{SUFFIX}"
        torch.export.save(program, str(path))
        yield path


def _program_of(
    torch: Any, module: Any, example_inputs: Sequence[Any] | None, name: str
) -> Any:
    """Return the exported program of a module. Raises InputError."""
    if not isinstance(module, torch.nn.Module):
        message = f"{name} is neither a file nor a torch.nn.Module"
        raise InputError(message, "compile", "give a path or a module")
    if example_inputs is None:
        hint = "give example_inputs=(torch.rand(1, 3, 224, 224),)"
        raise InputError("a module says no shapes", name, hint)
    tensors = tuple(torch.as_tensor(x) for x in example_inputs)
    return _exported(torch, module, tensors, name)


def _exported(torch: Any, module: Any, inputs: tuple[Any, ...], name: str) -> Any:
    """Return the program of a module in evaluation mode.

    The caller's module is in its former mode afterwards.
    """
    # Dropout and batch normalisation behave otherwise in training.
    training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        return torch.export.export(module, inputs)
    # torch.export has errors of many kinds for code that it cannot trace.
    except Exception as e:
        message = f"torch.export cannot export it: {_first_line(e)}"
        raise InputError(message, name, "mend what torch.export.export reports") from e
    finally:
        for m in training:
            m.training = True


def _as_onnx(torch: Any, program: Any, name: str, at: str) -> ModelProto:
    """Return a program as ONNX. Raises InputError."""
    try:
        exported = torch.onnx.export(program, dynamo=True, verbose=False, optimize=True)
    # The exporter has errors of many kinds for operators without an ONNX form.
    except Exception as e:
        message = f"torch cannot write {name} as ONNX: {_first_line(e)}"
        raise InputError(message, at, "mend what torch.onnx.export reports") from e
    model: ModelProto = exported.model_proto
    return model


@contextmanager
def _torch(at: str) -> Iterator[Any]:
    """Provide the package torch, with its exporter silent.

    Raises InputError if it is not installed.
    """
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            log.setLevel(logging.ERROR)
            try:
                import onnxscript  # noqa: F401 (what torch's exporter needs)
                import torch
            except ImportError as e:
                message = f"a network of PyTorch needs {e.name}"
                raise InputError(message, at, "pip install 'edgec[torch]'") from e
            yield torch
    finally:
        log.setLevel(level)


def _first_line(e: Exception) -> str:
    """Return the kind of an error and the first line of its message."""
    kind = type(e).__name__
    for line in str(e).splitlines():
        if line.strip():
            return f"{kind}: {line.strip()[:200]}"
    return kind
