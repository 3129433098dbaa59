"""What a person sees of a flash: bars on a terminal, lines in a log, also while nothing
comes.
"""

from __future__ import annotations

import io
import os
import pty
import random
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from edgec_devices.protocol import Connection
from edgec_devices.transfer import Sending, send

from edgec.report.transfer_progress import shown
from tests.devices.faults import Faults, SimStream, World, fake_program, make_bundle
from tests.waiting import until


def test_a_log_gets_a_line_every_few_seconds() -> None:
    log = io.StringIO()
    begin = time.monotonic()
    with shown(to=log, every=0.1) as report:
        report("ssh://a", Sending(step="connecting"))
        until(lambda: log.getvalue().count("connecting") == 2, "it repeats itself")
        report("ssh://a", Sending(700_000, 1_400_000, 500_000, 2.0))
        switching = Sending(700_000, 1_400_000, 500_000, 2.0, "switching", 5, 5)
        report("ssh://b", switching)
        until(lambda: "ssh://b" in log.getvalue(), "both have a line")
    lines = log.getvalue().splitlines()
    assert lines[:2] == ["ssh://a: connecting"] * 2, (
        "a log that stands still looks like a program that does"
    )
    assert "ssh://a: sending 50 % of 1.4 MB, 250.0 kB/s, 2 s left" in lines
    assert "ssh://b: step 5 of 5: switching" in lines
    assert len(lines) <= 2 * (time.monotonic() - begin) / 0.1


def test_a_short_flash_writes_nothing_into_a_log() -> None:
    log = io.StringIO()
    with shown(to=log) as report:
        report("local:", Sending(1, 2, 1, 0.1))
    with shown(quiet=True, to=log, every=0.01) as report:
        report("local:", Sending(1, 2, 1, 0.1))
        time.sleep(0.1)
    assert log.getvalue() == ""


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    master, slave = pty.openpty()
    parts = list[bytes]()

    def screen() -> str:
        """All until now and the next refresh, without the codes of a terminal."""
        parts.append(os.read(master, 1 << 16))
        said = b"".join(parts).decode(errors="replace")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)

    with os.fdopen(slave, "w") as terminal, shown(to=terminal) as report:
        report(
            "serial:///dev/ttyUSB0?baud=[115200]",
            Sending(700_000, 1_400_000, 500_000, 2.0),
        )
        for text in (
            "serial:///dev/ttyUSB0?baud=[115200]",
            "━",
            "sending 50 % of 1.4 MB, 250.0 kB/s, 2 s left",
        ):
            until(lambda: text in screen(), text)  # noqa: B023
    os.close(master)


def test_a_slow_line_is_seen_to_move(tmp_path: Path) -> None:
    """A small bundle over a serial line of 115200 baud: once nothing was said before
    all of it had arrived.
    """
    world = World(tmp_path / "root", random.Random(0))
    world.boot()
    recipe = make_bundle(
        tmp_path / "m.edgec",
        fake_program(6000, world.rng),
        world.rng.randbytes(150_000),
    )
    seen: list[tuple[float, Sending]] = []
    with Connection(
        SimStream(world, Faults(), Faults()), lambda: world.now, seed=1
    ) as connection:
        send(
            connection,
            recipe,
            progress=lambda s: seen.append((world.now, s)),
            clock=lambda: world.now,
        )
    sending = [(at, s) for at, s in seen if s.step == "sending"]
    assert [s.step for _, s in seen if s.step != "sending"] == [
        "comparing",
        "writing and checking",
    ]
    assert [s.done for _, s in sending] == sorted({s.done for _, s in sending}), (
        "it only grows"
    )
    assert sending[-1][1].done == sending[-1][1].total
    pauses = [after[0] - before[0] for before, after in pairwise(sending)]
    assert max(pauses) < 2.0, (
        "nothing is said for longer than a window takes on the line"
    )
