"""The parameters of a cascade, as a manifest and cascade.toml have them: its networks and
the crops that they take (docs/cascades.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, NoReturn, Optional, Sequence, Tuple

from ..errors import InputError, did_you_mean
from ..rows import parameter, plain, read

MAX_NETWORKS = 16
MAX_OBJECTS = 32
NETWORKS = "networks/"
"""The folder of a bundle with the bundles of the networks."""
SIDES = ("long", "input", "free")
_SEE = "see docs/cascades.md"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""Names of networks are names of files, also in file systems that ignore case."""


@dataclass(frozen=True)
class CropRule:
    """How a crop follows from a result; the texts of the fields describe it, and
    `crops.py` has the formula.
    """

    points: Tuple[int, ...] = parameter(
        "the points that it encloses; default: the box, or all points if there is none",
        (),
        low=0,
        high=4095,
    )
    circle: bool = parameter(
        "whether the two points are a centre and a point on the circle that it encloses",
        False,
    )
    turn: Tuple[int, ...] = parameter(
        "two points; the line from the first to the second has a fixed direction in the "
        "crop; default: it is not turned",
        (),
        low=0,
        high=4095,
    )
    angle: float = parameter(
        "that direction in degrees: 0 to the right, 90 up", 0.0, low=-360, high=360
    )
    turned: bool = parameter(
        "whether the points are enclosed by a box that is turned as the crop is", False
    )
    scale: float = parameter(
        "the crop's sides in sides of the box", 1.0, low=0.1, high=16
    )
    shift_x: float = parameter(
        "how far it lies to the right of the box, in widths of the box",
        0.0,
        low=-8,
        high=8,
    )
    shift_y: float = parameter(
        "how far it lies below the box, in heights of the box", 0.0, low=-8, high=8
    )
    side: str = parameter(
        "its shape: a square of the longer side, the shape of the network's input "
        "around it, or that of the box",
        "long",
        choices=SIDES,
    )
    mirrored: bool = parameter(
        "whether left and right are exchanged, for a network of left eyes or hands that "
        "is given a right one",
        False,
    )

    def check(self, at: str) -> None:
        """Raise InputError for an impossible rule; at: its name in messages."""
        if len(self.turn) not in (0, 2):
            _refuse(f"{at}.turn has {len(self.turn)} points", "give two, or none")
        if self.circle and len(self.points) != 2:
            _refuse(
                f"{at}.circle has {len(self.points)} points",
                "points: the centre, and a point on the circle",
            )

    def most(self) -> int:
        """Return the largest number of a point in the rule; -1 without any."""
        return max((*self.points, *self.turn), default=-1)


@dataclass(frozen=True)
class CascadeNetwork:
    """One network of a cascade; the texts of the fields describe it."""

    name: str = parameter("its name in results and in `after`")
    like: Optional[str] = parameter(
        "an earlier network with the same model, which runs on another crop here", None
    )
    after: Optional[str] = parameter(
        "the earlier network whose objects it sees; default: it sees whole frames", None
    )
    crop: Optional[CropRule] = parameter(
        "the part of the frame that it sees of such an object", None
    )
    again: Optional[CropRule] = parameter(
        "the part that it sees in the next frame, by its own result; the detector is not "
        "needed then",
        None,
    )
    threshold: float = parameter(
        "the score below which an object is lost", 0.5, low=0, high=1
    )

    @property
    def path(self) -> str:
        """The path of its bundle in the cascade's bundle."""
        return f"{NETWORKS}{self.like or self.name}.edgec"


@dataclass(frozen=True)
class Cascade:
    """A cascade; the texts of the fields describe it."""

    networks: Tuple[CascadeNetwork, ...] = parameter(
        "the networks, the detector first, each behind those that it needs"
    )
    objects: int = parameter(
        "at most so many objects at a time", 1, low=1, high=MAX_OBJECTS
    )
    every: int = parameter(
        "frames after which the detector runs again in any case; 0: only while an object "
        "is lost or none is there",
        15,
        low=0,
        high=1_000_000,
    )

    @property
    def detector(self) -> CascadeNetwork:
        """The network that takes whole frames."""
        return self.networks[0]

    @property
    def followed(self) -> Optional[CascadeNetwork]:
        """The network whose own result determines its next crop; None without one."""
        return next((n for n in self.networks if n.again is not None), None)

    def network(self, name: str) -> CascadeNetwork:
        """Return a network by its name; raise InputError if there is none."""
        for network in self.networks:
            if network.name == name:
                return network
        names = [network.name for network in self.networks]
        raise InputError(
            f'the cascade has no network "{name}"{did_you_mean(name, names)}',
            hint="it has " + ", ".join(names),
        )


def parse_cascade(value: Any, at: str = "the cascade") -> Cascade:
    """Return the cascade of a decoded JSON object, checked.

    Raises:
        InputError: it is none
    """
    cascade = read(Cascade, value, at)
    check_networks(cascade.networks, at)
    return cascade


def cascade_json(cascade: Cascade) -> Dict[str, Any]:
    """Return a cascade as the manifest has it."""
    result: Dict[str, Any] = plain(cascade)
    # `plain` omits a rule with only defaults, whose presence has a meaning.
    for row, network in zip(result["networks"], cascade.networks):
        for f in fields(CascadeNetwork):
            if isinstance(getattr(network, f.name), CropRule):
                row.setdefault(f.name, {})
    return result


def check_networks(networks: Sequence[CascadeNetwork], at: str) -> None:
    """Raise InputError for networks that make no cascade; at: its name in messages."""
    if not 1 <= len(networks) <= MAX_NETWORKS:
        _refuse(
            f"{at} has {len(networks)} networks", f"give 1 to {MAX_NETWORKS} networks"
        )
    before: Dict[str, CascadeNetwork] = {}
    for i, network in enumerate(networks):
        where = f"{at}.networks[{i}]"
        # Names are checked first, since messages about the rest contain them.
        _check_name(network, before, where)
        _check_place(network, before, where)
        if network.crop is not None:
            network.crop.check(f"{where}.crop")
        if network.again is not None:
            network.again.check(f"{where}.again")
        before[network.name] = network
    _check_followed(networks, at)


def _check_name(
    network: CascadeNetwork, before: Mapping[str, CascadeNetwork], where: str
) -> None:
    """Refuse a name that is none or is taken, and a model that is not there."""
    # The name becomes the name of a file, and a key of results.
    name = network.name
    if not _NAME.fullmatch(name):
        _refuse(
            f"{where}.name is {name!r:.80}",
            "begin with a letter: a to z, 0 to 9, - and _",
        )
    if name in before:
        _refuse(f'{where}.name: there are two networks "{name}"', "rename one")
    # A chain of `like` is not necessary.
    like = network.like
    if like is not None and (like not in before or before[like].like is not None):
        _refuse(
            f'{where}.like: no earlier network with a model is called "{like!s:.40}"'
            f"{did_you_mean(like, before)}",
            "name one with a model of its own",
        )


def _check_place(
    network: CascadeNetwork, before: Mapping[str, CascadeNetwork], where: str
) -> None:
    """Refuse a network without its place among the others."""
    if not before:
        if network.after is not None or network.crop is not None:
            _refuse(
                f'{where}: the first network, "{network.name}", sees whole frames',
                "leave out after and crop, or put the detector first",
            )
        if network.again is not None:
            _refuse(
                f'{where}.again: "{network.name}" sees whole frames',
                "give it to the network behind the detector",
            )
        return
    if network.after is None:
        _refuse(
            f'{where} lacks "after": only the first network sees whole frames',
            "name the network whose objects it sees",
        )
    if network.after not in before:
        _refuse(
            f'{where}.after: no earlier network is called "{network.after!s:.40}"'
            f"{did_you_mean(network.after, before)}",
            "the networks before it are " + ", ".join(before),
        )
    if network.crop is None:
        _refuse(f'{where} lacks "crop"', "say which part of the frame it sees")


def _check_followed(networks: Sequence[CascadeNetwork], at: str) -> None:
    """Refuse networks that would see the detector's result while it rests."""
    followed = [n for n in networks if n.again is not None]
    # Without one the detector runs in each frame.
    if not followed:
        return
    detector = networks[0].name
    if len(followed) > 1:
        names = " and ".join(n.name for n in followed)
        _refuse(f"{at}: both {names} have again", "objects are followed by one network")
    if followed[0].after != detector:
        _refuse(
            f"{at}: {followed[0].name} has again, and is not right behind {detector}",
            f'say after = "{detector}"',
        )
    for network in networks[1:]:
        if network.after == detector and network is not followed[0]:
            _refuse(
                f"{at}: {network.name} sees what {detector} finds, which rests while "
                f"{followed[0].name} follows its objects",
                f'say after = "{followed[0].name}", or leave out again',
            )


def _refuse(what: str, hint: str) -> NoReturn:
    raise InputError(what, hint=f"{hint}; {_SEE}")
