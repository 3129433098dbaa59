"""Whether devices are reached when everything is slow: the whole emulated Pi over ssh,
with busy loops beside it.

Boots a machine of its own, then round by round: flash, status, doctor, rollback.
Markdown on the screen, build/busy-check.json; exit code 1 unless all of them succeeded.
Only public commands of edgec are used.

    python -m benchmarks.busy_check [--rounds 5] [--busy 2] [--board pi4]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "busy-check"
MODEL = ROOT / "fixtures" / "digits" / "digits.onnx"
EDGEC = [sys.executable, "-m", "edgec"]
NAME = "busy-check"
URL = f"ssh://emulated-{NAME}"
LIMIT_S = 600.0
VERBS = ("flash", "status", "doctor", "rollback")


@dataclass(frozen=True)
class Tried:
    """One command.  said: the end of what it printed where it failed."""

    verb: str
    round: int
    seconds: float
    ok: bool
    said: str = ""


@contextmanager
def machine(board: str) -> Iterator[None]:
    """A new machine that is stopped at the end."""
    boot = [
        *EDGEC,
        "devices",
        "boot",
        f"emulated:{board}",
        "--whole",
        "--name",
        NAME,
        "--fresh",
    ]
    subprocess.run(boot, check=True, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        subprocess.run([*EDGEC, "devices", "stop", NAME], check=False)


@contextmanager
def busy(loops: int) -> Iterator[None]:
    """So many processes that take what time they get."""
    running = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        for _ in range(loops)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def bundles(board: str) -> tuple[Path, Path]:
    """Two versions of one model: the second has other labels."""
    made = []
    for version in ("one", "two"):
        labels = WORK / f"{version}.txt"
        labels.write_text("".join(f"{version} {digit}\n" for digit in range(10)))
        path = WORK / f"{version}.edgec"
        options = ["--target", board, "--labels", str(labels), "-o", str(path), "-q"]
        subprocess.run([*EDGEC, "compile", str(MODEL), *options], check=True)
        made.append(path)
    return made[0], made[1]


def tried(verb: str, number: int, words: Sequence[str], expected: str) -> Tried:
    """Runs a verb.  doctor may find what is missing there, and says so by status 1: it
    was reached all the same.
    """
    began = monotonic()
    try:
        done = subprocess.run(
            [*EDGEC, verb, *words, "--on", URL],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=os.environ,
        )
    except subprocess.TimeoutExpired:
        return Tried(
            verb, number, monotonic() - began, False, f"no end after {LIMIT_S:.0f} s"
        )
    ok = expected in done.stdout and (done.returncode == 0 or verb == "doctor")
    return Tried(
        verb,
        number,
        round(monotonic() - began, 2),
        ok,
        "" if ok else (done.stdout + done.stderr)[-400:],
    )


def rounds(count: int, board: str) -> list[Tried]:
    """Each flash puts the other version there, so that each rollback has one to go back
    to.
    """
    first, second = bundles(board)
    found = [tried("flash", 0, [str(first)], "flashed")]
    for number in range(1, count + 1):
        found.append(tried("flash", number, [str(second)], "flashed, slot b"))
        found.append(tried("status", number, [], "active"))
        found.append(tried("doctor", number, [], "Python"))
        found.append(tried("rollback", number, [], "is back on slot a"))
        for one in found[-len(VERBS) :]:
            print(
                f"round {number}: {one.verb} {one.seconds:.1f} s "
                f"{'' if one.ok else one.said}",
                file=sys.stderr,
            )
    return found


def markdown(found: Sequence[Tried], idle: float, login: float, loops: int) -> str:
    """The table."""
    lines = [
        f"Plain `ssh {URL.removeprefix('ssh://')} true`: {idle:.1f} s alone, "
        f"{login:.1f} s with {loops} busy loops.",
        "",
        "| verb | succeeded | median s | longest s |",
        "| --- | ---: | ---: | ---: |",
    ]
    for verb in VERBS:
        mine = [t for t in found if t.verb == verb and t.round]
        seconds = [t.seconds for t in mine]
        good = sum(t.ok for t in mine)
        lines.append(
            f"| {verb} | {good} of {len(mine)} | {median(seconds):.1f} | "
            f"{max(seconds):.1f} |"
        )
    return "\n".join(lines)


def login() -> float:
    """Seconds of ssh by itself."""
    said = subprocess.run(
        [*EDGEC, "devices", "status", NAME, "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    config = json.loads(said.stdout)[0]["ssh_config"]
    began = monotonic()
    subprocess.run(
        ["ssh", "-F", config, URL.removeprefix("ssh://"), "true"], check=True
    )
    return monotonic() - began


def main() -> int:
    """The whole check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--board", default="pi4")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(machine(asked.board))
        idle = min(login() for _ in range(3))
        stack.enter_context(busy(asked.busy))
        slow = max(login() for _ in range(3))
        found = rounds(asked.rounds, asked.board)
    print(markdown(found, idle, slow, asked.busy))
    facts = {
        "ssh_alone_s": idle,
        "ssh_busy_s": slow,
        "busy": asked.busy,
        "tried": [asdict(t) for t in found],
    }
    (ROOT / "build" / "busy-check.json").write_text(json.dumps(facts, indent=1) + "\n")
    return 0 if all(t.ok for t in found) else 1


if __name__ == "__main__":
    sys.exit(main())
