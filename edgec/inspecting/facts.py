"""Reads a bundle without running it: its networks, files, accuracy and signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgec_devices.boards import HOST

from edgec.inspecting.compiled_facts import CompiledFacts
from edgec.quantize.observe.verification import Verification

SCHEMA = 1
"""The version of the JSON of `edgec inspect --json`."""


@dataclass(frozen=True)
class InspectedTensor:
    """An input or an output.

    Attributes:
        name: its name.
        dtype: numpy's name of the type.
        shape: its sizes.
        scale, zero_point: real = scale × (q − zero_point); empty: no integers that
            stand for real values.
        photo: how a photo becomes it, in words; None: it is no image.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    scale: tuple[float, ...] = ()
    zero_point: tuple[int, ...] = ()
    photo: str | None = None


@dataclass(frozen=True)
class InspectedState:
    """A tensor that the network keeps from one call to the next.

    Attributes:
        input, output: its names before and after a call.
        bytes: its size.
        begins: "zeros", or the file with its first values.
    """

    input: str
    output: str
    bytes: int
    begins: str


@dataclass(frozen=True)
class InspectedSegment:
    """A segment: operations that run together in one place.

    Attributes:
        name: its name.
        place: "cpu" or "edgetpu".
        ops: the number of its operations; None where the bundle does not say.
        macs: multiply-accumulates of an inference.
        arena: bytes of scratch memory of its C.
        constants: bytes of its weights and tables.
        est_ms: the estimated time on the Edge TPU, ms; None on the CPU.
        form: what the bundle has for the Edge TPU: "compiled" by edgetpu_compiler,
            "to be compiled" (.tflite), or "".
        compiled: what the file of edgetpu_compiler has; None where there is none.
    """

    name: str
    place: str
    ops: int | None
    macs: int
    arena: int
    constants: int
    est_ms: float | None
    form: str
    compiled: CompiledFacts | None = None


@dataclass(frozen=True)
class InspectedMemory:
    """The memory that code for one target needs.

    Attributes:
        target: the target.
        code: bytes of machine code.
        constants: bytes of weights and tables.
        arena: bytes of scratch memory, which all segments share.
        tensors: bytes of the tensors between segments.
    """

    target: str
    code: int
    constants: int
    arena: int
    tensors: int

    @property
    def all(self) -> int:
        """The sum, without the program's own buffers and the system's libraries."""
        # The weights are mapped and not copied, but fill the memory all the same.
        return self.code + self.constants + self.arena + self.tensors


@dataclass(frozen=True)
class InspectedNetwork:
    """A network of a bundle.

    Attributes:
        name: the name in a cascade, else that of the model.
        model: the name of the model.
        role: what it sees in a cascade, in words; "" outside of one.
        like: the network of the cascade that shares its bundle; "": none does.
        target: the target it was compiled for.
        bytes: the size of its bundle.
        inputs, outputs: its inputs and outputs, without state.
        state: the state that it keeps.
        task: the parameters of its task, with "task"; None: nobody said.
        labels: the names of classes; None: there are none.
        segments: its segments in order.
        kinds: the number of operations of each kind, the most frequent first.
        memory: the memory of each target with code in the bundle.
        threads: the most threads that its code can use.
        checks: what the compile checked; None where the bundle does not say.
        recipe, kept: the recipe of quantization and the candidate that it kept; ""
            where edgec did not quantize.
        license: the licence of the model as the compile knew it; "": unknown.
        license_source: where the licence is from.
        edgec: the version of edgec that made it.
        toolchain: the versions of the compilers, by target or program.
    """

    name: str
    model: str
    role: str
    like: str
    target: str
    bytes: int
    inputs: tuple[InspectedTensor, ...]
    outputs: tuple[InspectedTensor, ...]
    state: tuple[InspectedState, ...]
    task: Mapping[str, Any] | None
    labels: tuple[str, ...] | None
    segments: tuple[InspectedSegment, ...]
    kinds: Mapping[str, int]
    memory: tuple[InspectedMemory, ...]
    threads: int
    checks: Verification | None
    recipe: str
    kept: str
    license: str
    license_source: str
    edgec: str
    toolchain: Mapping[str, str]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of an inference."""
        return sum(segment.macs for segment in self.segments)

    def to_json(self) -> dict[str, Any]:
        """Return the network in JSON's types."""
        # An infinite ratio is null there, as in the manifest.
        checks = None if self.checks is None else self.checks.to_json()
        return {**asdict(self), "macs": self.macs, "checks": checks}


@dataclass(frozen=True)
class InspectedPart:
    """Files of a bundle that belong together.

    Attributes:
        name: the path, or the folder.
        about: what they are for.
        files: how many there are.
        bytes: their size.
    """

    name: str
    about: str
    files: int
    bytes: int


@dataclass(frozen=True)
class InspectedSignature:
    """The signature of a bundle.

    Attributes:
        fingerprint: of the signer's key, as `ssh-keygen -l` shows it.
        app: the application on the device that it is for.
        counter: grows from one version to the next.
        valid: whether the signature fits the bundle.
        trusted: the name of the given or trusted key that is the signer's; "": the key
            has no name; None: it is none of these keys.
        compared: how many keys the signer's was compared with.
    """

    fingerprint: str
    app: str
    counter: int
    valid: bool
    trusted: str | None
    compared: int


@dataclass(frozen=True)
class Inspection:
    """The facts about a bundle.

    Attributes:
        path: the file.
        name: the name of the network or cascade.
        target: the target it was compiled for.
        board: the name of the board for people.
        bytes: the size of the file.
        sha256: the hash of the manifest, which has the hashes of all files.
        edgec: the version of edgec that made it.
        schema: the version of the bundle's format.
        cascade: whether several networks work together.
        cascade_rules: in a cascade "objects" and "every" (docs/cascades.md).
        networks: the networks.
        parts: the files by what they are for; the sum of their bytes is that of the
            file.
        detached: files that stayed in the cache of the machine with the compiler.
        signature: the signature; None: the bundle is not signed.
    """

    path: str
    name: str
    target: str
    board: str
    bytes: int
    sha256: str
    edgec: str
    schema: int
    cascade: bool
    cascade_rules: Mapping[str, int]
    networks: Sequence[InspectedNetwork]
    parts: tuple[InspectedPart, ...]
    detached: tuple[str, ...]
    signature: InspectedSignature | None

    @property
    def for_host(self) -> bool:
        """Whether it is for the kind of machine that compiled it, and for no board."""
        return self.target.partition("+")[0] == HOST

    def to_json(self) -> dict[str, Any]:
        """Return the facts in JSON's types (docs/inspect.md)."""
        # The networks have figures that JSON has no numbers for.
        plain = asdict(self)
        plain["networks"] = [network.to_json() for network in self.networks]
        return {"inspect_schema": SCHEMA, **plain}
