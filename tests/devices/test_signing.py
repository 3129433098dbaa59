"""Signatures: Ed25519 against the RFC and another library; signing; what a device with
a key refuses.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from edgec_devices import signing
from edgec_devices.flash import flash, rollback
from edgec_devices.options import FlashOptions
from edgec_devices.signing import new_key, public_path, read_public, sign, trust
from edgec_devices.transfer import Assembly
from edgec_runtime import (
    Bundle,
    BundleError,
    DeviceError,
    InputError,
    ToolError,
    write_bundle,
)
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.ed25519 import verify
from edgec_runtime.device_end.requests import Empty
from edgec_runtime.device_end.trust import SIGNATURE, Key
from edgec_runtime.errors import EdgecError
from hypothesis import given, settings
from hypothesis import strategies as st

from edgec.cli.devices import VERBS
from tests.devices.faults import digest_of
from tests.runtime import tiny_model

cryptography = pytest.importorskip("cryptography")

# RFC 8032, section 7.1: public key, message, signature.
VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
    (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
        "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589"
        "09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ),
]
ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.mark.parametrize("vector", VECTORS)
def test_the_vectors_of_the_rfc(vector: tuple[str, str, str]) -> None:
    public, message, signature = (bytes.fromhex(v) for v in vector)
    assert verify(public, message, signature)
    assert not verify(public, message + b"\0", signature)
    for bit in range(0, 512, 37):
        changed = bytearray(signature)
        changed[bit // 8] ^= 1 << bit % 8
        assert not verify(public, message, bytes(changed))
    # the same point, another number for it: one signature would have two spellings
    twice = signature[:32] + (
        int.from_bytes(signature[32:], "little") + ORDER
    ).to_bytes(32, "little")
    assert not verify(public, message, twice)


@settings(max_examples=40)
@given(
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=200),
    st.integers(0, 32 * 8 + 64 * 8),
)
def test_as_another_library_says(seed: bytes, message: bytes, flip: int) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    private = Ed25519PrivateKey.from_private_bytes(seed)
    both = bytearray(private.public_key().public_bytes_raw() + private.sign(message))
    assert verify(bytes(both[:32]), message, bytes(both[32:]))
    if flip < len(both) * 8:
        both[flip // 8] ^= 1 << flip % 8
    try:
        Ed25519PublicKey.from_public_bytes(bytes(both[:32])).verify(
            bytes(both[32:]), message
        )
        expected = True
    except (InvalidSignature, ValueError):
        expected = False
    assert verify(bytes(both[:32]), message, bytes(both[32:])) is expected


@given(
    st.binary(min_size=32, max_size=32),
    st.binary(max_size=8),
    st.binary(min_size=64, max_size=64),
)
def test_what_is_no_key_and_no_signature(
    public: bytes, message: bytes, signature: bytes
) -> None:
    # a key of a small order has such signatures, so no more is said than: no error
    verify(public, message, signature)
    assert not verify(public[1:], message, signature)
    assert not verify(public, message, signature[1:])


# ---- signing


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "key")
    return tmp_path / "key"


def bundle(path: Path, program: Path, extra: bytes = b"x") -> Path:
    manifest, files = tiny_model.parts(None, {machine_target(): program})
    write_bundle(path, manifest, {**files, "report/extra.bin": extra})
    return path


def rewrite(source: Path, path: Path, changes: dict[str, bytes | None]) -> Path:
    """A zip with files changed, added or (None) left out, as somebody without the key
    can make it.
    """
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in [*old.namelist(), *(n for n in changes if n not in old.namelist())]:
            data = changes.get(name, old.read(name) if name in old.namelist() else None)
            if data is not None:
                new.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return path


@pytest.mark.cc
def test_signing_adds_one_file_and_changes_none(
    tmp_path: Path, program: Path, key: Path
) -> None:
    plain = bundle(tmp_path / "1.edgec", program)
    signed = tmp_path / "2.edgec"
    before = plain.read_bytes()
    made = sign(plain, key, signed, counter=5)
    assert (made.app, made.counter) == ("tiny", 5)
    assert plain.read_bytes() == before
    with Bundle.open(plain) as a, Bundle.open(signed) as b:
        assert (a.signature, b.names, b.sha256) == (None, a.names, a.sha256)
        assert b.signature is not None
        assert made.public.hex() in b.signature.decode()
    with zipfile.ZipFile(signed) as z:
        assert z.namelist()[:2] == ["manifest.json", SIGNATURE]
    sign(plain, key, counter=5)
    assert plain.read_bytes() == signed.read_bytes(), (
        "the same key signs the same bundle to the same bytes"
    )
    new_key(tmp_path / "other")
    sign(plain, tmp_path / "other")
    with Bundle.open(plain) as a:
        assert a.signature is not None
        assert read_public(tmp_path / "other.pub").public.hex() in a.signature.decode()


@pytest.mark.cc
@pytest.mark.cc
@pytest.mark.parametrize(
    "app",
    ["a/b", "a\nb", "a b", "\u00e9", "t\u0456ny", "../x", ".x", "a" * 65, "trusted"],
)
def test_applications_that_no_device_has(
    tmp_path: Path, program: Path, key: Path, app: str
) -> None:
    plain = bundle(tmp_path / "m.edgec", program)
    before = plain.read_bytes()
    with pytest.raises(InputError, match="cannot be the name of a folder"):
        sign(plain, key, app=app)
    assert plain.read_bytes() == before


def test_signatures_that_are_none_and_names_that_are_taken(
    tmp_path: Path, program: Path, key: Path
) -> None:
    plain = bundle(tmp_path / "1.edgec", program)
    good = json.loads(signed_text(plain, key, tmp_path / "s.edgec"))
    for i, text in enumerate(
        (
            b"",
            b"[]",
            b"{}",
            b"\xff",
            b"{" * 5000,
            json.dumps({**good, "schema": 1}).encode(),
            json.dumps({**good, "key": "00"}).encode(),
            json.dumps({**good, "signature": 5}).encode(),
            json.dumps({**good, "app": "a\nb"}).encode(),
            json.dumps({**good, "counter": -1}).encode(),
            json.dumps({**good, "counter": True}).encode(),
            b"[" * 200_000,
        )
    ):
        with pytest.raises(BundleError, match="signature"):
            Bundle.open(rewrite(plain, tmp_path / f"bad{i}.edgec", {SIGNATURE: text}))
    manifest, files = tiny_model.parts(None, {machine_target(): program})
    with pytest.raises(BundleError, match="two files called"):
        write_bundle(tmp_path / "x.edgec", manifest, {**files, SIGNATURE: b"{}"})


def signed_text(plain: Path, key: Path, path: Path) -> bytes:
    sign(plain, key, path)
    with Bundle.open(path) as b:
        assert b.signature is not None
        return b.signature


def test_keys(tmp_path: Path, key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    found = read_public(public_path(key))
    assert Key.parse(found.line) == found
    with pytest.raises(InputError, match="there already"):
        new_key(key)
    (tmp_path / "k2.pub").touch()
    with pytest.raises(InputError, match="there already"):
        new_key(tmp_path / "k2")
    assert not (tmp_path / "k2").exists(), "half a key"
    with pytest.raises(InputError, match="not an ssh-ed25519 public key"):
        read_public(key)
    (tmp_path / "junk").write_text("junk")
    for name in ("junk", "missing", "key.pub"):
        with pytest.raises(InputError) as e:
            sign(tmp_path / "x.edgec", tmp_path / name)
        assert "--new-key" in str(e.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-rsa AAAA",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 ***",
        "a\nb c",
    ],
)
def test_lines_that_are_no_keys(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"not the one line|not base64|not an ssh-ed25519"
    ):
        Key.parse(text)


@pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="no ssh-keygen: install openssh-client"
)
def test_keys_of_openssh(tmp_path: Path, key: Path) -> None:
    say = subprocess.run(
        ["ssh-keygen", "-l", "-f", public_path(key)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert read_public(public_path(key)).fingerprint in say.stdout
    theirs = tmp_path / "theirs"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", theirs], check=True
    )
    assert (
        signing._public(signing._load(theirs))
        == read_public(public_path(theirs)).public
    )
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "ec"], check=True
    )
    with pytest.raises(InputError, match="another kind"):
        sign(tmp_path / "x.edgec", tmp_path / "ec")
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "secret", "-P", "", "-f", theirs], check=True
    )
    with pytest.raises(InputError, match="not a private key that can be used"):
        sign(tmp_path / "x.edgec", theirs)


def test_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(ToolError, match="not installed") as e:
        new_key(tmp_path / "key")
    assert "pip install" in str(e.value.hint)


# ---- devices


def refused(path: Path) -> EdgecError:
    error = flash(path, ["local:"])[0].error
    assert error is not None
    return error


@pytest.mark.cc
def test_a_device_with_a_key_takes_only_what_it_signed(
    tmp_path: Path, root: Path, program: Path, key: Path
) -> None:
    plain = bundle(tmp_path / "1.edgec", program)
    assert flash(plain, ["local:"])[0].ok
    done = trust(public_path(key), ["local:"])[0]
    assert done.what.startswith("trusts SHA256:"), done
    before = sorted(p.relative_to(root).as_posix() for p in (root / "tiny").rglob("*"))

    unsigned = bundle(tmp_path / "2.edgec", program, b"2")
    error = refused(unsigned)
    assert isinstance(error, BundleError)
    assert "not signed" in error.what
    assert error.hint == "edgec sign it first"
    assert "not signed" in refused(plain).what, (
        "what was there before the key counts no more"
    )
    new_key(tmp_path / "other")
    sign(unsigned, tmp_path / "other", tmp_path / "3.edgec")
    assert "is signed with SHA256:" in refused(tmp_path / "3.edgec").what

    sign(unsigned, key, tmp_path / "4.edgec")
    with Bundle.open(tmp_path / "4.edgec") as b:
        signature = b.signature
    other = bundle(tmp_path / "5.edgec", program, b"another")
    stolen = rewrite(other, tmp_path / "6.edgec", {SIGNATURE: signature})
    assert "changed after it was signed" in refused(stolen).what
    assert os.readlink(root / "tiny" / "current") == "a"
    after = sorted(p.relative_to(root).as_posix() for p in (root / "tiny").rglob("*"))
    assert [n for n in after if n.startswith(("tiny/a", "tiny/b", "tiny/current"))] == [
        n for n in before if n.startswith(("tiny/a", "tiny/b", "tiny/current"))
    ]

    assert flash(tmp_path / "4.edgec", ["local:"], FlashOptions(health="p95<=1s"))[
        0
    ].what.startswith("flashed, slot b")
    back = rollback(["local:"])[0]
    assert back.error is not None, "an unsigned version came back"
    assert "not signed" in back.error.what
    assert os.readlink(root / "tiny" / "current") == "b"


@pytest.mark.cc
def test_files_that_only_the_manifest_vouches_for(
    tmp_path: Path, root: Path, program: Path, key: Path
) -> None:
    """The host refuses such bundles itself; the device must not rely on that."""
    from edgec_runtime.device_end.disk import Disk, Refused
    from edgec_runtime.device_end.reception import App

    from tests.devices.test_agent import put_all

    trust(public_path(key), ["local:"])
    sign(bundle(tmp_path / "1.edgec", program), key, tmp_path / "s.edgec")
    cases: tuple[tuple[dict[str, bytes | None], str], ...] = (
        ({"report/extra.bin": b"y"}, "was changed after"),
        ({"report/more.bin": b"y"}, "other files than its manifest"),
        ({"report/extra.bin": None}, "other files than its manifest"),
        (
            {
                "manifest.json": b'{"files": {}, "programs": {}, "libraries": {}, '
                b'"name": "x"}'
            },
            "changed after it was",
        ),
    )
    for i, (changes, what) in enumerate(cases):
        path = rewrite(tmp_path / "s.edgec", tmp_path / f"{i}.edgec", changes)
        app = App(str(root), "tiny", Disk())
        try:
            put_all(app, _recipe(path))
            with pytest.raises(Refused, match=what):
                app.install()
            assert not os.path.exists(app.at("try"))
        finally:
            app.close()


def _recipe(path: Path) -> Assembly:
    """Of a file that Recipe.of() refuses: all of it is glue."""
    data = path.read_bytes()
    return Assembly(data, digest_of(data), (), data, "x")


@pytest.mark.cc
def test_a_trusted_key_that_is_damaged_lets_nothing_in(
    tmp_path: Path, root: Path, program: Path, key: Path
) -> None:
    (root / "trusted").mkdir(parents=True)
    (root / "trusted" / "x.pub").write_text("junk")
    error = refused(bundle(tmp_path / "1.edgec", program))
    assert isinstance(error, DeviceError)
    assert "trusted key" in error.what
    assert not (root / "tiny" / "current").exists()


def test_the_administrators_keys_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Path
) -> None:
    from edgec_runtime.device_end import trust as module

    system = tmp_path / "etc"
    monkeypatch.setattr(module, "SYSTEM_FOLDER", str(system))
    (tmp_path / "root" / "trusted").mkdir(parents=True)
    shutil.copy(public_path(key), tmp_path / "root" / "trusted" / "mine.pub")
    assert [k.public for k in module.trusted(str(tmp_path / "root"))] == [
        read_public(public_path(key)).public
    ]
    system.mkdir()
    assert module.trusted(str(tmp_path / "root"))
    admin = new_key(tmp_path / "admin")
    shutil.copy(tmp_path / "admin.pub", system)
    assert module.trusted(str(tmp_path / "root")) == [admin]

    from edgec_runtime.device_end.agent import Service
    from edgec_runtime.device_end.disk import Refused

    with pytest.raises(Refused, match="only the administrator's keys count"):
        Service(str(tmp_path / "root")).trust(Empty(), public_path(key).read_bytes())


# ---- the command line


def cli(*args: str | Path) -> Result:
    verb = next(v for v in VERBS if v.name == args[0])
    return CliRunner().invoke(verb, [str(a) for a in args[1:]])


@pytest.mark.cc
def test_verbs(tmp_path: Path, root: Path, program: Path) -> None:
    plain = bundle(tmp_path / "1.edgec", program)
    assert cli("sign", "--new-key", tmp_path / "k").exit_code == 0
    done = cli("sign", plain, "--key", tmp_path / "k")
    assert "is signed with SHA256:" in done.output
    done = cli("trust", tmp_path / "k.pub", "--on", "local:")
    assert "trusts SHA256:" in done.output
    assert flash(plain, ["local:"])[0].ok
    assert isinstance(cli("sign", plain).exception, InputError)
    assert isinstance(cli("sign").exception, InputError)
    assert isinstance(
        cli("trust", tmp_path / "k", "--on", "local:").exception, InputError
    )
