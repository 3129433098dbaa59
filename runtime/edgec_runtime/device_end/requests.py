"""Defines the commands of the protocol with their requests and answers, for both ends
(docs/protocol.md).

A request, and an answer, is a line of JSON with the fields of its class; a blob may
follow it. An end ignores fields that it does not know, so that a newer end may send
more of them.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import contextlib
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    List,
    NamedTuple,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_type_hints,
)

RUN_S = 300.0  # default time limit of a program

R = TypeVar("R", bound="Tuple[Any, ...]")
A = TypeVar("A", bound="Tuple[Any, ...]")


class Empty(NamedTuple):
    """A request without fields, or an answer that only confirms."""


class AppRequest(NamedTuple):
    """A request about an application."""

    app: str


class Info(NamedTuple):
    """The identity of a device.

    page is the size of a memory page and free the free space on the disk, in bytes.
    """

    target: str
    python: str
    os: str
    kernel: str
    board: str
    cpu: str
    emulated: bool
    page: int
    free: int
    root: str


class Facts(NamedTuple):
    """The facts that `edgec doctor` judges, see facts.py."""

    facts: Dict[str, Any]


class BeginRequest(NamedTuple):
    """Announce a bundle; the blob is its glue, the bytes between the parts.

    Attributes:
        app: the application
        recipe: the hash, size and parts of the bundle
        scratch: whether it is only for runs and will not become a slot, so that it may
            stay wherever the device has it
    """

    app: str
    recipe: Dict[str, Any]
    scratch: bool = False


class BeginAnswer(NamedTuple):
    """The parts that the device lacks.

    Attributes:
        same: the slot that has this bundle already
        lacks: for each lacking part its number, the bytes that have arrived, and their
            SHA-256
    """

    same: Optional[str] = None
    lacks: List[Tuple[int, int, str]] = []


class PutRequest(NamedTuple):
    """Send a piece of a part, from byte `at` on; the blob is the piece."""

    app: str
    part: int
    at: int


class InstallRequest(NamedTuple):
    """Write the bundle to `try`, now that all parts have been sent.

    allow_downgrade: whether a signed bundle may be older than the device's.
    """

    app: str
    allow_downgrade: bool = False


class InstallAnswer(NamedTuple):
    """The slot in which the bundle is now."""

    slot: str


class SwitchAnswer(NamedTuple):
    """The active slot, and in `service` why the service still runs the other version."""

    active: str
    service: Optional[str] = None


class ServiceRequest(NamedTuple):
    """Let systemd run the active slot; with `check`, only try whether it could.

    serve: the options of edgec_runtime.serve, if that is what is run; None for the
        slot's program
    """

    app: str
    check: bool = False
    serve: Optional[List[str]] = None


class ServiceAnswer(NamedTuple):
    """The path of the unit ("" for a check), and whether it outlives the user's logout."""

    unit: str = ""
    lingers: bool = False


class TrustAnswer(NamedTuple):
    """The path and the fingerprint of the key on the device."""

    path: str
    fingerprint: str


class SlotFacts(NamedTuple):
    """Facts about a slot that is not damaged."""

    sha256: Optional[str] = None
    name: Optional[str] = None
    bytes: Optional[int] = None
    target: Optional[str] = None
    installed: Optional[int] = None


class AppFacts(NamedTuple):
    """Facts about an application; a damaged slot is None."""

    app: str
    active: Optional[str]
    slots: Dict[str, Optional[SlotFacts]]


class Apps(NamedTuple):
    """All applications of a device."""

    apps: List[AppFacts]


class Wheels(NamedTuple):
    """The SHA-256 of the wheels on the device, and of those in use."""

    wheels: List[str]
    active: List[str]


class UnpackAnswer(NamedTuple):
    """The SHA-256 of the wheel."""

    wheel: str


class AdoptRequest(NamedTuple):
    """Use these wheels, by their SHA-256, if they work together."""

    app: str
    wheels: List[str]


class AdoptAnswer(NamedTuple):
    """The version of the runtime in the wheels."""

    runtime: str


class RunRequest(NamedTuple):
    """Run a slot's program.

    Attributes:
        app: the application
        slot: the slot; None is the active one
        options: the program's options, which concern only timing
        inputs: sizes in bytes of the .npy files in the blob
        outputs: number of output files in the answer's blob
        session: whether the runtime on the device runs the bundle, not its program
        watch: whether to read the vitals of the device during the run
        launched: whether to pass the time of the start to the program, which then
            reports the time that loading took
        limit: time limit in seconds
    """

    app: str
    slot: Optional[str] = None
    options: List[str] = []
    inputs: List[int] = []
    outputs: int = 0
    session: bool = False
    watch: bool = False
    launched: bool = False
    limit: float = RUN_S


class RunAnswer(NamedTuple):
    """The results of a program.

    Attributes:
        status: its exit status
        report: its standard output
        error_output: the end of its standard error
        outputs: sizes in bytes of the .npy files in the blob
        vitals: those of the run, see vitals.VitalsWatch.as_dict()
    """

    status: int
    report: str
    error_output: str
    outputs: List[int]
    vitals: Optional[Dict[str, Any]] = None


class ShowBundle(NamedTuple):
    """A bundle of a webcam; `name` is shown on its page."""

    app: str
    slot: str
    name: str


class ShowRequest(NamedTuple):
    """Start a webcam; the blob has the files of its effect.

    Attributes:
        name: 32 random hex digits, which name the folder of the page's socket
        bundles: the bundles to run
        page: "socket", a port, or None for no page
        points: number of bytes of the JSON with the points of the effect's picture;
            they follow the picture in the blob
        source: the camera
        effect: the effect
        smooth: whether results are smoothed over time
        frames: number of frames after which it ends
        virtual_camera: the video device to which it writes
    """

    name: str
    bundles: List[ShowBundle]
    page: Union[str, int, None] = None
    points: int = 0
    source: Optional[str] = None
    effect: Optional[str] = None
    smooth: bool = True
    frames: Optional[int] = None
    virtual_camera: Optional[str] = None


class ShowStateRequest(NamedTuple):
    """Ask for the state of a webcam; with `end`, end it first."""

    end: bool = False


class ShowState(NamedTuple):
    """The state of a webcam.

    Attributes:
        said: its standard output, lines of JSON
        status: its exit status; None while it runs
        error_output: the end of its standard error
    """

    said: str
    status: Optional[int]
    error_output: str


class Command(Generic[R, A]):
    """A command.

    Attributes:
        name: the value of "do" in a request
        request: the class of its requests
        answer: the class of its answers
    """

    def __init__(self, name: str, request: Type[R], answer: Type[A]) -> None:
        self.name = name
        self.request = request
        self.answer = answer
        COMMANDS[name] = self


COMMANDS: Dict[str, Command[Any, Any]] = {}
"""Every command by its name."""

INFO = Command("info", Empty, Info)
FACTS = Command("facts", Empty, Facts)
BEGIN = Command("begin", BeginRequest, BeginAnswer)
PUT = Command("put", PutRequest, Empty)  # answered only if it fails
INSTALL = Command("install", InstallRequest, InstallAnswer)
ACTIVATE = Command("activate", InstallRequest, SwitchAnswer)
DISCARD = Command("discard", AppRequest, Empty)
ROLLBACK = Command("rollback", AppRequest, SwitchAnswer)
SERVICE = Command("service", ServiceRequest, ServiceAnswer)
TRUST = Command("trust", Empty, TrustAnswer)  # the blob is a public key's line
STATUS = Command("status", Empty, Apps)
SITE = Command("site", AppRequest, Wheels)
UNPACK = Command(
    "unpack", AppRequest, UnpackAnswer
)  # the blob is the wheel's signature
ADOPT = Command("adopt", AdoptRequest, AdoptAnswer)
RUN = Command("run", RunRequest, RunAnswer)
SHOW = Command("show", ShowRequest, Empty)
SHOWN = Command("shown", ShowStateRequest, ShowState)


def encode(message: Any) -> Any:
    """Return a request or an answer as JSON has it."""
    if hasattr(message, "_asdict"):
        return {name: encode(value) for name, value in message._asdict().items()}
    if isinstance(message, dict):
        return {name: encode(value) for name, value in message.items()}
    if isinstance(message, (list, tuple)):
        return [encode(value) for value in message]
    return message


def decode(value: Any, kind: Any, where: str = "") -> Any:
    """Return a value of JSON as an instance of a type.

    Args:
        value: the value
        kind: a class of this module, or the type of one of its fields
        where: the path of the field, for the error

    Raises:
        ValueError: the value has another type
    """
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        return float(value)
    # type(), since True is an instance of int.
    if isinstance(kind, type) and type(value) is kind:
        return value
    if hasattr(kind, "_fields") and isinstance(value, dict):
        return _fields(value, kind, where)
    origin = getattr(kind, "__origin__", None)
    if origin in _CONTAINERS:
        return _CONTAINERS[origin](value, kind.__args__, where)
    raise ValueError(f"{where.lstrip('.') or 'it'} is {value!r:.80}")


def _one_of(value: Any, kinds: Tuple[Any, ...], where: str) -> Any:
    for kind in kinds:
        with contextlib.suppress(ValueError):
            return decode(value, kind, where)
    raise ValueError(f"{where.lstrip('.')} is {value!r:.80}")


def _values(value: Any, kinds: Tuple[Any, ...], where: str) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where.lstrip('.')} is {value!r:.80}")
    return {k: decode(v, kinds[1], f"{where}.{k}") for k, v in value.items()}


def _items(value: Any, kinds: Tuple[Any, ...], where: str) -> List[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{where.lstrip('.')} is {value!r:.80}")
    return [decode(v, kinds[0], where) for v in value]


def _row(value: Any, kinds: Tuple[Any, ...], where: str) -> Tuple[Any, ...]:
    if not isinstance(value, list) or len(value) != len(kinds):
        raise ValueError(f"{where.lstrip('.')} is {value!r:.80}")
    return tuple(decode(v, kind, where) for v, kind in zip(value, kinds))


_CONTAINERS: Dict[Any, Callable[[Any, Tuple[Any, ...], str], Any]] = {
    Union: _one_of,
    dict: _values,
    list: _items,
    tuple: _row,
}
"""The decoder of each generic type."""


def _fields(value: Dict[str, Any], kind: Any, where: str) -> Any:
    """Return an object of JSON as an instance of a class of this module."""
    fields = {}
    for name, hint in get_type_hints(kind).items():
        if name in value:
            fields[name] = decode(value[name], hint, f"{where}.{name}")
        elif name not in kind._field_defaults:
            raise ValueError(f"{where.lstrip('.') or 'it'} has no {name}")
    return kind(**fields)
