"""The commands of the protocol with their requests and answers, for both ends
(docs/protocol.md).

A request is a line of JSON with the fields of its class, and maybe a blob behind it; so
is an answer.  A field that the other end does not know is ignored, so that a newer end
may tell more.

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

RUN_S = 300.0  # that a program may take

R = TypeVar("R", bound="Tuple[Any, ...]")
A = TypeVar("A", bound="Tuple[Any, ...]")


class Empty(NamedTuple):
    """A request without fields, or an answer that only says that it is done."""


class AppRequest(NamedTuple):
    """A request about an application."""

    app: str


class Info(NamedTuple):
    """The identity of a device.  page and free are bytes."""

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
    """What `edgec doctor` judges, see facts.py."""

    facts: Dict[str, Any]


class BeginRequest(NamedTuple):
    """A bundle is coming; the blob is its glue.

    recipe: its hash, size and parts.  scratch: it will not become a slot, so that any
    place that has it will do.
    """

    app: str
    recipe: Dict[str, Any]
    scratch: bool = False


class BeginAnswer(NamedTuple):
    """same: the slot that has this bundle already.

    lacks: of each missing part the number, the bytes that are there, and their SHA-256.
    """

    same: Optional[str] = None
    lacks: List[Tuple[int, int, str]] = []


class PutRequest(NamedTuple):
    """The blob is a piece of a part, from byte `at` on."""

    app: str
    part: int
    at: int


class InstallRequest(NamedTuple):
    """Everything has been sent: write it to `try`.

    allow_downgrade: a signed bundle may be older than the device's.
    """

    app: str
    allow_downgrade: bool = False


class InstallAnswer(NamedTuple):
    """slot: where the bundle is now."""

    slot: str


class SwitchAnswer(NamedTuple):
    """active: the active slot.  service: why the service still runs the other version."""

    active: str
    service: Optional[str] = None


class ServiceRequest(NamedTuple):
    """Have systemd run the active slot.  check: only say whether it could."""

    app: str
    check: bool = False


class ServiceAnswer(NamedTuple):
    """unit: the path of the unit; "" for a check.  lingers: whether it outlives logout."""

    unit: str = ""
    lingers: bool = False


class TrustAnswer(NamedTuple):
    """path: of the key on the device."""

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
    """wheel: its SHA-256."""

    wheel: str


class AdoptRequest(NamedTuple):
    """Use these wheels, by their SHA-256, if they work together."""

    app: str
    wheels: List[str]


class AdoptAnswer(NamedTuple):
    """runtime: its version."""

    runtime: str


class RunRequest(NamedTuple):
    """Run a slot's program.

    slot: the active one where it is None.  options: words that say how it is timed.
    inputs: sizes of the .npy files in the blob.  outputs: how many files the answer has.
    session: the device's runtime runs it.  watch: read the device's vitals meanwhile.
    launched: tell the program when it was started, for the time that it takes to load.
    limit: seconds that it may take.
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
    """What a program did.

    status: its exit status.  report: its standard output.  outputs: sizes of the files
    in the blob.  vitals: of vitals.py.
    """

    status: int
    report: str
    error_output: str
    outputs: List[int]
    vitals: Optional[Dict[str, Any]] = None


class ShowBundle(NamedTuple):
    """A bundle of a show.  name: on the page."""

    app: str
    slot: str
    name: str


class ShowRequest(NamedTuple):
    """Start a webcam.

    name: 32 hex digits.  page: "socket", a port, or None for no page.  points: how many
    bytes at the end of the blob are the JSON beside the effect's picture, which comes
    first.
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
    """end: end the show first."""

    end: bool = False


class ShowState(NamedTuple):
    """said: lines of JSON since the last look.  status: None while it runs."""

    said: str
    status: Optional[int]
    error_output: str


class Command(Generic[R, A]):
    """A command.

    Attributes:
        name: on the wire, as "do"
        request: the class of its fields
        answer: the class of its answer's fields
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
PUT = Command("put", PutRequest, Empty)  # answered only where it fails
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
    """Return a value of JSON as a type: one of these classes, or of a field of theirs.

    Raises ValueError, with the field, for a value of another type.
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
"""What decodes a value of a generic type."""


def _fields(value: Dict[str, Any], kind: Any, where: str) -> Any:
    """Return an object of JSON as one of these classes."""
    given = {}
    for name, hint in get_type_hints(kind).items():
        if name in value:
            given[name] = decode(value[name], hint, f"{where}.{name}")
        elif name not in kind._field_defaults:
            raise ValueError(f"{where.lstrip('.') or 'it'} has no {name}")
    return kind(**given)
