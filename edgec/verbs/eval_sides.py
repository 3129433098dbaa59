"""The sides of an evaluation: the float model, the bundle here, the bundle on a device.

Each makes the outputs of pictures, which are then judged alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from edgec_devices.device import Infer, device_for
from edgec_runtime import Bundle, Session, prepare
from edgec_runtime.session.session import machine_target
from edgec_runtime.session.vision import Vision

from edgec.compiler.host import Host
from edgec.compiler.native import native_compiler, runner
from edgec.compiler.optimise import optimise
from edgec.compiler.read import ReadModel, ReadOptions, read
from edgec.errors import InputError
from edgec.evaluation.report import BUNDLE, DEVICE, FLOAT
from edgec.frontends.task_metadata import stated_task
from edgec.ir import Array
from edgec.ir.interp import initial
from edgec.ir.tensors import tensor_info
from edgec.steps import Progress


class PictureSide(Protocol):
    """A way to run a network on pictures.

    Attributes:
        key: FLOAT, BUNDLE or DEVICE
        title: its name for people
        how: what runs it
        parts: texts on which its outputs depend
    """

    key: str
    title: str
    how: str
    parts: tuple[str, ...]

    def outputs(self, photo: Array) -> Mapping[str, Array]:
        """Return the outputs for a picture, uint8 [H, W, 3], by the bundle's names."""

    def close(self) -> None:
        """Close the session, or the connection to the device."""


class FloatModelSide:
    """The float model of a bundle, by edgec's C of the float graph on this machine.

    Attributes: see `PictureSide`.
    """

    key = FLOAT
    title = "float model"

    def __init__(
        self, model: Path, bundle: Bundle, pictures: int, say: Progress
    ) -> None:
        """Read the model, and compile it if that pays for so many pictures.

        Raises InputError for a model that has not the bundle's inputs and outputs.
        """
        self._manifest = bundle.manifest
        self._read = _same_network(model, bundle)
        graph = optimise(self._read.graph, (), lambda name, graph: None)
        host = Host(native_compiler(None), say)
        self._initial = initial(graph)
        self._run = runner(graph, pictures, host.compiler, host.say)
        self._input = graph.given()[0]
        self.how = f"{model.name} by edgec's float code"
        self.parts: tuple[str, ...] = (FLOAT, sha256(model.read_bytes()).hexdigest())

    def outputs(self, photo: Array) -> Mapping[str, Array]:
        """Return the outputs of the float graph."""
        (preprocess,) = self._manifest.preprocess.values()
        v = self._input
        array = prepare(photo, preprocess, tensor_info(v.name, v.type))

        # State begins anew with each picture: a data set is no sequence.
        return self._run({**self._initial, v.name: array}, None)

    def close(self) -> None:
        """Do nothing: the library of a graph is never unloaded."""


_SAME = "give the model that the bundle was compiled from"


def _same_network(model: Path, bundle: Bundle) -> ReadModel:
    """Return a float model, cut where the bundle's network ends."""
    manifest = bundle.manifest
    shapes = {info.name: info.shape for info in manifest.input_infos()}
    shapes_by_name = {info.name: info.shape for info in manifest.output_infos()}
    try:
        network = read(model, ReadOptions(input_shapes=shapes))
    except InputError as e:
        # Another network has no inputs of these names and shapes.
        message = f"{model.name} is not the model of {bundle.path.name}: {e.what}"
        raise InputError(message, "--model", _SAME) from e
    if not _outputs_of(network).items() >= shapes_by_name.items():
        # int8 cannot hold the head of some detectors, which then ends before it.
        head = stated_task(model).head
        network = read(
            model, ReadOptions(input_shapes=shapes, head=head, becomes_int8=True)
        )

    outputs = _outputs_of(network)
    for name, shape in shapes_by_name.items():
        if outputs.get(name) != shape:
            there = ", ".join(f'"{n}" {list(s)}' for n, s in outputs.items())
            raise InputError(
                f"{model.name} is not the model of {bundle.path.name}: the bundle has "
                f'the output "{name}" {list(shape)}, the model has {there}',
                "--model",
                _SAME,
            )
    return network


def _outputs_of(model: ReadModel) -> dict[str, tuple[int, ...]]:
    """Return the shape of each output of a model, by name."""
    return {v.name: v.type.shape for v in model.graph.returned()}


class BundleHereSide:
    """A bundle on this machine, by a session that stays open.

    Attributes: see `PictureSide`.
    """

    key = BUNDLE

    def __init__(self, bundle: Bundle, tpu: str, threads: int) -> None:
        """Open a session.

        tpu: how Edge TPU segments run, as `local:` has it.
        """
        self._session = Session(bundle, tpu=tpu, threads=threads)
        # What edgec quantized has a report about it.
        self.title = (
            "int8 bundle" if "recipe" in bundle.manifest.quantization else "bundle"
        )
        backends = ", ".join(dict.fromkeys(self._session.backends.values()))
        self.how = f"this machine, {machine_target()}: {backends}"
        self.parts: tuple[str, ...] = (
            BUNDLE,
            _hash(bundle),
            machine_target(),
            backends,
        )

    def outputs(self, photo: Array) -> Mapping[str, Array]:
        """Return the outputs of one inference, from the initial state."""
        self._session.reset()
        return self._session.run(self._session.vision.prepare(photo))

    def close(self) -> None:
        """Close the session."""
        self._session.close()


class BundleOnDeviceSide:
    """A bundle on a device, by inferences on one connection.

    Attributes: see `PictureSide`.
    """

    key = DEVICE

    def __init__(self, bundle: Bundle, url: str, threads: int, timeout: float) -> None:
        """Open the device. Raises InputError for a URL that is no device's."""
        self._vision = Vision(bundle)
        self._stack = ExitStack()
        device = device_for(url, timeout)
        self._inferences = device.inferences(bundle, threads)
        self._infer: Infer | None = None
        self.title = f"on {url}"
        self.how = f"the bundle on {url}"
        self.parts: tuple[str, ...] = (DEVICE, _hash(bundle), url)

    def outputs(self, photo: Array) -> Mapping[str, Array]:
        """Return the outputs that the device sends back."""
        # Only now: all results may be known from an earlier evaluation.
        if self._infer is None:
            self._infer = self._stack.enter_context(self._inferences)
        inputs = self._vision.prepare(photo)
        return self._infer(inputs)

    def close(self) -> None:
        """End the connection."""
        self._stack.close()


def _hash(bundle: Bundle) -> str:
    """Return the sha256 of a bundle's file."""
    return sha256(bundle.path.read_bytes()).hexdigest()


def runs_here(bundle: Bundle) -> bool:
    """Return whether a bundle has code for this machine."""
    return machine_target() in bundle.manifest.libraries
