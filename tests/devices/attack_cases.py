"""The attacks: what is done, and the check that is to refuse it."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from edgec_devices.transfer import Assembly, send
from edgec_runtime.device_end.bundles import machine_target

from tests.devices.attack_data import data
from tests.devices.attack_files import (
    APP,
    MAIN,
    WEIGHTS,
    Attack,
    Case,
    Host,
    rewritten,
    sha256,
    zipped,
)
from tests.devices.attack_lies import lies
from tests.devices.attack_odd import odd
from tests.devices.attack_page import page
from tests.devices.attack_wheels import wheels
from tests.devices.faults import fake_program

SIGNATURE = "signature.json"
MANIFEST = "manifest.json"
SIGNED = "that it is signed"
FILES = "the bundle's files"
KEY = "whose key it is"
NUMBERS = "the signature's numbers"
AGE = "how old it is"
WHOSE = "which application"
SLOT = "a slot's name"
HOLDS = "what a slot holds"
LINKS = "no links"
ENTRIES = "entries of the zip"
CODE = "headers of code"
NAME = "an application's name"
PARTS = "the parts' names"
OPTIONS = "the options"


def cases() -> list[Case]:
    """All of them."""
    found = [
        *forged(),
        *swapped(),
        *replayed(),
        *relabelled(),
        *planted(),
        *named(),
        *zips(),
        *asked(),
        *wheels(),
        *lies(),
        *odd(),
        *data(),
        *page(),
    ]
    assert len({c.name for c in found}) == len(found), "two cases of one name"
    return found


def _signature(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rewritten(data, lambda f: found.update(json.loads(f[SIGNATURE])))
    return found


def _with_signature(host: Host, name: str, **changes: object) -> bytes:
    """A bundle with other fields in its signature.json."""
    data = host.files.bundles[name]
    return rewritten(
        data,
        lambda f: f.update(
            {SIGNATURE: json.dumps({**_signature(data), **changes}).encode()}
        ),
    )


def forged() -> Iterator[Case]:
    """Signatures that the key did not make."""
    yield Case(
        "no signature", (SIGNED,), lambda h: h.flash(h.files.bundles["unsigned 3"])
    )
    yield Case(
        "stripped",
        (SIGNED,),
        lambda h: h.flash(rewritten(h.files.bundles["v3"], lambda f: f.pop(SIGNATURE))),
    )
    yield Case("another key", (KEY,), lambda h: h.flash(h.files.bundles["other key 3"]))
    yield Case(
        "evil and another key",
        (KEY,),
        lambda h: h.flash(h.files.bundles["evil, other key"]),
    )

    def other(h: Host) -> object:
        key = _signature(h.files.bundles["v3"])["key"]
        return h.flash(_with_signature(h, "other key 3", key=key))

    yield Case("another key's signature, our key's name", (NUMBERS,), other)
    for i in (0, 20, 40, 63, 64, 90, 110, 127):
        yield Case(f"a digit of the signature, {i}", (NUMBERS,), partial(_digit, i))
    for name, text in {
        "zeros": "00" * 64,
        "identity": "01" + "00" * 63,
        "ones": "ff" * 64,
    }.items():
        yield Case(
            f"signature of {name}", (NUMBERS,), partial(_resigned, {"signature": text})
        )
    for name, text in {"zero": "00" * 32, "one": "01" + "00" * 31}.items():
        small = partial(_resigned, {"key": text, "signature": "01" + "00" * 63})
        yield Case(
            f"the key {name}, of which anything is signed", (KEY, NUMBERS), small
        )
    yield Case(
        "counter raised",
        (NUMBERS,),
        lambda h: h.flash(_with_signature(h, "v3", counter=31)),
    )
    yield Case(
        "counter raised of an old one",
        (NUMBERS,),
        lambda h: h.flash(_with_signature(h, "v0", counter=99)),
    )
    yield Case(
        "application renamed",
        (NUMBERS,),
        lambda h: h.flash(_with_signature(h, "other app 3", app=APP)),
    )
    odd: dict[str, bytes] = {
        "empty": b"",
        "no object": b"[]",
        "no fields": b"{}",
        "not text": b"\xff",
        "nested": b"[" * 200_000,
        "large": b" " * 5000,
        "null": b"null",
    }
    for name, content in odd.items():
        change = {SIGNATURE: content}
        yield Case(f"signature.json is {name}", (SIGNED,), partial(_updated, change))
    fields: dict[str, object] = {
        "schema": 1,
        "counter": -1,
        "app": 5,
        "key": "00",
        "signature": 7,
    }
    for field, value in fields.items():
        yield Case(
            f"signature.json with {field} {value}",
            (SIGNED,),
            partial(_resigned, {field: value}),
        )


def _resigned(changes: dict[str, object], h: Host) -> object:
    return h.flash(_with_signature(h, "v3", **changes))


def _updated(changes: dict[str, bytes], h: Host) -> object:
    return h.flash(rewritten(h.files.bundles["v3"], lambda f: f.update(changes)))


def _digit(i: int, h: Host) -> object:
    text = _signature(h.files.bundles["v3"])["signature"]
    return h.flash(
        _with_signature(
            h, "v3", signature=text[:i] + f"{int(text[i], 16) ^ 1:x}" + text[i + 1 :]
        )
    )


def swapped() -> Iterator[Case]:
    """A signed bundle with other content."""

    def one(
        name: str, change: Callable[[dict[str, bytes]], object], *checks: str
    ) -> Case:
        return Case(
            name, checks, lambda h: h.flash(rewritten(h.files.bundles["v3"], change))
        )

    for member in ("src/mix.c", "weights.bin", MAIN):
        yield one(
            f"one byte of {member}", partial(_one_byte, member), FILES, HOLDS, CODE
        )
    yield one(
        "one byte of the manifest",
        lambda f: f.update({MANIFEST: f[MANIFEST] + b" "}),
        NUMBERS,
    )
    yield one("without src/mix.c", lambda f: f.pop("src/mix.c"), FILES)
    yield one("a file more", lambda f: f.update({"extra.bin": b"x"}), FILES)
    yield Case(
        "the signature of another version",
        (NUMBERS,),
        lambda h: h.flash(_graft(h, "v2", "unsigned 3")),
    )
    yield Case(
        "the signature of another version, evil",
        (NUMBERS,),
        lambda h: h.flash(_graft(h, "v3", "evil")),
    )

    def evil(h: Host) -> object:
        return h.flash(
            rewritten(h.files.bundles["v3"], lambda f: f.update({MAIN: h.files.evil}))
        )

    yield Case("the program alone", (FILES, HOLDS), evil)

    def listed(h: Host) -> object:
        def change(f: dict[str, bytes]) -> None:
            manifest = json.loads(f[MANIFEST])
            manifest["files"][MAIN] = {
                "sha256": sha256(h.files.evil),
                "bytes": len(h.files.evil),
            }
            f.update({MAIN: h.files.evil, MANIFEST: json.dumps(manifest).encode()})

        return h.flash(rewritten(h.files.bundles["v3"], change))

    yield Case("the program and its hash in the manifest", (NUMBERS,), listed)
    for name in (MANIFEST, SIGNATURE, MAIN, "weights.bin"):
        for last in (True, False):
            where = "last" if last else "first"
            yield Case(
                f"{name} twice, the changed one {where}",
                (FILES, NUMBERS, SIGNED, HOLDS),
                partial(_twice, name, last),
            )


def _one_byte(member: str, f: dict[str, bytes]) -> None:
    f[member] = f[member][:-1] + bytes((f[member][-1] ^ 1,))


def _graft(h: Host, signed: str, content: str) -> bytes:
    text = json.dumps(_signature(h.files.bundles[signed])).encode()
    return rewritten(h.files.bundles[content], lambda f: f.update({SIGNATURE: text}))


def _twice(name: str, last: bool, h: Host) -> object:
    with zipfile.ZipFile(io.BytesIO(h.files.bundles["v3"])) as z:
        members = [(n, z.read(n)) for n in z.namelist()]
    at = next(i for i, (n, _) in enumerate(members) if n == name)
    twin = (name, members[at][1] + b" ")
    members.insert(at + 1 if last else at, twin)
    return h.flash(zipped([(n, d) for n, d in members]))


def replayed() -> Iterator[Case]:
    """What the key did sign, once."""
    yield Case("an older version", (AGE,), lambda h: h.flash(h.files.bundles["v0"]))
    yield Case(
        "the earlier version, sent again",
        (AGE,),
        lambda h: h.flash(h.files.bundles["v1"]),
    )

    def rolled_back(h: Host) -> object:
        return h.flash(h.files.bundles["v0"])

    def roll_back(h: Host) -> object:
        return h.ask("rollback")

    yield Case("an older version after a rollback", (AGE,), rolled_back, roll_back)

    def scratch(h: Host) -> object:
        data = h.files.bundles["v0"]
        send(h.connection, Assembly(data, sha256(data), (), data, APP), scratch=True)
        return h.run("try")

    yield Case("an older version, only to be run", (AGE,), scratch)

    def install(h: Host) -> object:
        data = h.files.bundles["v0"]
        send(h.connection, Assembly(data, sha256(data), (), data, APP), downgrade=True)
        return h.ask("activate")

    yield Case(
        "an older version, allowed to come but not to be active", (AGE,), install
    )
    yield Case(
        "an older version, the counter removed",
        (AGE,),
        lambda h: h.flash(h.files.bundles["v0"]),
        lambda h: h.at("counter").unlink(),
    )
    yield Case(
        "an older version, the counter damaged",
        (AGE,),
        lambda h: h.flash(h.files.bundles["v0"]),
        lambda h: h.at("counter").write_bytes(b"\x00\xff"),
    )
    yield Case(
        "an older version, the counter rewritten",
        (AGE,),
        lambda h: h.flash(h.files.bundles["v0"]),
        lambda h: h.at("counter").write_text("1 00000000\n"),
    )


def relabelled() -> Iterator[Case]:
    """What the key signed for something else."""
    yield Case(
        "another application's bundle",
        (WHOSE,),
        lambda h: h.flash(h.files.bundles["other app 3"]),
    )
    for app in ("door", "Tiny", "tiny2", "tiny.", "t", "a" * 64):
        yield Case(
            f"this application's bundle as {app[:8]}", (WHOSE,), partial(_flash_as, app)
        )
    yield Case(
        "another application's slot, copied",
        (WHOSE,),
        lambda h: h.ask("run", app="door", slot="a", limit=5, options=["--runs", "1"]),
        lambda h: shutil.copytree(h.at(), h.root / "door", symlinks=True),
    )


def _flash_as(app: str, h: Host) -> object:
    return h.flash(h.files.bundles["v3"], app)


def planted() -> Iterator[Case]:
    """Files put into a slot by somebody who can write there; then the device is asked
    to run it.
    """
    for slot, uses in {
        "b": {"run": _run, "service": _service},
        "a": {"run": _run_a, "rollback": _rollback},
    }.items():
        for use, act in uses.items():
            for what, (prepare, checks) in _PLANTS.items():
                yield Case(
                    f"{what} in slot {slot}, then {use}",
                    checks,
                    act,
                    partial(prepare, slot),
                )
    for what in ("the program and its hash", "an unsigned bundle"):
        prepare, checks = _PLANTS[what]
        yield Case(
            f"{what} in try, then activate",
            checks,
            lambda h: h.ask("activate"),
            partial(_in_try, prepare),
        )


def _in_try(prepare: Callable[[str, Host], object], h: Host) -> None:
    shutil.copytree(h.at("b"), h.at("try"))
    prepare("try", h)


def _run(h: Host) -> object:
    return h.run()


def _run_a(h: Host) -> object:
    return h.run("a")


def _service(h: Host) -> object:
    return h.ask("service")


def _rollback(h: Host) -> object:
    return h.ask("rollback")


def _program(slot: str, h: Host, listed: bool = True) -> None:
    h.plant(slot, {MAIN: h.files.evil}, listed)


def _weights(slot: str, h: Host) -> None:
    h.plant(slot, {WEIGHTS: b"other weights"})


def _more(name: str, slot: str, h: Host) -> None:
    h.plant(slot, {name: h.files.evil})


def _linked(slot: str, h: Host) -> None:
    """The program is a link to a file that has its bytes now, and may have others when
    it is started.
    """
    outside = h.root.parent / "main"
    shutil.copy(h.at(slot, MAIN), outside)
    h.at(slot, MAIN).unlink()
    h.at(slot, MAIN).symlink_to(outside)


def _linked_folder(slot: str, h: Host) -> None:
    outside = h.root.parent / "bin"
    shutil.move(h.at(slot, "bin"), outside)
    h.at(slot, "bin").symlink_to(outside)


def _linked_slot(slot: str, h: Host) -> None:
    outside = h.root.parent / "slot"
    shutil.move(h.at(slot), outside)
    h.at(slot).symlink_to(outside)


def _bundle(name: str, slot: str, h: Host) -> None:
    data = h.files.bundles[name]
    program = {}
    rewritten(data, lambda f: program.update({MAIN: f[MAIN]}))
    h.plant(slot, {"model.edgec": data, **program})


_PLANTS: dict[str, tuple[Callable[[str, Host], object], tuple[str, ...]]] = {
    "the program and its hash": (_program, (HOLDS,)),
    "the program": (partial(_program, listed=False), (HOLDS,)),
    "weights and their hash": (_weights, (HOLDS,)),
    "a file more beside the program": (
        partial(_more, f"bin/{machine_target()}/ld.so"),
        (HOLDS,),
    ),
    "a library that the bundle has not": (
        partial(_more, f"lib/{machine_target()}/libmodel.so"),
        (HOLDS,),
    ),
    "a link to the program": (_linked, (HOLDS,)),
    "a link to a folder": (_linked_folder, (HOLDS,)),
    "a link to a slot": (_linked_slot, (LINKS,)),
    "an unsigned bundle": (partial(_bundle, "evil"), (SIGNED,)),
    "a bundle of another key": (partial(_bundle, "evil, other key"), (KEY,)),
    "a bundle of another application": (partial(_bundle, "other app 3"), (WHOSE,)),
    "a bundle that slot.json does not know": (
        lambda slot, h: h.at(slot, "model.edgec").write_bytes(h.files.bundles["v3"]),
        ("the slot's bundle", HOLDS),
    ),
}


def named() -> Iterator[Case]:
    """Names that lead elsewhere."""

    yield Case(
        "a slot by its absolute path",
        (SLOT, SIGNED),
        lambda h: h.run(str(h.root.parent / "outside")),
        Host.outside,
    )
    yield Case(
        "a slot beside the root",
        (SLOT, SIGNED),
        lambda h: h.run("../../outside"),
        Host.outside,
    )
    for name in ("b/../b", "./b", "b/", "../tiny/b", "copy"):
        yield Case(f"the slot {name}", (SLOT,), partial(_run_slot, name), _copied)
    apps = (
        "../root/tiny",
        "./tiny",
        "tiny/",
        "tiny/.",
        "..",
        "",
        ".hidden",
        "trusted",
        "a b",
        "a\n",
        "a" * 65,
    )
    for app in apps:
        prepare = partial(_copied_to, app)
        yield Case(
            f"the application {app[:14]!r}",
            (NAME, WHOSE),
            partial(_run_app, app),
            prepare,
        )
    yield Case(
        "an application by its path", (NAME, WHOSE), lambda h: _run_app(str(h.at()), h)
    )


def _run_slot(name: str, h: Host) -> object:
    return h.run(name)


def _copied(h: Host) -> None:
    shutil.copytree(h.at("b"), h.at("copy"))


def _run_app(app: str, h: Host) -> object:
    return h.ask("run", app=app, slot="b", limit=5, options=["--runs", "1"])


def _copied_to(app: str, h: Host) -> None:
    """The slot is there, by whatever name."""
    place = os.path.join(h.root, app, "b")
    if not os.path.exists(place):
        shutil.copytree(h.at("b"), place)


def zips() -> Iterator[Case]:
    """Bundles that would leave their folder, or fill the disk; nobody signed them
    either.
    """

    def one(
        name: str,
        checks: tuple[str, ...],
        *more: tuple[str | zipfile.ZipInfo, bytes],
        method: int = 0,
    ) -> Case:
        def attack(h: Host) -> object:
            files: list[tuple[str | zipfile.ZipInfo, bytes]] = []
            rewritten(h.files.bundles["unsigned 3"], lambda f: files.extend(f.items()))
            return h.flash(zipped([*files, *more], method))

        return Case(name, checks, attack)

    link = zipfile.ZipInfo("link")
    link.create_system = 3
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    for name in (
        "../../x",
        "a/../../x",
        "/tmp/x",
        "..",
        "a\\..\\x",
        "C:/x",
        ".ssh/x",
        "a//x",
        "é",
    ):
        yield one(f"a member {name}", (ENTRIES, SIGNED), (name, b"x"))
    yield one("a member that is a link", (ENTRIES, SIGNED), (link, b"/etc/passwd"))
    yield one(
        "compressed members",
        (ENTRIES, SIGNED),
        ("zeros", bytes(1 << 20)),
        method=zipfile.ZIP_DEFLATED,
    )
    yield one(
        "very many members", (ENTRIES, SIGNED), *((f"f{i}", b"") for i in range(4100))
    )
    others = {
        "text": b"#!/bin/sh\necho evil\n" * 40,
        "another machine's": fake_program(700, random.Random(9), "linux-armv7"),
        "cut off": fake_program(700, random.Random(9))[:400],
    }
    for name, program in others.items():
        yield Case(
            f"a program that is {name}",
            (CODE, SIGNED),
            partial(_other_program, program),
        )


def _other_program(program: bytes, h: Host) -> object:
    def change(f: dict[str, bytes]) -> None:
        manifest = json.loads(f[MANIFEST])
        manifest["files"][MAIN] = {"sha256": sha256(program), "bytes": len(program)}
        f.update({MAIN: program, MANIFEST: json.dumps(manifest).encode()})

    return h.flash(rewritten(h.files.bundles["unsigned 3"], change))


def _run_with(words: list[str], h: Host) -> object:
    return h.run(options=("--runs", "1", *words))


def asked() -> Iterator[Case]:
    """Requests that no host of ours makes."""
    for words in (
        ["--output", "/tmp/x"],
        ["--weights", "/tmp/x"],
        ["--input", "/etc/passwd"],
        ["--runs", "1; id"],
    ):
        yield Case(f"run with {' '.join(words)}", (OPTIONS,), partial(_run_with, words))

    def begin(part: list[object]) -> Attack:
        recipe = {"sha256": "0" * 64, "bytes": 5, "parts": [part]}
        return lambda h: (
            h.ask("begin", b"", recipe=recipe),
            h.ask("put", b"evil!", part=0, at=0),
            h.ask("info"),
        )

    yield Case("a part named ../../../x", (PARTS,), begin([0, 5, "../../../x"]))
    yield Case("a part that is a slot's file", (PARTS,), begin([0, 5, "../b/evil"]))
