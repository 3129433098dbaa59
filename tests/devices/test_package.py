"""Packages: their bytes, what dpkg says of them, what they install, and what is
refused.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from edgec_devices.debian_package import DATE, File, ar, deb
from edgec_devices.machine import Machine
from edgec_devices.package import ARCHITECTURES, FORMATS, package, package_name, write
from edgec_runtime import Bundle, BundleError, InputError, write_bundle
from edgec_runtime.device_end.bundles import machine_target

from edgec.cli import devices as cli_devices
from tests.runtime import tiny_model

needs_dpkg = pytest.mark.skipif(
    shutil.which("dpkg-deb") is None, reason="no dpkg-deb: install dpkg"
)
HOST = next((a for a, t in ARCHITECTURES.items() if t == machine_target()), "amd64")
FOLDER = "usr/lib/edgec/tiny"
ANSIBLE = shutil.which(
    "ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}"
)
PLAYBOOK = Path(__file__).parents[2] / "docs" / "examples" / "ansible" / "install.yml"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With code for this machine, and what stands for a program of each other
    architecture.
    """
    folder = tmp_path_factory.mktemp("bundle")
    library = tiny_model.build_library(folder)
    programs = {t: folder / t for t in ARCHITECTURES.values()}
    for path in programs.values():
        path.write_bytes(b"\x7fELF" + bytes(400))
    programs[machine_target()] = tiny_model.build_program(folder)
    write_bundle(folder / "tiny.edgec", *tiny_model.parts(library, programs))
    return folder / "tiny.edgec"


def members(archive: bytes) -> dict[str, bytes]:
    """Of an ar archive."""
    assert archive[:8] == b"!<arch>\n"
    at = 8
    found = {}
    while at < len(archive):
        header = archive[at : at + 60]
        assert header[58:] == b"`\n"
        size = int(header[48:58])
        found[header[:16].decode().strip()] = archive[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
    return found


def untar(data: bytes) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
        files = {}
        for member in archive:
            content = archive.extractfile(member)
            files[member.name] = (member, content.read() if content else b"")
        return files


@pytest.mark.cc
def test_a_package_from_the_inside(bundle: Path) -> None:
    made = package(bundle, arch=HOST, version="1:2.0-1")
    assert made.file_name == f"edgec-tiny_2.0-1_{HOST}.deb"
    parts = members(made.data)
    assert list(parts) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    assert parts["debian-binary"] == b"2.0\n"
    control = untar(parts["control.tar.gz"])
    data = untar(parts["data.tar.gz"])
    for member, _ in (*control.values(), *data.values()):
        assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (
            0,
            0,
            "root",
            "root",
            DATE,
        )
        assert member.isfile() or member.isdir()
        assert member.mode & 0o022 == 0
    files = {
        name.removeprefix("./"): content
        for name, (m, content) in data.items()
        if m.isfile()
    }
    for name in files:
        for parent in Path(name).parents:
            assert str(parent) == "." or f"./{parent}" in data, (
                f"dpkg needs the folder {parent} before {name}"
            )
    assert list(data) == sorted(data)
    kept = control["./conffiles"][1].decode().split()
    assert kept == ["/etc/default/edgec-tiny"]
    sums = dict(
        line.split("  ")[::-1] for line in control["./md5sums"][1].decode().splitlines()
    )
    assert sums == {
        n: hashlib.md5(c).hexdigest() for n, c in files.items() if f"/{n}" not in kept
    }
    for name in ("postinst", "prerm", "postrm"):
        member, text = control[f"./{name}"]
        assert member.mode == 0o755
        assert text.startswith(b"#!/bin/sh\nset -e\n")
        assert subprocess.run(["sh", "-n"], input=text).returncode == 0
    assert data[f"./{FOLDER}/main"][0].mode == 0o755
    assert (
        files["usr/lib/systemd/system/edgec-tiny.service"].count(b"DynamicUser=yes")
        == 1
    )
    assert f"{FOLDER}/python/edgec_runtime/session/session.py" in files
    paragraph = control["./control"][1].decode()
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]*): (.*)$", paragraph, re.M))
    assert fields["Package"] == "edgec-tiny"
    assert fields["Version"] == "1:2.0-1"
    assert fields["Architecture"] == HOST
    assert fields["Recommends"] == "python3 (>= 3.9), python3-numpy"
    assert abs(
        int(fields["Installed-Size"]) - sum(len(c) for c in files.values()) / 1024
    ) <= len(files)
    assert len(fields["Description"]) < 80
    assert not paragraph.endswith("\n\n")


@pytest.mark.cc
@pytest.mark.parametrize("format", FORMATS)
def test_the_same_bundle_gives_the_same_bytes(
    bundle: Path, format: str, tmp_path: Path
) -> None:
    code = (
        "import sys, pathlib; from edgec_devices.package import package;"
        "sys.stdout.buffer.write(package(pathlib.Path(sys.argv[1]), sys.argv[2], "
        "'arm64').data)"
    )
    env = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    copy = shutil.copy(bundle, tmp_path / "other-name.edgec")
    done = subprocess.run(
        [sys.executable, "-c", code, copy, format],
        env=env,
        capture_output=True,
        check=True,
    )
    assert done.stdout == package(bundle, format, "arm64").data


@pytest.mark.cc
def test_only_what_the_architecture_needs(bundle: Path, tmp_path: Path) -> None:
    for arch in ("arm64", HOST):
        data = untar(members(package(bundle, arch=arch).data)["data.tar.gz"])
        target = ARCHITECTURES[arch]
        with Bundle.open(bundle) as whole:
            assert data[f"./{FOLDER}/main"][1] == whole.read(f"bin/{target}/main")
            assert data[f"./{FOLDER}/weights.bin"][1] == tiny_model.WEIGHTS
        (tmp_path / "m.edgec").write_bytes(data[f"./{FOLDER}/model.edgec"][1])
        with Bundle.open(tmp_path / "m.edgec") as reduced:
            assert all(
                target in name or name == "weights.bin" for name in reduced.names
            )
            assert dict(reduced.manifest.weights) == {target: "weights.bin"}
            assert set(reduced.manifest.libraries) == (
                {target} if arch == HOST else set()
            )
            assert dict(reduced.manifest.programs) == {}
            assert reduced.manifest.tensors == whole.manifest.tensors


@pytest.mark.cc
def test_python_is_a_dependency_where_the_runtime_is_needed(
    bundle: Path, tmp_path: Path
) -> None:
    with Bundle.open(bundle) as b:
        fields = b.manifest_fields()
        files = {n: b.read(n) for n in b.names}
    fields["segments"][1].update(
        tflite="segments/relu.tflite", edgetpu="segments/relu_edgetpu.tflite"
    )
    names = ("segments/relu.tflite", "segments/relu_edgetpu.tflite")
    write_bundle(
        tmp_path / "tpu.edgec", fields, {**files, **dict.fromkeys(names, b"t")}
    )
    parts = members(package(tmp_path / "tpu.edgec", arch="arm64").data)
    assert (
        b"\nDepends: python3 (>= 3.9), python3-numpy\n"
        in untar(parts["control.tar.gz"])["./control"][1]
    )
    (tmp_path / "m.edgec").write_bytes(
        untar(parts["data.tar.gz"])[f"./{FOLDER}/model.edgec"][1]
    )
    with Bundle.open(tmp_path / "m.edgec") as reduced:
        assert set(names) <= set(reduced.names)


def test_ar_pads_to_even() -> None:
    assert members(ar([("a", b"1"), ("b", b"22"), ("c", b"333")])) == {
        "a": b"1",
        "b": b"22",
        "c": b"333",
    }
    assert len(ar([("a", b"1")])) % 2 == 0


@needs_dpkg
def test_dpkg_reads_the_simplest_package(tmp_path: Path) -> None:
    control = {
        "Package": "x-y",
        "Version": "1",
        "Architecture": "all",
        "Maintainer": "A <a@b>",
        "Description": "d",
    }
    path = tmp_path / "x.deb"
    path.write_bytes(deb(control, {}, {"usr/share/x": File(b"12")}))
    assert (
        dpkg("dpkg-deb", "--field", path, "Package", "Installed-Size")
        == "Package: x-y\nInstalled-Size: 1\n"
    )


def dpkg(*command: str | Path) -> str:
    done = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    return done.stdout


@needs_dpkg
@pytest.mark.cc
def test_dpkg_takes_it(bundle: Path, tmp_path: Path) -> None:
    path = write(package(bundle, arch=HOST), tmp_path)
    assert "Package: edgec-tiny" in dpkg("dpkg-deb", "--info", path)
    assert f"-rwxr-xr-x root/root {'':0}" in dpkg("dpkg-deb", "--contents", path)
    dpkg("dpkg-deb", "--extract", path, tmp_path / "root")
    program = tmp_path / "root" / FOLDER / "main"
    report = json.loads(
        subprocess.run(
            [program, "--runs", "3", "--json"], capture_output=True, check=True
        ).stdout
    )
    assert len(report["total"]) - report["warmup"] == 3
    code = (
        "import sys, numpy as np, edgec_runtime as e; "
        "s = e.Session(e.Bundle.open(sys.argv[1]), tpu='c');"
        "assert '/usr/lib/edgec/' in e.__file__; np.save(sys.argv[2], s.run({'image': "
        "np.load(sys.argv[3])})['out'])"
    )
    image = tiny_model.image(5)
    np.save(tmp_path / "in.npy", image)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "root" / FOLDER / "python")}
    model = tmp_path / "root" / FOLDER / "model.edgec"
    command = [
        sys.executable,
        "-c",
        code,
        model,
        tmp_path / "out.npy",
        tmp_path / "in.npy",
    ]
    subprocess.run([str(c) for c in command], env=env, check=True, cwd=tmp_path)
    np.testing.assert_array_equal(
        np.load(tmp_path / "out.npy"), tiny_model.reference(image)["out"]
    )


@needs_dpkg
@pytest.mark.cc
@pytest.mark.skipif(os.geteuid() != 0, reason="dpkg --unpack needs root")
def test_dpkg_unpacks_and_removes_it(bundle: Path, tmp_path: Path) -> None:
    """Into a root of its own; scripts are for the machine that they run on, so they are
    tried below.
    """
    root = tmp_path / "root"
    for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates"):
        (root / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    path = write(package(bundle, arch=HOST), tmp_path)
    base = (
        "dpkg",
        f"--root={root}",
        "--force-not-root",
        "--force-script-chrootless",
        "--no-triggers",
    )
    dpkg(*base, "--force-depends", "--unpack", path)
    assert (root / FOLDER / "main").exists()
    assert (root / "etc/default/edgec-tiny.dpkg-new").exists(), (
        "dpkg knows it as the administrator's file"
    )
    assert (
        dpkg("dpkg", f"--root={root}", "--verify", "edgec-tiny").count("missing") <= 1
    )


@pytest.mark.cc
def test_scripts(bundle: Path, tmp_path: Path) -> None:
    """With a stand-in systemctl, and systemd not running: what an image that is being
    built sees.
    """
    control = untar(members(package(bundle, arch=HOST).data)["control.tar.gz"])
    log = tmp_path / "log"
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(f'#!/bin/sh\necho "$*" >> {log}\n')
    (folder / "systemctl").chmod(0o755)

    def run(name: str, *args: str) -> list[str]:
        log.write_text("")
        text = (
            control[f"./{name}"][1]
            .decode()
            .replace("/run/systemd/system", str(running))
        )
        text = text.replace("/etc/systemd", str(tmp_path / "etc/systemd"))
        env = {"PATH": f"{folder}:/usr/bin:/bin"}
        subprocess.run(["sh", "-c", text, name, *args], env=env, check=True)
        return log.read_text().splitlines()

    running = tmp_path / "off"
    assert run("postinst", "configure", "") == ["enable edgec-tiny.service"]
    assert run("postinst", "configure", "1.0") == [], (
        "who disabled it wants it so after an upgrade"
    )
    assert run("prerm", "remove") == []
    running = tmp_path
    assert run("postinst", "configure", "1.0") == [
        "daemon-reload",
        "is-enabled --quiet edgec-tiny.service",
        "--no-block restart edgec-tiny.service",
    ]
    assert run("prerm", "upgrade", "1.1") == []
    assert run("prerm", "remove") == ["stop edgec-tiny.service"]
    assert run("postrm", "remove") == ["daemon-reload"]
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants/edgec-tiny.service"
    wants.parent.mkdir(parents=True)
    wants.symlink_to("/nowhere")
    run("postrm", "purge")
    assert not wants.is_symlink()


@pytest.mark.cc
def test_the_archive_installs_the_same_tree(bundle: Path, tmp_path: Path) -> None:
    made = package(bundle, "tar", HOST, version="1.0")
    assert made.file_name == f"edgec-tiny_1.0_{HOST}.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(made.data)) as archive:
        archive.extractall(tmp_path, filter="data")
    install = tmp_path / "edgec-tiny-1.0" / "install.sh"
    root = tmp_path / "image"
    subprocess.run([install, root], check=True)
    data = untar(members(package(bundle, arch=HOST, version="1.0").data)["data.tar.gz"])
    for name, (member, content) in data.items():
        if member.isfile():
            assert (root / name).read_bytes() == content
            assert (root / name).stat().st_mode & 0o777 == member.mode
    settings = root / "etc/default/edgec-tiny"
    settings.write_text("COMMAND=mine\n")
    subprocess.run([install, root], check=True)
    assert settings.read_text() == "COMMAND=mine\n"
    wants = root / "etc/systemd/system/multi-user.target.wants/edgec-tiny.service"
    assert (root / os.readlink(wants).lstrip("/")).is_file()


@pytest.mark.cc
def test_what_is_refused(bundle: Path, tmp_path: Path) -> None:
    for options, what in (
        ({"format": "rpm"}, "not a format"),
        ({}, "programs for arm64, armhf, amd64"),
        ({"arch": "arm"}, "not an architecture of Debian"),
        ({"arch": "arm64", "version": "new"}, "not a version"),
        ({"arch": "arm64", "version": "1\nDepends: x"}, "not a version"),
        ({"arch": "arm64", "maintainer": "me\nDepends: x"}, "not a maintainer"),
        ({"arch": "arm64", "maintainer": "me\rX: y <a@b>"}, "not a maintainer"),
        ({"arch": "arm64", "maintainer": "me <a\x1b[31m@b>"}, "not a maintainer"),
        ({"arch": "arm64", "app": "a" * 80}, "cannot be the name of a service"),
    ):
        with pytest.raises(InputError, match=what) as e:
            package(bundle, **options)
        assert e.value.hint
    manifest, files = tiny_model.parts(None, {"linux-aarch64": bundle})
    write_bundle(tmp_path / "one.edgec", manifest, files)
    assert package(tmp_path / "one.edgec").architecture == "arm64"
    with pytest.raises(BundleError, match="no program for armhf; it has arm64"):
        package(tmp_path / "one.edgec", arch="armhf")
    with pytest.raises(InputError, match="cannot write"):
        write(package(tmp_path / "one.edgec"), tmp_path / "missing" / "x.deb")


@pytest.mark.parametrize(
    ("app", "name"),
    [
        ("Mobile_Net v2", "edgec-mobile-net-v2"),
        ("x", "edgec-x"),
        ("ü", "edgec-model"),
        ("a+b", "edgec-a-b"),
    ],
)
def test_names(app: str, name: str) -> None:
    assert package_name(app) == name
    assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)


@pytest.mark.cc
def test_the_verb(bundle: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli_devices.package, [str(bundle), "--arch", "armhf", "-o", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert Path(done.output.strip()).read_bytes() == package(bundle, arch="armhf").data
    assert [p.name for p in tmp_path.iterdir()] == [Path(done.output.strip()).name]


# ---- the whole emulated machine


@pytest.mark.sweep(1, among="long runs on a machine")
@pytest.mark.pi
@pytest.mark.slow
def test_on_a_whole_machine(machine: Machine, tmp_path: Path) -> None:
    program = tiny_model.build_program(tmp_path, "linux-aarch64")
    write_bundle(
        tmp_path / "tiny.edgec", *tiny_model.parts(None, {"linux-aarch64": program})
    )
    for version in ("1.0", "1.1"):
        path = write(package(tmp_path / "tiny.edgec", version=version), tmp_path)
        with path.open("rb") as f:
            command = [
                "ssh",
                "-F",
                str(machine.ssh_config),
                machine.alias,
                f"cat > {path.name}",
            ]
            subprocess.run(command, stdin=f, check=True, timeout=60)
        machine.run(f"sudo dpkg -i {path.name}", 300)
    assert (
        machine.run("dpkg-query -W -f '${Status} ${Version}' edgec-tiny")
        == "install ok installed 1.1"
    )
    assert machine.run("systemctl is-enabled edgec-tiny").strip() == "enabled"
    journal = "sudo journalctl -o cat -u edgec-tiny | grep -c '\"total\"' || true"
    machine.run(
        "for i in 1 2 3 4 5 6 7 8 9; do systemctl is-active -q edgec-tiny || break; "
        "sleep 1; done"
    )
    assert int(machine.run(journal)) >= 1, machine.run("sudo journalctl -u edgec-tiny")
    machine.run(
        "echo 'COMMAND=\"sleep 1000\"' | sudo tee /etc/default/edgec-tiny; "
        "sudo systemctl restart edgec-tiny"
    )
    first = machine.run("systemctl show -p MainPID --value edgec-tiny").strip()
    machine.run(f"sudo kill -9 {first}; sleep 8")
    assert machine.run("systemctl is-active edgec-tiny").strip() == "active"
    assert machine.run("systemctl show -p MainPID --value edgec-tiny").strip() not in (
        "0",
        first,
    )
    machine.run("sudo dpkg -P edgec-tiny", 300)
    assert (
        machine.run("ls /usr/lib/edgec /etc/default/edgec-tiny 2>/dev/null || true")
        == ""
    )
    assert machine.run("systemctl is-active edgec-tiny || true").strip() == "inactive"


@pytest.mark.sweep(1, among="long runs on a machine")
@pytest.mark.pi
@pytest.mark.slow
@pytest.mark.skipif(
    ANSIBLE is None, reason="no ansible-playbook: pip install ansible-core"
)
def test_the_playbook(machine: Machine, tmp_path: Path) -> None:
    """Twice, as a fleet is: the second time nothing changes."""
    program = tiny_model.build_program(tmp_path, "linux-aarch64")
    write_bundle(
        tmp_path / "tiny.edgec", *tiny_model.parts(None, {"linux-aarch64": program})
    )
    path = write(package(tmp_path / "tiny.edgec", app="fleet", version="1.0"), tmp_path)
    (tmp_path / "hosts.ini").write_text(f"{machine.alias}\n")
    settings = {"package": str(path), "use_apt": False, "command": "sleep 1000"}
    command = [
        str(ANSIBLE),
        "-i",
        "hosts.ini",
        str(PLAYBOOK),
        "-e",
        json.dumps(settings),
    ]
    env = {
        **os.environ,
        "ANSIBLE_CONFIG": str(PLAYBOOK.with_name("ansible.cfg")),
        "ANSIBLE_SSH_ARGS": f"-F {machine.ssh_config} -o ControlMaster=auto -o "
        "ControlPersist=60s",
        "ANSIBLE_HOME": str(tmp_path / "ansible"),
    }
    said = []
    for _ in range(2):
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    assert re.search(r"changed=[1-9]", said[0])
    assert "changed=0" in said[1], said[1]
    assert machine.run("systemctl is-active edgec-fleet").strip() == "active"
    assert (
        machine.run(
            "ps -o args= -p $(systemctl show -p MainPID --value edgec-fleet)"
        ).strip()
        == "sleep 1000"
    )
