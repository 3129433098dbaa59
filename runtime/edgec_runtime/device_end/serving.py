"""Runs edgec_runtime.serve as an application's service (docs/frigate.md).

The unit starts this file, which verifies slot and wheels and becomes the server. The
options of the server are in a file beside the slots, so that no text of the host stands
in a unit.

This is part of the device end, see wire.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import List

from edgec_runtime.device_end.bundles import MODEL
from edgec_runtime.device_end.disk import Refused, opened, replace
from edgec_runtime.device_end.reception import App
from edgec_runtime.device_end.wheels import Execute, WheelSite

OPTIONS = "serve.json"
"""The options of the server: a list of words, in the folder of the application."""
CHECK_S = 60.0
MOST_WORDS = 32
MOST_CHARACTERS = 1000
_MODULE = "edgec_runtime.serve"


def check_server(app: App, words: List[str], execute: Execute = subprocess.run) -> None:
    """Raise Refused if the device cannot serve with these options: for want of the
    runtime or of a library, or by the options themselves.
    """
    _check_words(words)
    site = _site(app, execute)
    checked = ["-m", f"{_MODULE}.command_line", *words]
    process = site.run(site.active(), checked, CHECK_S)
    if process.returncode:
        text = process.stderr.decode(errors="replace").strip()
        what, _, hint = text.rpartition("hint: ")
        lines = (what or text).strip().splitlines() or ["serve failed"]
        raise Refused(
            "device",
            lines[0].replace("error: ", "", 1)[:300],
            hint[:300] or "look at it on the device",
        )


def keep_options(app: App, words: List[str]) -> None:
    """Write the options of the server, for this user's eyes: they may have a password."""
    _check_words(words)
    before = os.umask(0o077)
    try:
        replace(app.disk, app.at(OPTIONS), json.dumps(words).encode())
    finally:
        os.umask(before)


def become_server(app: App, slot: str) -> None:
    """Verify a slot and the wheels, and become the server of the slot's bundle.

    Raises Refused if one of them is damaged, or if the options are missing.
    """
    app.verified(slot)
    site = _site(app)
    try:
        with opened(app.at(OPTIONS)) as f:
            words = json.loads(f.read(MOST_WORDS * MOST_CHARACTERS).decode())
    except (OSError, ValueError, RecursionError):
        words = None
    _check_words(words)
    environment = site.environment(site.active())
    command = [sys.executable, "-m", _MODULE, app.at(slot, MODEL), *words]
    os.chdir("/")
    os.execve(command[0], command, environment)


def _site(app: App, execute: Execute = subprocess.run) -> WheelSite:
    """Return the wheels of an application; raises Refused without the runtime."""
    site = WheelSite(app, execute)
    if not site.active():
        raise Refused(
            "input",
            f"{app.name} has no runtime on the device",
            "edgec flash --with-runtime",
        )
    return site


def _check_words(words: object) -> None:
    """Raise Refused unless they are a list of short texts."""
    is_list = isinstance(words, list) and len(words) <= MOST_WORDS
    if not is_list or not all(_is_word(word) for word in words):  # type: ignore[attr-defined]
        raise Refused("input", "the options of serve are impossible", "flash again")


def _is_word(word: object) -> bool:
    is_short = isinstance(word, str) and len(word) <= MOST_CHARACTERS
    return is_short and "\0" not in str(word)
