"""Networks of PyTorch: a .pt2 file, as torch.export.save writes it, through torch's own
ONNX exporter.

PyTorch is asked for only here, where such a network is read: it is the extra
`edgec[torch]`.
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
"""What torch.save and torch.jit.save write: code or weights, without the shapes of a
graph.
"""
EXPORT = (
    "program = torch.export.export(model.eval(), (example,)); "
    "torch.export.save(program, "
    '"model.pt2")'
)
"""The two lines that make a file that can be read."""


def load(path: Path) -> ModelProto:
    """The file as ONNX.

    Raises InputError where torch is absent, the file damaged, or an operator not for
    ONNX.
    """
    with _torch(str(path)) as torch:
        try:
            program = torch.export.load(str(path))
        except Exception as e:  # whatever zip, JSON and torch's own checks raise
            what = (
                f"{path.name} is not a network that torch.export.save wrote: "
                f"{_first_line(e)}"
            )
            raise InputError(what, str(path), EXPORT) from e
        return _as_onnx(torch, program, path.name, str(path))


@contextmanager
def saved(module: Any, example_inputs: Sequence[Any] | None) -> Iterator[Path]:
    """A file of a torch.nn.Module or an ExportedProgram, for as long as it is needed.

    example_inputs: tensors or arrays that the module takes, of the shapes that it will
    get. Raises InputError.
    """
    name = type(module).__name__
    with _torch(name) as torch, temporary_folder("torch") as folder:
        if isinstance(module, torch.export.ExportedProgram):
            program = module
            name = "model"
        elif not isinstance(module, torch.nn.Module):
            raise InputError(
                f"{name} is neither a file nor a torch.nn.Module",
                "compile",
                "give a path or a module",
            )
        elif example_inputs is None:
            raise InputError(
                "a module says no shapes",
                name,
                "give example_inputs=(torch.rand(1, 3, 224, 224),)",
            )
        else:
            program = _exported(
                torch, module, tuple(torch.as_tensor(x) for x in example_inputs), name
            )
        path = folder / f"{name}{SUFFIX}"
        torch.export.save(program, str(path))
        yield path


def _exported(torch: Any, module: Any, inputs: tuple[Any, ...], name: str) -> Any:
    """As it computes when it is not trained; the caller's module stays in the mode that
    it has.
    """
    trained = [m for m in module.modules() if m.training]
    module.eval()
    try:
        return torch.export.export(module, inputs)
    except Exception as e:
        # torch.export has errors of many kinds, of code that it cannot trace
        raise InputError(
            f"torch.export cannot export it: {_first_line(e)}",
            name,
            "torch.export.export says more",
        ) from e
    finally:
        for m in trained:
            m.training = True


def _as_onnx(torch: Any, program: Any, name: str, at: str) -> ModelProto:
    try:
        made = torch.onnx.export(program, dynamo=True, verbose=False, optimize=True)
    except Exception as e:  # so does the exporter, for operators without an ONNX form
        raise InputError(
            f"torch cannot write {name} as ONNX: {_first_line(e)}",
            at,
            "torch.onnx.export says more",
        ) from e
    model: ModelProto = made.model_proto
    return model


@contextmanager
def _torch(at: str) -> Iterator[Any]:
    """The package, whose exporter says nothing of its own meanwhile."""
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
                raise InputError(
                    f"a network of PyTorch needs {e.name}",
                    at,
                    "pip install 'edgec[torch]'",
                ) from e
            yield torch
    finally:
        log.setLevel(level)


def _first_line(e: Exception) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return f"{type(e).__name__}{': ' if lines else ''}{lines[0][:200] if lines else ''}"
