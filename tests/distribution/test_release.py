"""What `make release` builds: the same bytes each time, and each file as it is used."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import edgec_runtime
import pytest
import yaml
from packaging.utils import canonicalize_name

from edgec.version import VERSION
from tests import builds
from tests.devices.test_package import needs_dpkg
from tests.distribution import pythons
from tests.distribution.pythons import ROOT, environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / ".git").exists(), reason="no repository, of which a release is made"
    ),
]
RUNTIME = "edgec_runtime-*.whl"


def _release(to: Path) -> None:
    done = build(ROOT, to / "release")
    assert done.returncode == 0, done.stderr


def build(
    repository: Path, folder: Path, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the tool of a repository, whose edgec is that of the tests."""
    return subprocess.run(
        [sys.executable, "-m", "tools.release", str(folder)],
        cwd=repository,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def release() -> Path:
    """A release, built once a run."""
    return builds.once("release", _release) / "release"


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def modes_of(folder: Path) -> dict[str, int]:
    return {str(p.relative_to(folder)): p.stat().st_mode for p in folder.rglob("*")}


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_clone_builds_the_same_bytes(release: Path, tmp_path: Path) -> None:
    """In another place, time zone and mask, beside files that are not committed."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    (clone / "edgec" / "draft.py").write_text("a draft")
    (clone / "README.md").write_text("a draft")
    before = os.umask(0o077)
    try:
        done = build(clone, tmp_path / "again", TZ="Asia/Tokyo", PYTHONHASHSEED="7")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert bytes_of(tmp_path / "again") == bytes_of(release)
    assert modes_of(tmp_path / "again") == modes_of(release)


def test_the_checksums_are_of_all_files(release: Path) -> None:
    files = bytes_of(release)
    lines = files.pop("SHA256SUMS").decode().splitlines()
    listed = {line[66:]: line[:64] for line in lines}
    assert listed == {n: hashlib.sha256(data).hexdigest() for n, data in files.items()}


def test_what_is_refused(tmp_path: Path) -> None:
    """A folder that is there; a clone without history."""
    done = build(ROOT, tmp_path)
    assert done.returncode != 0
    assert "is there already" in done.stderr
    source = f"file://{ROOT}"
    clone = tmp_path / "clone"
    command = ["git", "clone", "--quiet", "--depth", "1", source, str(clone)]
    subprocess.run(command, check=True)
    done = build(clone, tmp_path / "release")
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "no history" in done.stderr


def test_the_wheels_work(release: Path, tmp_path: Path) -> None:
    wheel = only(release, "edgec-*.whl")
    python = environment(tmp_path / "env", pythons.HERE, wheel, ())
    edgec = str(python.with_name("edgec"))
    assert run(edgec, "--version").strip().endswith(wheel.name.split("-")[1])
    assert "tcp://127.0.0.1:5555" in run(edgec, "serve", "--help")
    wheel = only(release, RUNTIME)
    python = environment(tmp_path / "device", pythons.HERE, wheel, ("numpy",))
    assert "--deepstack" in run(str(python), "-m", "edgec_runtime.serve", "--help")


def run(*command: str, **env: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=pythons.clean(**env), cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_dpkg
def test_the_package_has_the_runtime(release: Path, tmp_path: Path) -> None:
    deb = only(release, "*.deb")
    fields = run("dpkg-deb", "--field", str(deb))
    name, version, architecture = deb.stem.split("_")
    assert (
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}" in fields
    )
    assert architecture == "arm64"
    run("dpkg-deb", "--extract", str(deb), str(tmp_path))
    code = "import edgec_runtime; print(edgec_runtime.__file__)"
    folder = tmp_path / "usr/lib/python3/dist-packages"
    assert run(sys.executable, "-c", code, PYTHONPATH=str(folder)).startswith(
        str(folder)
    )
    run("dpkg-deb", "--control", str(deb), str(tmp_path / "control"))
    for script in ("postinst", "prerm"):
        run("sh", "-n", str(tmp_path / "control" / script))


# ---- containers


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Name and words of each instruction of a Dockerfile, with its lines joined."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.M)
    lines = text.replace("\\\n", " ").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line.strip()]
    return [(name, " ".join(rest.split())) for name, rest in words]


def faults(dockerfile: Path) -> list[str]:
    """What a linter would say of a Dockerfile: tags that move, downloads, caches."""
    found = []
    steps = instructions(dockerfile)
    for name, words in steps:
        if name == "FROM" and not re.search(
            r"(:\w+-\d{8}\S*|@sha256:[0-9a-f]{64})$", words
        ):
            found.append(f"the base may change: {words}")
        if name == "ADD" or re.search(
            r"\b(curl|wget|git clone|pip3? install)\b", words
        ):
            found.append(f"fetched without a checksum: {words}")
        if "apt-get install" in words:
            if not (words.startswith("apt-get update && ") and "--yes" in words):
                found.append(f"an old index, or a question: {words}")
            if (
                "--no-install-recommends" not in words
                or "rm -rf /var/lib/apt/lists/*" not in words
            ):
                found.append(f"larger than it has to be: {words}")
        if name == "COPY" and not (dockerfile.parent / words.split()[0]).is_file():
            found.append(f"not there: {words}")
    if steps[0][0] != "FROM":
        found.append("no base")
    return found


def test_the_linter_finds_faults(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM debian:latest\nADD https://example.org/x /\nCOPY nothing /\n"
        "RUN apt-get install git\nRUN pip install x\n"
    )
    assert len(faults(path)) == 6


def test_containers(release: Path) -> None:
    for folder in ("container", "homeassistant/edgec"):
        assert faults(release / folder / "Dockerfile") == []
        wheel = only(release / folder, RUNTIME)
        assert wheel.read_bytes() == only(release, RUNTIME).read_bytes()
    steps = instructions(release / "container" / "Dockerfile")
    users = [words for name, words in steps if name == "USER"]
    assert users[-1] not in ("root", "0")
    assert steps[-1] == ("ENTRYPOINT", '["python3", "-m", "edgec_runtime.serve"]')


def _has_builder() -> bool:
    docker = shutil.which("docker")
    if docker is None:
        return False
    done = subprocess.run([docker, "info"], capture_output=True, timeout=60)
    return done.returncode == 0


@pytest.mark.skipif(not _has_builder(), reason="no running docker")
def test_the_container_is_built(release: Path) -> None:
    image = "edgec-serve:test"
    run("docker", "build", "--quiet", "-t", image, str(release / "container"))
    try:
        assert "--deepstack" in run("docker", "run", "--rm", image, "--help")
        user = ["--entrypoint", "id", image, "-u"]
        assert run("docker", "run", "--rm", *user).strip() != "0"
    finally:
        run("docker", "image", "rm", image)


def test_the_addon(release: Path) -> None:
    """Its options have a schema, and give a command that the service takes."""
    folder = release / "homeassistant" / "edgec"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["version"] == only(release, "edgec-*.whl").name.split("-")[1]
    assert config["options"].keys() <= config["schema"].keys()
    optional = {k for k, kind in config["schema"].items() if kind.endswith("?")}
    assert config["schema"].keys() - config["options"].keys() == optional
    table = re.findall(r"^\| `(\w+)`", (folder / "DOCS.md").read_text(), re.M)
    assert set(table) == set(config["schema"])

    command = runpy.run_path(str(folder / "run.py"))["command"]
    words = command({**config["options"], "mqtt": "mqtt://a", "api_key": "k"})
    assert words[:4] == [
        sys.executable,
        "-m",
        "edgec_runtime.serve",
        "/config/detector.edgec",
    ]
    ports = {key.partition("/")[0] for key in config["ports"]}
    assert {word.rpartition(":")[2] for word in words if "0.0.0.0" in word} == ports
    told = run(sys.executable, *words[1:3], "--help", PYTHONPATH=str(ROOT / "runtime"))
    for word in words[4:]:
        assert not word.startswith("--") or word in told
    ast.parse((folder / "run.py").read_text(), feature_version=(3, 9))


# ---- what there is to read


def test_every_place_has_the_same_version(release: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION == edgec_runtime.__version__
    assert f"edgec-{VERSION}-py3-none-any.whl" in bytes_of(release)


def test_the_bill_of_materials(release: Path) -> None:
    document = json.loads(only(release, "*.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = {c["name"]: c for c in document["components"]}
    lock = (ROOT / "requirements.lock").read_text()
    pins = {
        str(canonicalize_name(name)): version
        for name, version in re.findall(r"^(\S+)==(\S+) ", lock, re.M)
    }
    pins["edgec-runtime"] = VERSION
    assert {n: c["version"] for n, c in components.items()}.items() <= pins.items()
    assert {"numpy", "onnx", "ziglang", "pyzmq"} <= components.keys()
    assert components["numpy"]["scope"] == "required"
    assert components["pyzmq"]["scope"] == "optional"
    assert not {"pytest", "mypy", "mkdocs"} & components.keys()
    assert all(c.get("licenses") for c in components.values())
    references = {c["bom-ref"] for c in components.values()}
    references.add(document["metadata"]["component"]["bom-ref"])
    for row in document["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= references
    assert {row["ref"] for row in document["dependencies"]} == references


def test_the_changelog(release: Path) -> None:
    lines = (release / "CHANGELOG.md").read_text().splitlines()
    assert re.fullmatch(r"# edgec \d+\.\d+\.\d+, \d{4}-\d\d-\d\d", lines[0])
    subjects = [line for line in lines if line.startswith("- ")]
    assert len(subjects) == len([x for x in lines[4:] if x and not x.startswith("## ")])
    log = ["git", "log", "-1", "--format=%s", "--", "docs", "edgec", "runtime"]
    newest = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True)
    plain = "\n".join(subjects).replace("\\", "")
    assert newest.stdout.strip() in plain


def test_the_playbook_is_that_of_the_manual(release: Path) -> None:
    assert bytes_of(release / "ansible") == bytes_of(ROOT / "docs/examples/ansible")
