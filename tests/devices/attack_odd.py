"""The attacks by what stands where something else should: bytes around a signed bundle,
pipes and endless files in the slots, the environment, numbers and fields of requests
that no host of ours sends.
"""

from __future__ import annotations

import io
import json
import os
import random
import secrets
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from edgec_devices.transfer import Assembly, send
from edgec_devices.wheel import Wheel
from edgec_devices.wheel_transfer import push
from edgec_runtime import DeviceError

from tests.devices.attack_files import (
    APP,
    MAIN,
    RUNTIME,
    WEIGHTS,
    Case,
    Host,
    rewritten,
    sha256,
    signed,
    wheel_signature,
    zipped,
)
from tests.devices.faults import fake_program

LAYOUT = "nothing around the files"
SIZES = "the inputs' sizes"
TYPES = "the types of fields"
LIMIT = "a program's time"
LOADED = "the environment"
PLAIN = "plain files"
GRAPH = "the graph's hash"
PACKED = "a wheel's packing"
KEYS = "that keys can be read"
SIZE = "a bundle's size"
HOLDS = "what a slot holds"
LINKS = "no links"
SHOWN = "a shown bundle's name"


def odd() -> Iterator[Case]:
    """All of them."""
    yield from around()
    yield from instead()
    yield from requests()
    yield from environments()
    yield Case(
        "keys in what is no folder", (KEYS,), lambda h: h.flash(_unsigned(h)), _no_keys
    )
    yield Case(
        "keys behind a link that leads nowhere",
        (KEYS,),
        lambda h: h.flash(_unsigned(h)),
        _lost_keys,
    )
    keys: dict[str, Callable[[Path], object]] = {
        "a pipe": os.mkfifo,
        "a folder": Path.mkdir,
        "zeros without end": lambda p: p.symlink_to("/dev/zero"),
        "a terabyte": _terabyte,
    }
    for name, make in keys.items():
        yield Case(
            f"a key that is {name}",
            (KEYS,),
            lambda h: h.flash(_unsigned(h)),
            partial(_key, make),
        )
    for shown in ("x=/tmp/evil", "--source", "-x", "", "a\0"):
        yield Case(
            f"a webcam with a bundle named {shown!r}", (SHOWN,), partial(_show, shown)
        )
    for kind, name in {zipfile.ZIP_LZMA: "LZMA", zipfile.ZIP_BZIP2: "bzip2"}.items():
        yield Case(
            f"a signed wheel packed with {name}", (PACKED,), partial(_packed, kind)
        )


def _unsigned(h: Host) -> bytes:
    return h.files.bundles["unsigned 3"]


def _no_keys(h: Host) -> None:
    folder = h.root / "trusted"
    folder.rename(h.root.parent / "trusted")
    folder.write_bytes(b"")


def _lost_keys(h: Host) -> None:
    """On a disk that is not mounted just now."""
    (h.root / "trusted").rename(h.root.parent / "trusted")
    (h.root / "trusted").symlink_to(h.root.parent / "mnt")


def _key(make: Callable[[Path], object], h: Host) -> None:
    for path in (h.root / "trusted").iterdir():
        path.unlink()
    make(h.root / "trusted" / "x.pub")


def _show(name: object, h: Host) -> None:
    """The program gets NAME=BUNDLE, so that a name with "=" would lead to a bundle that
    nobody verified.
    """
    try:
        bundles = [{"app": APP, "slot": "b", "name": name}]
        h.raw("show", name=secrets.token_hex(16), bundles=bundles, frames=1)
    finally:
        assert h.device.service
        h.device.service.close()


def _packed(kind: int, h: Host) -> object:
    data = zipped(
        [
            ("edgec_runtime/__init__.py", b"good = 2"),
            ("edgec_runtime/session.py", b"# good = 2"),
        ],
        kind,
    )
    made = Wheel(RUNTIME, data)
    return push(
        h.connection,
        APP,
        [Wheel(RUNTIME, data, wheel_signature(made.digests(), h.files.key))],
    )


def around() -> Iterator[Case]:
    """A bundle that the key signed, and more bytes."""
    changes: dict[str, Callable[[bytes], bytes]] = {
        "a program before it": lambda d: fake_program(700, random.Random(4)) + d,
        "a byte before it": lambda d: b"\0" + d,
        "a comment of the zip": lambda d: d[:-2] + struct.pack("<H", 6) + b"evil()",
        "bytes between its files": _between,
        "more in a file's own header": lambda d: d[:12] + b"\xff\x7f" + d[14:],
        "another time in a file's own header": lambda d: d[:10] + b"\x21\x00" + d[12:],
        "a comment of a file": _commented,
        "an extra field of a file": _extra,
    }
    for name, change in changes.items():
        yield Case(f"a signed bundle with {name}", (LAYOUT,), partial(_changed, change))


def _changed(change: Callable[[bytes], bytes], h: Host) -> object:
    return h.flash(change(h.files.bundles["v3"]))


def _directory(data: bytes) -> int:
    """Where the list of the files begins."""
    return int(struct.unpack_from("<I", data, len(data) - 6)[0])


def _between(data: bytes) -> bytes:
    at = _directory(data)
    return data[:at] + b"evil" + data[at:-6] + struct.pack("<I", at + 4) + data[-2:]


def _again(data: bytes, change: Callable[[zipfile.ZipInfo], object]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as z, zipfile.ZipFile(made, "w") as out:
        for entry in z.infolist():
            change(entry)
            out.writestr(entry, z.read(entry.filename))
    return made.getvalue()


def _commented(data: bytes) -> bytes:
    return _again(data, lambda e: setattr(e, "comment", b"evil()"))


def _extra(data: bytes) -> bytes:
    return _again(
        data, lambda e: setattr(e, "extra", struct.pack("<HH4s", 0xCAFE, 4, b"evil"))
    )


def instead() -> Iterator[Case]:
    """Of a file: a pipe, for which a reader waits for ever, and a terabyte of nothing."""
    run = Host.run
    for name in ("slot.json", "model.edgec"):
        yield Case(
            f"a pipe as {name}",
            (PLAIN, LINKS),
            run,
            partial(_put, os.mkfifo, f"b/{name}"),
        )
    yield Case(
        "a terabyte as model.edgec",
        (SIZE,),
        run,
        partial(_put, _terabyte, "b/model.edgec"),
    )
    for name in (MAIN, WEIGHTS):
        yield Case(
            f"a pipe as {name}", (HOLDS,), run, partial(_put, os.mkfifo, f"b/{name}")
        )
        yield Case(
            f"a terabyte as {name}",
            (HOLDS,),
            run,
            partial(_put, _terabyte, f"b/{name}"),
        )
    older = partial(_older, "v0")
    yield Case(
        "a pipe as counter, then an older version",
        (PLAIN,),
        older,
        partial(_put, os.mkfifo, "counter"),
    )
    session = partial(Host.run, session=True)
    yield Case(
        "a pipe as active.json",
        (PLAIN,),
        session,
        partial(_put, os.mkfifo, "site/active.json"),
    )
    yield Case(
        "a pipe as wheel.json",
        (PLAIN,),
        session,
        lambda h: _put(os.mkfifo, f"site/{_wheel(h)}/wheel.json", h),
    )


def _older(name: str, h: Host) -> object:
    return h.flash(h.files.bundles[name])


def _wheel(h: Host) -> str:
    return next(p.name for p in h.at("site").iterdir() if p.is_dir())


def _put(make: Callable[[Path], object], name: str, h: Host) -> None:
    path = h.at(name)
    path.unlink(missing_ok=True)
    make(path)


def _terabyte(path: Path) -> None:
    with path.open("wb") as f:
        f.truncate(1 << 40)
    path.chmod(0o755)


def requests() -> Iterator[Case]:
    """To run a program, with numbers that are none."""
    limits: tuple[object, ...] = (
        0,
        -1,
        float("nan"),
        float("inf"),
        1e300,
        "5",
        None,
        True,
        [5],
        1 << 80,
    )
    for limit in limits:
        yield Case(
            f"a run of at most {limit!r:.20} s",
            (TYPES, LIMIT),
            partial(_asked, {"limit": limit}),
        )
    sizes: tuple[object, ...] = (
        [-1],
        [1 << 70],
        [0] * 5000,
        [2],
        [True],
    )
    for size in sizes:
        yield Case(
            f"a run with inputs of {size!r:.20} bytes",
            (TYPES, SIZES),
            partial(_asked, {"inputs": size}),
        )
    graphs: tuple[object, ...] = ("--output", "../x", "\0", 5, [], "a b")
    for graph in graphs:
        yield Case(
            f"a signed manifest with the graph {graph!r}",
            (GRAPH,),
            partial(_made_of, graph),
        )


def _asked(fields: dict[str, object], h: Host) -> object:
    return h.raw(
        "run",
        b"x",
        **{
            "slot": "b",
            "limit": 5,
            "inputs": [1],
            "options": ["--runs", "1"],
            **fields,
        },
    )


def _made_of(graph: object, h: Host) -> object:
    """Run from where it may be tried."""

    def change(f: dict[str, bytes]) -> None:
        f["manifest.json"] = json.dumps(
            {**json.loads(f["manifest.json"]), "graph": graph}
        ).encode()

    data = signed(rewritten(_unsigned(h), change), h.files.key)
    send(h.connection, Assembly(data, sha256(data), (), data, APP), scratch=True)
    return h.run("try")


def environments() -> Iterator[Case]:
    """Of the device end, in which somebody set what loaders and Python load besides."""
    for name in ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "GCONV_PATH"):
        yield Case(f"{name} and a run", (LOADED,), partial(_surrounded, name, False))
    for name in (
        "LD_PRELOAD",
        "PYTHONHOME",
        "PYTHONPYCACHEPREFIX",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
    ):
        yield Case(
            f"{name} and a run in a Session",
            (LOADED,),
            partial(_surrounded, name, True),
        )


def _surrounded(name: str, session: bool, h: Host) -> None:
    """Nobody refuses the run, but nothing of this is handed on."""
    with mock.patch.dict(os.environ, {name: "evil"}):
        h.run("b", session=session)
    if h.device.surrounded.get(name) != "evil":
        raise DeviceError(f"{name} was not handed on", hint="nothing")
