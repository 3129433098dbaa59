"""What attacks work with: a device that trusts a key, bundles of that key and of
another, and an attacker's host.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgec_devices.flash import FlashJob, execute, flash_one
from edgec_devices.options import FlashOptions
from edgec_devices.protocol import Connection
from edgec_devices.signing import new_key, public_path, sign
from edgec_devices.transfer import Assembly
from edgec_devices.wheel import Wheel
from edgec_devices.wheel_transfer import push
from edgec_runtime import write_bundle
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import digest
from edgec_runtime.device_end.requests import TRUST, Empty, RunRequest
from edgec_runtime.device_end.trust import (
    Signature,
    message,
    wheel_message,
    wheel_signature_text,
)

from tests.devices.faults import Faults, SimStream, World, fake_program
from tests.runtime import tiny_model

APP = "tiny"
MAIN = f"bin/{machine_target()}/main"
WEIGHTS = f"bin/{machine_target()}/weights.bin"
RUNTIME = "edgec_runtime-0.1.0-py3-none-any.whl"


def bundle(path: Path, program: bytes, label: str) -> Path:
    """Not signed."""
    manifest, files = tiny_model.parts()
    tiny_model.use_weights(manifest, files, machine_target())
    manifest["programs"][machine_target()], manifest["labels"] = MAIN, [label]
    write_bundle(path, manifest, {**files, MAIN: program})
    return path


def sha256(data: bytes) -> str:
    """In hex."""
    return hashlib.sha256(data).hexdigest()


def rewritten(data: bytes, change: Callable[[dict[str, bytes]], object]) -> bytes:
    """A zip with its files changed, without looking at what they mean."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        files = {n: z.read(n) for n in z.namelist()}
    change(files)
    return zipped([*files.items()])


def zipped(
    files: list[tuple[str | zipfile.ZipInfo, bytes]], method: int = zipfile.ZIP_STORED
) -> bytes:
    """A zip, also of names that appear twice."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as z:
        for name, content in files:
            z.writestr(
                name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name),
                content,
                method,
            )
    return made.getvalue()


def signed(data: bytes, key: Path, counter: int = 90) -> bytes:
    """A bundle that the key's owner signed without looking at it."""
    from edgec_devices import signing

    def change(f: dict[str, bytes]) -> None:
        private = signing._load(key)
        made = private.sign(message(f["manifest.json"], APP, counter))
        f["signature.json"] = Signature(
            signing._public(private), APP, counter, made
        ).to_json()

    return rewritten(data, change)


def wheel(text: bytes, key: Path | None) -> Wheel:
    """A runtime, signed where there is a key."""
    data = zipped(
        [
            ("edgec_runtime/__init__.py", text),
            ("edgec_runtime/session.py", b"# " + text),
        ]
    )
    made = Wheel(RUNTIME, data)
    if key is None:
        return made
    return Wheel(RUNTIME, data, wheel_signature(made.digests(), key))


def wheel_signature(digests: dict[str, str], key: Path) -> bytes:
    """As edgec sign writes it beside a wheel."""
    from edgec_devices import signing

    private = signing._load(key)
    return wheel_signature_text(
        signing._public(private), private.sign(wheel_message(digests))
    )


@dataclass(frozen=True)
class Files:
    """bundles: by what they are.  programs: sha256 of those that the trusted key
    signed.  evil: a program.
    """

    folder: Path
    bundles: dict[str, bytes]
    programs: frozenset[str]
    evil: bytes

    @property
    def template(self) -> Path:
        """A device that trusts the key, with versions 1 and 2 of the application, 2
        active, and a runtime.
        """
        return self.folder / "template"

    @property
    def key(self) -> Path:
        """The private key that the attacker does not have, except where a case says so."""
        return self.folder / "key"

    @property
    def other_key(self) -> Path:
        """The attacker's."""
        return self.folder / "other"

    @staticmethod
    def make(folder: Path) -> Files:
        """Written to a folder; keys are new each time."""
        rng = random.Random(0)
        programs = [fake_program(700, rng) for _ in range(4)]
        evil = fake_program(700, rng)
        found = {}
        new_key(folder / "key")
        new_key(folder / "other")
        for i, program in enumerate(programs):
            path = bundle(folder / f"v{i}.edgec", program, str(i))
            found[f"unsigned {i}"] = path.read_bytes()
            sign(path, folder / "other", folder / "x", counter=90)
            found[f"other key {i}"] = (folder / "x").read_bytes()
            sign(path, folder / "key", folder / "x", app="door", counter=90)
            found[f"other app {i}"] = (folder / "x").read_bytes()
            sign(path, folder / "key", counter=10 * (i + 1))
            found[f"v{i}"] = path.read_bytes()
        path = bundle(folder / "evil.edgec", evil, "evil")
        found["evil"] = path.read_bytes()
        sign(path, folder / "other", counter=90)
        found["evil, other key"] = path.read_bytes()
        files = Files(folder, found, frozenset(map(sha256, programs)), evil)
        host = Host(files, files.template)
        line = public_path(folder / "key").read_bytes()
        host.connection.ask(TRUST, Empty(), line)
        for name in ("v1", "v2"):
            host.flash(found[name])
        push(host.connection, APP, [wheel(b"good = 1", folder / "key")])
        host.close()
        return files


class Device(World):
    """Starts nothing; notes what it would have."""

    surrounded: dict[str, str] = {}

    def execute(
        self, command: list[str], **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """In place of running.run."""
        said = b""
        self.surrounded = options.get("env") or {}
        if command[0] == sys.executable:
            folders = options["env"]["PYTHONPATH"].split(os.pathsep)
            self.executed += [
                digest(str(p)) for f in folders for p in sorted(Path(f).rglob("*.py"))
            ]
            self.executed += [
                digest(str(p))
                for p in Path(options.get("cwd") or Path.cwd()).glob("*.py")
            ]
            said = b"0.1.0"
        elif os.path.isabs(command[0]):
            self.executed.append(digest(command[0]))
            beside = os.path.join(os.path.dirname(command[0]), "weights.bin")
            self.executed += [digest(beside)] if os.path.exists(beside) else []
        if "--runs" in command:
            said = b'{"warmup": 0, "total": [1000000]}'
        return subprocess.CompletedProcess(command, 0, said, b"")


class Host:
    """An attacker's: it sends anything."""

    def __init__(self, files: Files, root: Path) -> None:
        self.files = files
        self.root = root
        self.device = Device(root, random.Random(0))
        self.device.boot()
        self.connection = Connection(
            SimStream(self.device, Faults(), Faults(), 1e7), lambda: self.device.now, 1
        )

    def close(self) -> None:
        """Ends the connection."""
        self.connection.close()
        assert self.device.service
        self.device.service.close()

    def at(self, *parts: str) -> Path:
        """In the application's folder."""
        return self.root.joinpath(APP, *parts)

    def flash(self, data: bytes, app: str = APP, downgrade: bool = False) -> object:
        """All of it is glue, so no part of it is looked for."""
        recipe = Assembly(data, sha256(data), (), data, app)
        job = FlashJob(recipe, options=FlashOptions(allow_downgrade=downgrade))
        return flash_one(self.connection, job, lambda _: None)

    def run(
        self,
        slot: Any = None,
        session: bool = False,
        options: tuple[str, ...] = ("--runs", "1"),
    ) -> object:
        """Any slot's program."""
        run = RunRequest(APP, slot, list(options), session=session)
        return execute(self.connection, run)

    def ask(self, do: str, blob: bytes = b"", **fields: Any) -> object:
        """Any request."""
        return self.connection.request(do, {**{"app": APP, **fields}}, blob)

    def raw(self, do: str, blob: bytes = b"", **fields: Any) -> object:
        """Any request with any fields, also such as a Connection puts in itself."""
        c = self.connection
        c._send(do, blob, {"app": APP, **fields})
        while (found := c._answer(c._last_id)) is None:
            c._turn(c._clock() + 1)
        return found

    def plant(
        self, slot: str, changes: dict[str, bytes], list_them: bool = True
    ) -> None:
        """Files written into a slot; list_them: their hashes into slot.json, too."""
        state = json.loads(self.at(slot, "slot.json").read_text())
        for name, data in changes.items():
            path = self.at(slot, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            path.chmod(0o755)
            if list_them:
                state["files"][name] = sha256(data)
                if name == "model.edgec":
                    state["sha256"] = sha256(data)
        self.at(slot, "slot.json").write_text(json.dumps(state))

    def outside(self) -> Path:
        """A whole slot of the attacker's beside the root."""
        path = self.root.parent / "outside"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.at("b"), path)
        data = self.files.bundles["evil"]
        (path / "model.edgec").write_bytes(data)
        (path / MAIN).write_bytes(self.files.evil)
        state = {
            "sha256": sha256(data),
            "files": {"model.edgec": sha256(data), MAIN: sha256(self.files.evil)},
        }
        (path / "slot.json").write_text(json.dumps(state))
        return path


Attack = Callable[[Host], object]


@dataclass(frozen=True)
class Case:
    """checks: those that stand between the attack and what it is after; with all of
    them taken out it succeeds.

    prepare: what the attacker did before, to the device's folder.
    """

    name: str
    checks: tuple[str, ...]
    attack: Attack
    prepare: Attack = lambda host: None
