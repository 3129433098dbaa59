"""Every command that a message tells a person to type names packages that exist, and
verbs that edgec has.

What is in Debian and on PyPI was looked up on 2026-11-26 with `apt-cache policy`, for
bookworm and trixie, and with `pip index versions`; a new package in a message is looked
up and added here with the date.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from edgec.cli.main import cli

ROOT = Path(__file__).parents[2]
SOURCES = (
    "edgec",
    "partitioner/edgec_partitioner",
    "runtime/edgec_runtime",
    "devices/edgec_devices",
)

IN_DEBIAN = {
    "debian-archive-keyring",
    "gcc",
    "openssh-client",
    "python3",
    "python3-numpy",
    "qemu-system-arm",
    "qemu-user",
    "v4l2loopback-dkms",
}
"""In bookworm and in trixie."""

IN_RASPBERRY_PI_OS = {"rpicam-apps"}

IN_CORALS_ARCHIVE = {"edgetpu-compiler"}
"""Installed by a command that adds the archive first."""

PROSE = {"or", "and", "python"}
"""Words of a sentence that goes on behind a command; `python` is filled in with a
version.
"""

ON_PYPI = {
    "ai-edge-litert",
    "cryptography",
    "edgec",
    "numpy",
    "onnxruntime",
    "onnxscript",
    "paho-mqtt",
    "pillow",
    "pyserial",
    "pyzmq",
    "opencv-python-headless",
    "tflite-runtime",
    "ziglang",
}


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    """Every text of the product's code, an f-string with what it is filled with left
    out, and where it stands.
    """
    found = []
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append((where, node.value))
                elif isinstance(node, ast.JoinedStr):
                    parts = (
                        p.value if isinstance(p, ast.Constant) else "\0"
                        for p in node.values
                    )
                    found.append((where, "".join(map(str, parts))))
    return tuple(found)


def _packages(command: str) -> list[tuple[str, str]]:
    """The packages that a text has installed, and where."""
    found = []
    for where, text in _texts():
        for words in re.findall(rf"{command} ([^&|;,()\n]+)", text):
            # what follows is said of them
            named = re.split(r" (?:on|from|in|for|,)(?= |$)", words)[0].split()
            found += [
                (where, word.strip("'\"`"))
                for word in named
                if not word.startswith("-")
            ]
    return found


def test_packages_of_apt_are_in_debian() -> None:
    found = _packages("apt-get install")
    assert len(found) > 5
    for where, package in found:
        # a file that was downloaded; one filled in
        if package in PROSE or package.startswith(("./", "\0", "/")):
            continue
        stem = re.split(r"\0|[.;,]$", package)[0]
        known = IN_DEBIAN | IN_RASPBERRY_PI_OS | IN_CORALS_ARCHIVE
        assert any(
            stem == k or ("\0" in package and k.startswith(stem)) for k in known
        ), f"{where}: {package}"


def test_packages_of_pip_are_on_pypi() -> None:
    found = [
        p
        for command in ("pip install", "install --force-reinstall")
        for p in _packages(command)
    ]
    assert len(found) > 2
    for where, package in found:
        if package not in PROSE and not package.startswith(("\0", "-", ".")):
            assert re.split(r"[\[<>=]", package)[0] in ON_PYPI, f"{where}: {package}"


def test_what_is_in_corals_archive_is_installed_after_it_was_added() -> None:
    for where, text in _texts():
        for package in IN_CORALS_ARCHIVE:
            # the end of a longer one
            if f"apt-get install {package}" in text and not text.startswith(" && "):
                assert "\0 && sudo apt-get install" in text, (
                    f"{where}: the archive is not added before"
                )


def test_verbs_of_edgec_that_messages_name_are_there() -> None:
    """Those that are given as a command, in backquotes: `edgec doctor`."""
    known = {name for name, _ in _commands(cli)}
    named = [
        (where, verb)
        for where, text in _texts()
        for verb in re.findall(r"`edgec ([a-z]+)[ `]", text)
    ]
    assert len(named) > 5
    for where, verb in named:
        assert verb in known, f"{where}: edgec {verb}"


OF_OTHERS = {
    "apt, dpkg, systemctl": {"--no-block", "--now", "--print-architecture"},
    "pip": {"--break-system-packages", "--force-reinstall"},
    "cmake": {"--build"},
    "curl": {"--create-dirs"},
    "gpg, udevadm": {"--dearmor", "--reload-rules", "--yes"},
    "rpicam-hello": {"--list-cameras", "--post-process-file", "--post-process-libs"},
    "v4l2-ctl": {"--list-devices"},
    "the app of export --app": {"--camera", "--frames", "--page"},
    "python3 -m edgec_runtime": {"--launched", "--stream", "--tpu", "--warmup"},
}
"""Options of programs that are not `edgec`."""


def _options(command: click.Command) -> set[str]:
    parameters = command.get_params(click.Context(command))
    return {name for p in parameters for name in (*p.opts, *p.secondary_opts)}


def test_options_that_messages_name_are_there() -> None:
    ours = {name for _, command in _commands(cli) for name in _options(command)}
    known = ours.union(*OF_OTHERS.values())
    named = [
        (where, name)
        for where, text in _texts()
        if " " in text
        for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text)
    ]
    assert len(named) > 200
    for where, name in named:
        assert name in known, f"{where}: nothing has the option {name}"


def test_command_lines_that_messages_name_have_their_options() -> None:
    """`edgec VERB` with all that follows it up to the end of the sentence."""
    # A verb of a group may have the name of another one: status of devices.
    known = {**dict(_commands(cli)), **cli.commands}
    count = 0
    for where, text in _texts():
        for line in re.findall(r"\bedgec ([a-z]+(?: [^ ;,.`)\0]+)+)", text):
            verb, *words = line.split()
            for name in (
                word.partition("=")[0]
                for word in words
                if verb in known and word.startswith("--")
            ):
                count += 1
                assert name in _options(known[verb]), (
                    f"{where}: edgec {line}: {verb} has no {name}"
                )
    assert count > 15


def _commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            yield from _commands(command)


@pytest.mark.parametrize("word", ["apt-key add", "libedgetpu1-std`"])
def test_nothing_tells_of_what_no_longer_works(word: str) -> None:
    assert [where for where, text in _texts() if word in text] == []
