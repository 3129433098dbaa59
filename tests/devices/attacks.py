"""What somebody does who can reach a device with a trusted key but does not have that
key, or the page of a webcam but not its token, or gives a person's own machine data
that are none.

    python -m tests.devices.attacks           what `make attacks` runs: each is refused, and the
                                              device unchanged
    python -m tests.devices.attacks --mutate  and each succeeds when the check that refuses it is
                                              taken out

The device end runs in this process, behind the simulated line of faults.py, so that a
check of it can be taken out. The attacker's host is not ours: nothing of what our host
checks before it sends stands in the way.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

from edgec_devices import package
from edgec_runtime import EdgecError
from edgec_runtime.bundle import archive, cache
from edgec_runtime.device_end import (
    agent,
    bundles,
    disk,
    reception,
    remote_show,
    slots,
    trust,
    units,
    wheels,
)
from edgec_runtime.device_end.disk import digest
from edgec_runtime.device_end.requests import STATUS, Empty
from edgec_runtime.interpreter import interpreter
from edgec_runtime.session import vision
from edgec_runtime.webcam import decoding, listening, server, uploads

from edgec import exporting
from edgec.emit import program
from edgec.evaluation import class_names, coco_file, coco_masks, label_files
from edgec.exporting import frigate
from tests import builds
from tests.devices import attack_data, attack_lies
from tests.devices.attack_cases import cases
from tests.devices.attack_files import Case, Files, Host

Patch = Callable[[], Any]
_ANYTHING = re.compile(r".*", re.S)


def _instead(module: Any, name: str, value: Any) -> Patch:
    return lambda: mock.patch.object(module, name, value)


@contextlib.contextmanager
def _any_entries() -> Iterator[None]:
    """Of a zip: wherever it is read."""
    with contextlib.ExitStack() as stack:
        for module in (reception, slots):
            stack.enter_context(
                mock.patch.object(
                    module, "manifest_text", lambda z: z.read("manifest.json")
                )
            )
        yield


def _claimed(path: str, *_: Any) -> str:
    """What slot.json says that the bundle's sha256 is, as if it had been found so."""
    if not path.endswith("model.edgec"):
        return digest(path)
    return str(json.loads(Path(path).with_name("slot.json").read_text())["sha256"])


def _opened(path: str, most: int = 0) -> BinaryIO:
    return Path(path).open("rb")


@contextlib.contextmanager
def _any_files() -> Iterator[None]:
    """Opened, whatever they are."""
    with contextlib.ExitStack() as stack:
        for module in (disk, slots, wheels):
            stack.enter_context(mock.patch.object(module, "opened", _opened))
        yield


@contextlib.contextmanager
def _environment_as_it_is() -> Iterator[None]:
    with (
        mock.patch.object(agent, "environment", side_effect=lambda _: dict(os.environ)),
        mock.patch.object(
            wheels, "environment", side_effect=lambda _: dict(os.environ)
        ),
    ):
        yield


@contextlib.contextmanager
def _each(paths: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Folders that are filled in their places, one after the other."""
    for path in paths:
        path.mkdir(exist_ok=True)
    yield paths


def _keys_that_can_be_read(root: str) -> list[trust.Key]:
    with contextlib.suppress(trust.Untrusted):
        return trust.trusted(root)
    return []


def _any_types(head: dict[str, Any], kind: Any) -> Any:
    return kind(**{name: head[name] for name in kind._fields if name in head})


@contextlib.contextmanager
def _any_decoder() -> Iterator[None]:
    """Of a picture: with as much memory and time as it takes."""
    unlimited = "import resource\nresource.setrlimit = lambda *_: None\n"
    with (
        mock.patch.object(uploads, "START", unlimited + decoding.START),
        mock.patch.object(uploads, "_SLOWDOWN", 100),
    ):
        yield


def _any_picture(handler: Any) -> None:
    body = handler.body(uploads.MAX_UPLOAD_BYTES)
    handler.server.show.upload(uploads.decode_upload(body))


CHECKS: Mapping[str, Patch] = {
    "the signature's numbers": _instead(trust, "verify", lambda *_: True),
    "whose key it is": _instead(trust, "_check_key", lambda *_: None),
    "which application": _instead(trust, "_check_app", lambda *_: None),
    "the bundle's files": _instead(trust, "_check_files", lambda *_: None),
    "that it is signed": _instead(slots.Slots, "vouch", lambda *_: None),
    "how old it is": _instead(slots.Slots, "check_age", lambda *_: None),
    "a slot's name": _instead(slots, "_check_slot", lambda _: None),
    "what a slot holds": _instead(slots.Slots, "_differs", lambda *_: False),
    "no links": _instead(
        slots, "plain", lambda path, folder=False: os.path.exists(path)
    ),
    "the slot's bundle": _instead(slots, "digest", _claimed),
    "an application's name": _instead(slots, "check_name", lambda _: None),
    "the parts' names": _instead(reception, "_SHA256", _ANYTHING),
    "entries of the zip": _any_entries,
    "headers of code": _instead(bundles, "elf_fault", lambda *_, **__: None),
    "the options": _instead(agent, "check_options", lambda _: None),
    "a wheel's signature": _instead(wheels, "check_wheel", lambda *_: None),
    "a wheel's files": _instead(wheels.WheelSite, "_files", lambda *_: {}),
    "what a library was made for": _instead(attack_lies, "taken_out", "_lie"),
    "headers of a library": _instead(attack_lies, "taken_out", "fault"),
    "a wheel's names": _instead(wheels, "_MEMBER", _ANYTHING),
    "a list of wheels": _instead(wheels, "_check_list", lambda _: None),
    "a wheel's packing": _instead(wheels, "_PACKED", range(100)),
    "nothing around the files": _instead(trust, "_check_layout", lambda *_: None),
    "that keys can be read": _instead(
        slots, "trusted", lambda root: _keys_that_can_be_read(root)
    ),
    "plain files": lambda: _any_files(),
    "a bundle's size": _instead(slots, "MAX_BUNDLE_BYTES", 1 << 62),
    "the graph's hash": _instead(slots, "_graph", lambda manifest: []),
    "the types of fields": _instead(agent, "decode", _any_types),
    "the inputs' sizes": _instead(agent, "check_sizes", lambda *_: None),
    "a shown bundle's name": _instead(
        remote_show, "_label", lambda name: f"{name}".replace("\0", "")
    ),
    "a program's time": _instead(agent, "check_limit", lambda _: None),
    "the environment": lambda: _environment_as_it_is(),
    **{
        check: _instead(attack_data, "taken_out", check)
        for check in attack_data.IN_PROCESSES
    },
    attack_data.VISION: _instead(vision, "_check", lambda *_: None),
    attack_data.LENGTH: _instead(coco_masks, "_LONGEST", 1 << 30),
    attack_data.OBJECT: _instead(coco_file, "_object_faults", lambda *_: iter(())),
    attack_data.FILE: _instead(label_files, "is_there", Path.is_file),
    attack_data.NUMBER: _instead(
        class_names, "class_number", lambda text, _: int(text)
    ),
    attack_data.YAML: _instead(frigate, "quoted", str),
    attack_data.COMMENT: _instead(program, "commented", str),
    attack_data.FIELD: _instead(package, "printable", str),
    attack_data.PATH: _instead(units, "_check_path", lambda _: None),
    attack_data.WHOLE: _instead(exporting, "whole_folders", lambda paths: _each(paths)),
    attack_data.BOARD: _instead(archive, "_check_board", lambda *_: None),
    attack_data.OURS: _instead(cache, "only_ours", lambda _: None),
    attack_data.INDEX: _instead(
        interpreter, "operator", types.SimpleNamespace(index=lambda number: number)
    ),
    "a stranger's headers": _instead(listening, "MOST_HEAD_BYTES", 1 << 30),
    "the strangers' connections": _instead(listening, "MOST_STRANGERS", 1 << 30),
    "an address's connections": _instead(listening, "MOST_OF_ADDRESS", 1 << 30),
    "a stranger's time": _instead(listening, "STRANGER_S", 1e6),
    "a picture's size": _instead(
        uploads, "LIMITS", uploads.LIMITS._replace(side=1 << 30)
    ),
    "the limits of a picture's process": lambda: _any_decoder(),
    "one picture at a time": _instead(
        server._Handler, "_take_picture", lambda handler: _any_picture(handler)
    ),
}
"""Every check that refuses an attack, and what stands in its place when it is taken
out.
"""


HANGS_S = 4.0
BUSY_S = 240.0
"""After which one hangs whose checks are all there, and which may build a library first."""


class Succeeded(Exception):
    """An attack did."""


class Hung(BaseException):
    """The device end did."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raises Hung when it takes longer."""

    def hung(*_: object) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _held(path: str) -> str:
    """What a file holds; of one as large as no file of ours, how large it is."""
    size = os.path.getsize(path)
    return digest(path) if size < 1 << 30 else str(size)


def snapshot(root: Path) -> dict[str, str]:
    """What is on the device, but for what is on its way and what only may be tried."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in ("incoming", "new", "try")]
        for name in (
            *names,
            *(f for f in folders if os.path.islink(os.path.join(folder, f))),
        ):
            path = os.path.join(folder, name)
            if name != "lock":
                found[os.path.relpath(path, root)] = (
                    os.readlink(path) if os.path.islink(path) else _held(path)
                )
    return found


def attempt(
    case: Case, files: Files, folder: Path, without: tuple[str, ...] = ()
) -> str:
    """What the device said.

    Raises Succeeded where the attack did, in anything.  without: checks taken out.
    """
    shutil.copytree(files.template, folder / "root", symlinks=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            mock.patch.dict(os.environ, {"EDGEC_UNITS": str(folder / "units")})
        )
        stack.enter_context(mock.patch("shutil.which", lambda name: name))
        host = Host(files, folder / "root")
        case.prepare(host)
        before = snapshot(folder)
        allowed = files.programs | set(snapshot(files.template).values())
        for check in without:
            stack.enter_context(CHECKS[check]())
        host.device.executed.clear()
        try:
            with within(HANGS_S if without else BUSY_S):
                case.attack(host)
        except EdgecError as e:
            said = e.what if e.hint else ""
        except Hung:
            raise Succeeded("the device end hung") from None
        else:
            raise Succeeded("it was not refused")
    if (
        not said
        or snapshot(folder) != before
        or not set(host.device.executed) <= allowed
    ):
        raise Succeeded(
            "the device changed, or executed something else, "
            "or did not say why it refused it"
        )
    assert host.connection.ask(STATUS, Empty())[0].apps is not None
    host.close()
    return said


def run(
    found: list[Case], files: Files, base: Path, mutate: bool
) -> Iterator[tuple[Case, str, bool]]:
    """Each case, what came of it, and whether that is good.  mutate: with its checks
    taken out it must succeed.
    """
    for case in found:
        folder = base / "case"
        folder.mkdir()
        try:
            said = attempt(case, files, folder, case.checks if mutate else ())
            refused = True
        except Succeeded as e:
            said = str(e)
            refused = False
        shutil.rmtree(folder)
        yield case, said, refused != mutate


def main() -> int:
    """Prints each case; 1 where one is not as it should be."""
    options = argparse.ArgumentParser()
    options.add_argument("--mutate", action="store_true")
    options.add_argument("--only", default="")
    chosen = options.parse_args()
    found = [c for c in cases() if chosen.only in c.name]
    wrong = 0
    with builds.apart() as base:
        (base / "files").mkdir()
        files = Files.make(base / "files")
        for case, said, good in run(found, files, base, chosen.mutate):
            wrong += not good
            print(f"{'ok   ' if good else 'WRONG'} {case.name}: {said}", flush=True)
    print(
        f"{len(found)} attacks, {wrong} wrong; "
        f"{len(CHECKS)} checks{' taken out' if chosen.mutate else ''}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
