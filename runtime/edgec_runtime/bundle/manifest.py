"""Parses and checks manifest.json of a bundle into frozen dataclasses (docs/bundle.md).

It does not read files; archive.py does.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import (
    Any,
    Dict,
    List,
    Mapping,
    NoReturn,
    Optional,
    Set,
    Tuple,
)

from ..cascade.parameters import Cascade, cascade_json, parse_cascade
from ..errors import BundleError, InputError
from ..tensors import QuantInfo, TensorInfo
from ..vision.preprocess import (
    NOTHING,
    Fit,
    ImageLayout,
    Preprocess,
    Values,
    Wish,
    parse,
)
from ..vision.tasks import parse_task, task_json
from ..vision.tasks.base import Task
from .json_reader import JsonReader

SCHEMA = 3
MAX_RANK = 8
MAX_THREADS = 4
MAX_TENSOR_BYTES = 1 << 30
MAX_ARENA_BYTES = 4 << 30
DTYPES = (
    "<f4",
    "<f2",
    "<f8",
    "|i1",
    "|u1",
    "<i2",
    "<u2",
    "<i4",
    "<u4",
    "<i8",
    "<u8",
    "|b1",
)
PLACES = ("cpu", "edgetpu")

_SEGMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class SegmentInfo:
    """A segment of the model.  arena: bytes of memory that its C needs.  est_ms: estimate
    of its time on the Edge TPU in milliseconds.
    """

    name: str
    place: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    arena: int = 0
    macs: int = 0
    tflite: Optional[str] = None
    edgetpu: Optional[str] = None
    est_ms: Optional[float] = None

    @property
    def symbol(self) -> str:
        """The C function in the bundle's libraries."""
        return f"edgec_{self.name}_run"


@dataclass(frozen=True)
class StateInfo:
    """A tensor that the model keeps between calls.

    Attributes:
        input: the input that has it, which is an output of the call before
        output: that output
        initial: a file with its first value in raw little-endian bytes; None for zeros
    """

    input: str
    output: str
    initial: Optional[str] = None


@dataclass(frozen=True)
class FileInfo:
    """One file of the bundle.

    A detached file is not in the bundle but in the cache of the machine that compiled
    it. It is code for that machine, on which a bundle for a board can run as well, and
    is not copied to the board.

    Attributes:
        sha256: its hash
        bytes: its size
        detached: whether it is in the cache instead
    """

    sha256: str
    bytes: int
    detached: bool = False


@dataclass(frozen=True)
class Contents:
    """The result of a compile: the manifest without the fields that `write_bundle` adds.

    state: inputs and outputs that the session handles itself.  preprocess: how a photo
    becomes an input, by the names of image inputs.  task: the meaning of the outputs,
    None if unknown.  libraries, programs, weights: a path in the bundle for each target.
    threads: largest number of threads of libraries and programs.  quantization: the
    recipe if edgec quantized the model, otherwise {}.  license: "name" and "source" of
    the model's licence, {} if unknown.  graph: sha256 of the graph and options from
    which libraries and programs were made.  cascade: the cascade of the bundles in
    `networks/`; such a bundle has no segments.
    """

    edgec: str
    name: str
    target: str
    board: str
    inputs: Tuple[str, ...]
    outputs: Tuple[str, ...]
    state: Tuple[StateInfo, ...]
    tensors: Mapping[str, TensorInfo]
    segments: Tuple[SegmentInfo, ...]
    libraries: Mapping[str, str]
    programs: Mapping[str, str]
    weights: Mapping[str, str]
    threads: int
    labels: Optional[Tuple[str, ...]]
    preprocess: Mapping[str, Preprocess]
    task: Optional[Task]
    toolchain: Mapping[str, Any]
    verification: Mapping[str, Any]
    quantization: Mapping[str, Any]
    license: Mapping[str, str]
    graph: str
    cascade: Optional[Cascade]

    def to_json(self) -> Dict[str, Any]:
        """Return the object of JSON in a bundle, without "schema" and "files"."""
        plain = {f.name: getattr(self, f.name) for f in fields(Contents)}
        plain["tensors"] = {
            name: _without(asdict(info), "name") for name, info in self.tensors.items()
        }
        plain["segments"] = [_without(asdict(s)) for s in self.segments]
        plain["state"] = [_without(asdict(s)) for s in self.state]
        plain["task"] = None if self.task is None else task_json(self.task)
        plain["preprocess"] = {name: p.to_json() for name, p in self.preprocess.items()}
        # Absent, not null: the bundle of one network says nothing of cascades.
        del plain["cascade"]
        if not self.license:
            del plain["license"]
        if self.cascade is not None:
            plain["cascade"] = cascade_json(self.cascade)
        return plain


def _without(row: Dict[str, Any], *names: str) -> Dict[str, Any]:
    """Return a row without some keys, and without None."""
    return {k: v for k, v in row.items() if v is not None and k not in names}


@dataclass(frozen=True)
class Manifest(Contents):
    """A checked manifest: all names in it exist, and each tensor is written once, before
    it is read.
    """

    schema: int
    files: Mapping[str, FileInfo]

    def check_threads(self, number: int, at: str) -> None:
        """Raise InputError for more threads than the code supports; at: the bundle."""
        if number < 1:
            raise InputError(
                f"cannot run on {number} threads", at=at, hint="give 1 or more"
            )
        if number > self.threads:
            code = f"for {self.threads}" if self.threads > 1 else "for one thread"
            if number <= MAX_THREADS:
                hint = f"compile it with --threads {number}"
            else:
                hint = f"give {MAX_THREADS} at most"
            raise InputError(
                f"{number} threads: the bundle's code is {code}", at=at, hint=hint
            )

    def check_alone(self, at: str, hint: str) -> None:
        """Raise InputError for a cascade, which has no model of its own.

        at: the bundle.
        """
        if self.cascade is not None:
            names = ", ".join(network.name for network in self.cascade.networks)
            raise InputError(
                f"the bundle is a cascade, and one network is needed; it has {names}",
                at=at,
                hint=hint,
            )

    def input_infos(self) -> Tuple[TensorInfo, ...]:
        """Return the model's inputs, in order."""
        return tuple(self.tensors[n] for n in self.inputs)

    @property
    def kept(self) -> Tuple[str, ...]:
        """The inputs that are state, in order."""
        return tuple(s.input for s in self.state)

    def output_infos(self) -> Tuple[TensorInfo, ...]:
        """Return the model's outputs, in order."""
        return tuple(self.tensors[n] for n in self.outputs)


def parse_manifest(data: bytes) -> Manifest:
    """Return the manifest in bytes of JSON.

    Raises:
        BundleError: the first fault
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text, parse_constant=_no_constant, object_pairs_hook=_no_twins
        )
        if "\\ud" in text.lower():
            # half a surrogate pair is no text: a ValueError
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return check_manifest(value)
    except (ValueError, RecursionError) as e:
        raise BundleError(
            f"the manifest is not JSON: {e}",
            at="manifest.json",
            hint="copy the bundle again",
        ) from e


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _no_twins(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return found


def check_manifest(value: Any) -> Manifest:
    """Return the manifest of a decoded JSON value; raise BundleError for a fault."""
    top = JsonReader(value, "top level")
    schema = top.get("schema", int)
    if schema != SCHEMA:
        raise BundleError(
            f"the bundle has schema {schema}, this runtime reads {SCHEMA}",
            at="manifest.json",
            hint="compile the model again, or install the edgec-runtime of the version "
            "that made it",
        )
    labels = top.strings("labels") if top.value.get("labels") is not None else None
    manifest = Manifest(
        schema=schema,
        edgec=top.get("edgec", str),
        name=top.get("name", str),
        target=top.get("target", str),
        board=top.get("board", str),
        inputs=top.strings("inputs"),
        outputs=top.strings("outputs"),
        state=tuple(
            _state(JsonReader(s, f"state[{i}]"))
            for i, s in enumerate(top.get("state", list, []))
        ),
        tensors=MappingProxyType({k: _tensor(k, r) for k, r in top.members("tensors")}),
        segments=tuple(
            _segment(JsonReader(s, f"segments[{i}]"))
            for i, s in enumerate(top.get("segments", list))
        ),
        libraries=MappingProxyType(_texts(top, "libraries")),
        programs=MappingProxyType(_texts(top, "programs")),
        weights=MappingProxyType(_texts(top, "weights")),
        files=MappingProxyType({k: _file(r) for k, r in top.members("files")}),
        labels=labels,
        preprocess=MappingProxyType({k: _preprocess(r) for k, r in _preprocesses(top)}),
        task=_task(top),
        toolchain=top.get("toolchain", dict, {}),
        verification=top.get("verification", dict, {}),
        quantization=top.get("quantization", dict, {}),
        license=MappingProxyType(_texts(top, "license")),
        threads=_threads(top),
        graph=top.get("graph", str, ""),
        cascade=_cascade(top),
    )

    # Each of these may rely on the ones before.
    _check_flow(manifest, top)
    _check_state(manifest, top)
    _check_paths(manifest, top)
    _check_preprocess(manifest, top)
    _check_task(manifest, top)
    _check_cascade(manifest, top)
    return manifest


def _threads(top: JsonReader) -> int:
    threads = top.count("threads", 1)
    if not 1 <= threads <= MAX_THREADS:
        top.bad('has an impossible "threads"', threads)
    return threads


def _tensor(name: str, r: JsonReader) -> TensorInfo:
    shape = r.get("shape", list)
    dtype = r.get("dtype", str)
    if dtype not in DTYPES:
        r.bad(f'has a "dtype" that is not one of {", ".join(DTYPES)}', dtype)
    if len(shape) > MAX_RANK or not all(
        type(n) is int and 0 < n <= MAX_TENSOR_BYTES for n in shape
    ):
        r.bad('has an impossible "shape"', shape)
    if r.value.get("quant") is not None:
        quant = _quant(JsonReader(r.value["quant"], f"{r.where}.quant"), shape)
    else:
        quant = None
    info = TensorInfo(name, tuple(shape), dtype, quant)

    # Each dimension may be small, and their product not.
    if info.nbytes > MAX_TENSOR_BYTES:
        r.bad(f"is larger than {MAX_TENSOR_BYTES} bytes", shape)
    return info


def _quant(r: JsonReader, shape: List[int]) -> QuantInfo:
    scale = r.get("scale", list)
    zero = r.get("zero_point", list)
    axis = r.get("axis", int, None)
    if axis is not None and not 0 <= axis < len(shape):
        r.bad('has an impossible "axis"', axis)

    # One for the tensor, or one for each channel.
    count = 1 if axis is None else shape[axis]
    if len(scale) != count or len(zero) != count:
        r.bad(
            'has a "scale" and "zero_point" that do not fit the shape',
            [len(scale), len(zero)],
        )
    if not all(map(_is_scale, scale)):
        r.bad('has an impossible "scale"', scale)
    if not all(type(z) is int for z in zero):
        r.bad('has an impossible "zero_point"', zero)
    return QuantInfo(tuple(float(s) for s in scale), tuple(zero), axis)


def _is_scale(number: Any) -> bool:
    """Return whether a number of JSON is finite and positive."""
    return type(number) in (float, int) and 0 < number < math.inf


def _preprocesses(top: JsonReader) -> List[Tuple[str, JsonReader]]:
    return top.members("preprocess") if top.value.get("preprocess") is not None else []


def _preprocess(r: JsonReader) -> Preprocess:
    values = Values(
        r.get("range", str), r.numbers("mean", float), r.numbers("std", float)
    )
    fit = Fit(
        r.get("resize", str),
        float(r.get("crop", (int, float))),
        r.numbers("fill", int),
        r.get("position", str),
    )
    words = {key: r.get(key, str) for key in ("color", "filter", "layout")}
    return Preprocess(
        values=values,
        fit=fit,
        **words,
        given=_said(r, "given"),
        stated=_said(r, "metadata"),
    )


def _task(top: JsonReader) -> Optional[Task]:
    try:
        if top.value.get("task") is None:
            return None
        return parse_task(top.value["task"], "it")
    except InputError as e:
        top.bad(f'has an impossible "task": {e.what}')


def _cascade(top: JsonReader) -> Optional[Cascade]:
    try:
        if top.value.get("cascade") is None:
            return None
        return parse_cascade(top.value["cascade"], "it")
    except InputError as e:
        top.bad(f'has an impossible "cascade": {e.what}')


def _said(r: JsonReader, key: str) -> Wish:
    text = r.get(key, str, None)
    try:
        return NOTHING if text is None else parse(text)
    except InputError as e:
        r.bad(f'has an impossible "{key}": {e.what}')


def _segment(r: JsonReader) -> SegmentInfo:
    name = r.get("name", str)
    place = r.get("place", str)
    if not _SEGMENT_NAME.fullmatch(name):
        r.bad('has a "name" that is not a C identifier', name)
    if place not in PLACES:
        r.bad('has a "place" that is neither cpu nor edgetpu', place)
    est = r.get("est_ms", (int, float), None)
    if est is not None and not 0 <= est < math.inf:
        r.bad('has an impossible "est_ms"', est)
    return SegmentInfo(
        name=name,
        place=place,
        inputs=r.strings("inputs"),
        outputs=r.strings("outputs"),
        arena=_arena(r),
        macs=r.count("macs", 0),
        tflite=r.get("tflite", str, None),
        edgetpu=r.get("edgetpu", str, None),
        est_ms=est,
    )


def _state(r: JsonReader) -> StateInfo:
    return StateInfo(
        r.get("input", str), r.get("output", str), r.get("initial", str, None)
    )


def _arena(r: JsonReader) -> int:
    arena = r.count("arena", 0)
    if arena > MAX_ARENA_BYTES:
        r.bad('has an impossible "arena"', arena)
    return arena


def _file(r: JsonReader) -> FileInfo:
    sha = r.get("sha256", str)
    if not _SHA256.fullmatch(sha):
        r.bad('has a "sha256" that is not 64 hexadecimal digits', sha)
    return FileInfo(sha, r.count("bytes"), r.get("detached", bool, False))


def _texts(top: JsonReader, key: str) -> Dict[str, str]:
    found: Dict[str, Any] = top.get(key, dict, {})
    for name, text in found.items():
        if not isinstance(text, str):
            top.bad(f'has an impossible "{key}"', {name: text})
    return found


def _check_flow(m: Manifest, top: JsonReader) -> None:
    """Refuse a manifest whose tensors are not written once, before they are read."""
    _check_described(m, top)
    names = [s.name for s in m.segments]
    if len(set(names)) != len(names):
        top.bad("has two segments of one name", names)
    inputs = (*m.inputs, *m.kept)
    if len(set(inputs)) != len(inputs):
        top.bad("names an input twice", inputs)
    written: Set[str] = set(inputs)
    for s in m.segments:
        _check_segment_flow(s, written, top)
    for n in (*m.outputs, *(s.output for s in m.state)):
        if n not in written:
            top.bad("has an output that nothing writes", n)


def _check_described(m: Manifest, top: JsonReader) -> None:
    """Refuse a manifest with a name of a tensor but not its type."""
    names = [*m.inputs, *m.outputs]
    for state in m.state:
        names += (state.input, state.output)
    for s in m.segments:
        names += (*s.inputs, *s.outputs)
    for n in names:
        if n not in m.tensors:
            top.bad("names a tensor that it does not describe", n)


def _check_segment_flow(s: SegmentInfo, written: Set[str], top: JsonReader) -> None:
    """Check the tensors of a segment, and add its outputs to the written ones."""
    for n in s.inputs:
        if n not in written:
            top.bad(
                f'has a segment "{s.name}" that reads a tensor before it is written', n
            )
    # A second writer would change a tensor under its readers.
    for n in s.outputs:
        if n in written:
            top.bad(f'has a segment "{s.name}" that writes a tensor a second time', n)
        written.add(n)


def _check_state(m: Manifest, top: JsonReader) -> None:
    """Refuse state whose tensors before and after an inference differ in type."""
    for s in m.state:
        before = m.tensors[s.input]
        after = m.tensors[s.output]
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            top.bad(
                "has state that changes its shape or type", f"{s.input}, {s.output}"
            )
        if (
            s.initial is not None
            and m.files.get(s.initial, FileInfo("", -1)).bytes != before.nbytes
        ):
            top.bad("has state that begins as a file of another size", s.initial)


def _check_paths(m: Manifest, top: JsonReader) -> None:
    # Every path that anything reads later.
    named = [p for s in m.segments for p in (s.tflite, s.edgetpu) if p is not None]
    named += [s.initial for s in m.state if s.initial is not None]
    for path in (
        *named,
        *m.libraries.values(),
        *m.programs.values(),
        *m.weights.values(),
    ):
        if path not in m.files:
            top.bad("names a file that the bundle does not have", path)


def _check_preprocess(m: Manifest, top: JsonReader) -> None:
    """Refuse a preprocessing that does not suit its input."""
    for name, r in _preprocesses(top):
        if name not in m.inputs:
            r.bad("is for no input of the model")
        fault = m.preprocess[name].fault(m.tensors[name])
        if fault is not None:
            r.bad(f"cannot be: {fault}")


def image_size(m: Manifest) -> Optional[Tuple[int, int]]:
    """Return width and height of the first image input; None if there is none."""
    for name in m.inputs:
        if name in m.preprocess:
            layout = ImageLayout.of(m.tensors[name], m.preprocess[name].layout)
        else:
            layout = None
        if layout is not None:
            return layout.width, layout.height
    return None


def _check_task(m: Manifest, top: JsonReader) -> None:
    """Refuse a task that does not suit the outputs, or whose files are missing."""
    image = image_size(m)
    if m.task is None:
        return
    if image is None:
        top.bad('has a "task" for a model without an image input')
    for path in m.task.files():
        if path not in m.files:
            top.bad("names a file that the bundle does not have", path)
    try:
        if m.task.bind({info.name: info for info in m.output_infos()}, image) != m.task:
            top.bad('has a "task" that leaves something open')
    except InputError as e:
        top.bad(f'has an impossible "task": {e.what}')


def _check_cascade(m: Manifest, top: JsonReader) -> None:
    """Refuse a cascade without its networks' bundles, or with a model of its own."""
    if m.cascade is None:
        return
    if m.segments or m.inputs or m.outputs or m.task is not None:
        top.bad('has a "cascade" and a model of its own')
    for network in m.cascade.networks:
        if network.path not in m.files:
            top.bad("names a file that the bundle does not have", network.path)
