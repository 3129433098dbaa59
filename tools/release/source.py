"""The last commit of the repository: its files, its version, its date and its history."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgec.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
_SOURCES = "edgec partitioner runtime devices fixtures docs pyproject.toml README.md"
_SOURCES += " LICENSE .gitignore requirements.lock"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.M)
_AREAS: Mapping[str, str] = {
    "edgec/": "Compiler and verbs",
    "partitioner/": "What runs on the Edge TPU",
    "runtime/": "On the device",
    "devices/": "Devices and links",
    "docs/": "Manual",
    "README.md": "Manual",
}
"""The parts of the changelog, by the beginning of a path. A commit that touches none of
them, but tests for example, is none for users."""


@dataclass(frozen=True)
class Source:
    """What a release is built from.

    Attributes:
        folder: the files of the commit, without tests and benchmarks
        version: the runtime's, which is the compiler's too
        epoch: seconds since 1970 of the commit: the date of all that is built
    """

    folder: Path
    version: str
    epoch: int


def check_out(folder: Path) -> Source:
    """Write the files of the last commit into an empty folder.

    What is changed and not committed is left out, so that a release can be built again
    from its commit. Raises InputError without a repository.
    """
    archive = _git("archive", "--format=tar", "HEAD", *_SOURCES.split())
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    text = (folder / "runtime/edgec_runtime/__init__.py").read_text(encoding="utf-8")
    version = _VERSION.search(text)
    assert version is not None, "the runtime states its version"
    epoch = int(_git("log", "-1", "--format=%ct").decode())
    return Source(folder, version[1], epoch)


def changelog(version: str) -> str:
    """Return the changes since the last version, in Markdown.

    They are the subjects of all commits since the tag v… before this one, the newest
    first. Raises InputError for a clone without its history.
    """
    if _git("rev-parse", "--is-shallow-repository").decode().strip() == "true":
        raise InputError(
            "this clone has no history, of which the changelog is made",
            at=str(ROOT),
            hint="git fetch --unshallow --tags",
        )
    since = _last_tag(version)
    log = _git(
        "log",
        "--no-merges",
        "--name-only",
        "--format=%x1e%s",
        f"{since}..HEAD" if since else "HEAD",
    ).decode()
    areas: dict[str, list[str]] = {area: [] for area in _AREAS.values()}
    for commit in log.split("\x1e")[1:]:
        subject, *paths = commit.strip().splitlines()
        touched = [area for path in paths if (area := _area(path))]
        if touched:
            # The part that most of its files are in.
            areas[max(touched, key=touched.count)].append(subject)
    day = _git("log", "-1", "--format=%cs").decode().strip()
    lines = [f"# edgec {version}, {day}", ""]
    lines += [f"Changes since {since}." if since else "The first version.", ""]
    for area, subjects in areas.items():
        if subjects:
            lines += [f"## {area}", "", *(f"- {_escaped(s)}" for s in subjects), ""]
    return "\n".join(lines)


def _last_tag(version: str) -> str | None:
    """Return the newest tag v… of an earlier version; None before the first."""
    tags = _git(
        "tag", "--list", "v*", "--merged", "HEAD", "--sort=-version:refname"
    ).decode()
    return next((tag for tag in tags.split() if tag != f"v{version}"), None)


def _area(path: str) -> str | None:
    """Return the part of the changelog that a file belongs to."""
    for beginning, area in _AREAS.items():
        if path.startswith(beginning):
            return area
    return None


def _escaped(subject: str) -> str:
    """Return a subject of which Markdown makes the same text."""
    return re.sub(r"([*_`<\[\\])", r"\\\1", subject)


def _git(*words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, check=True
        )
    except FileNotFoundError as e:
        raise InputError("git is not installed", hint="apt-get install git") from e
    except subprocess.CalledProcessError as e:
        message = e.stderr.decode(errors="replace").strip()
        raise InputError(
            f"git {words[0]}: {message}",
            at=str(ROOT),
            hint="build a release in a clone of the repository",
        ) from e
    return done.stdout
