"""The attacks on what is loaded beside a bundle: the runtime and other wheels."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from edgec_devices.wheel import Wheel
from edgec_devices.wheel_transfer import push

from tests.devices.attack_files import (
    APP,
    RUNTIME,
    Attack,
    Case,
    Host,
    sha256,
    wheel,
    wheel_signature,
    zipped,
)

WHEEL = "a wheel's signature"
WHEEL_FILES = "a wheel's files"
WHEEL_NAMES = "a wheel's names"
NONE = "a list of wheels"


def wheels() -> Iterator[Case]:
    """The runtime, and what is loaded with it."""

    def pushed(make: Callable[[Host], Wheel]) -> Attack:
        return lambda h: push(h.connection, APP, [make(h)])

    yield Case(
        "a wheel without a signature", (WHEEL,), pushed(lambda h: wheel(b"evil", None))
    )
    yield Case(
        "a wheel of another key",
        (WHEEL,),
        pushed(lambda h: wheel(b"evil", h.files.other_key)),
    )
    yield Case("a wheel with another's signature", (WHEEL,), pushed(_borrowed))
    bad = {
        "empty": b"{}",
        "nested": b"[" * 4000,
        "not text": b"\xff",
        "zeros": b"\0" * 64,
    }
    for name, text in bad.items():
        yield Case(
            f"a wheel's signature that is {name}", (WHEEL,), partial(_with_text, text)
        )
    for name in ("../../evil.py", "a/../../evil.py"):
        made = zipped([("edgec_runtime/__init__.py", b"1"), (name, b"evil")])
        yield Case(
            f"a wheel with {name}",
            (WHEEL_NAMES, WHEEL, WHEEL_FILES),
            partial(_unsigned, made),
        )
    for what, (prepare, checks) in _SITE.items():
        yield Case(
            f"{what} in a wheel's folder, then a run",
            checks,
            lambda h: h.run(session=True),
            prepare,
        )
    yield Case("no wheels", (NONE,), lambda h: h.ask("adopt", wheels=[]))
    yield Case(
        "a list of wheels that leads elsewhere",
        (WHEEL,),
        lambda h: h.ask("adopt", wheels=[_unsigned_site(h)]),
    )


def _with_text(text: bytes, h: Host) -> object:
    return push(h.connection, APP, [Wheel(RUNTIME, wheel(b"evil", None).data, text)])


def _unsigned(data: bytes, h: Host) -> object:
    return push(h.connection, APP, [Wheel(RUNTIME, data)])


def _borrowed(h: Host) -> Wheel:
    made = wheel(b"evil", None)
    return Wheel(
        RUNTIME,
        made.data,
        wheel_signature(wheel(b"good = 1", None).digests(), h.files.key),
    )


def _site(h: Host) -> Path:
    return next(p for p in h.at("site").iterdir() if p.is_dir())


def _evil_file(h: Host, listed: bool) -> None:
    (_site(h) / "edgec_runtime/__init__.py").write_bytes(b"evil")
    if listed:
        path = _site(h) / "wheel.json"
        path.write_text(
            json.dumps(
                {
                    **json.loads(path.read_text()),
                    "edgec_runtime/__init__.py": sha256(b"evil"),
                }
            )
        )


def _evil_link(h: Host) -> None:
    path = _site(h) / "edgec_runtime/__init__.py"
    shutil.copy(path, h.root.parent / "module.py")
    path.unlink()
    path.symlink_to(h.root.parent / "module.py")


def _unsigned_site(h: Host) -> str:
    """A wheel's folder as if it had been pushed before the key was trusted."""
    made = wheel(b"evil", None)
    name = sha256(made.data)
    folder = h.at("site", name)
    (folder / "edgec_runtime").mkdir(parents=True, exist_ok=True)
    for member, text in {"__init__.py": b"evil", "session.py": b"# evil"}.items():
        (folder / "edgec_runtime" / member).write_bytes(text)
    (folder / "wheel.json").write_text(json.dumps(made.digests()))
    return name


_SITE: dict[str, tuple[Attack, tuple[str, ...]]] = {
    "a changed file": (lambda h: _evil_file(h, False), (WHEEL_FILES, WHEEL)),
    "a changed file and its hash": (lambda h: _evil_file(h, True), (WHEEL,)),
    "a file more": (
        lambda h: (_site(h) / "numpy.py").write_bytes(b"evil"),
        (WHEEL_FILES, WHEEL),
    ),
    "a link": (_evil_link, (WHEEL_FILES, WHEEL)),
    "no signature": (lambda h: os.unlink(_site(h) / "wheel.sig"), (WHEEL,)),
    "another wheel as the active one": (
        lambda h: h.at("site", "active.json").write_text(
            json.dumps([_unsigned_site(h)])
        ),
        (WHEEL,),
    ),
}
