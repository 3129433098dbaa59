"""Runs one command in a child of this process, within bounds of memory and time.

A new interpreter with all that edgec imports takes a second; a fork of this process, which
has imported it, takes milliseconds. A case is right if it ends with exit code 0, 1 or 2,
prints nothing but printable text, and leaves nothing in the temporary folder.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

GOOD = (0, 1, 2)
FIXTURE = Path(__file__).parents[2] / "fixtures" / "digits" / "digits.onnx"
Call = Callable[[], int]
_TRACEBACK = "Traceback (most recent call last)"
_SAID = 200_000  # characters of output that are looked at


@dataclass(frozen=True)
class Limits:
    """The bounds of a case.

    Attributes:
        memory: the bytes of its data, mapped files not counted
        seconds: its time
    """

    memory: int = 2 << 30
    seconds: float = 60.0


LIMITS = Limits()


@dataclass(frozen=True)
class Verdict:
    """How a case ended.

    Attributes:
        fault: what was wrong; "" if nothing
        code: the exit code; None if a signal or the clock ended it
        seconds: its time
        said: what it printed
    """

    fault: str
    code: int | None
    seconds: float
    said: str

    @property
    def last(self) -> str:
        """The line that names the exception, else the last line."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        bugs = [line for line in lines if line.startswith("error: this is a bug")]
        return (bugs or lines or [""])[-1][:300]


def preload(calls: Iterable[Call], folder: Path) -> None:
    """Import what some calls import, so that their children do not.

    The calls run in children; this process imports the same modules, and reads one network
    for this machine itself: no solver's threads may be running when it forks.
    """
    names = folder / "modules"
    found = dict[str, None]()
    for call in calls:
        run(lambda call=call: _named(call, names), folder)  # type: ignore[misc]
        found.update(dict.fromkeys(names.read_text().split()))
        names.unlink()
    for name in found:
        # made by another module as it is imported
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for more in ([], ["--json"], ["--html", folder / "warm.html"]):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            verb("explain", FIXTURE, "--target", "host", *more)()
    (folder / "warm.html").unlink()
    gc.collect()
    # or a child's collector writes to every page that it shares with this process
    gc.freeze()


def _named(call: Call, names: Path) -> int:
    """Run a call, and write the names of all modules to a file."""
    try:
        return call()
    finally:
        names.write_text("\n".join(m for m in sys.modules if not m.startswith("__")))


def verb(*args: str | Path) -> Call:
    """Return the call of a command line of edgec."""
    from edgec.cli.main import run_verb

    return lambda: run_verb([str(a) for a in args])


def guarded(call: Callable[[], object]) -> Call:
    """Return a call that ends like a verb: with the exit code of edgec's errors."""
    from edgec.errors import EdgecError

    def run() -> int:
        try:
            call()
        except EdgecError as e:
            print(e)
            return e.exit_code
        return 0

    return run


def run(call: Call, folder: Path, limits: Limits = LIMITS) -> Verdict:
    """Run a call in a child with this working folder, and return how it ends.

    The child has a temporary folder of its own, which is looked at and removed.
    """
    tmp = Path(tempfile.mkdtemp(prefix="case-", dir=folder))
    said = tmp.with_suffix(".txt")
    start = time.monotonic()
    pid = os.fork()
    if pid == 0:
        _child(call, folder, tmp, said, limits)
    status = _wait(pid, start + limits.seconds)
    seconds = time.monotonic() - start
    text = said.read_bytes()[:_SAID].decode(errors="replace")
    left = sorted(p.name for p in tmp.iterdir())
    said.unlink()
    bugs = "".join(p.read_text(errors="replace") for p in tmp.glob("edgec-bug-*"))
    shutil.rmtree(tmp, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    return Verdict(
        _fault(code, text, left),
        code if code is not None and code >= 0 else None,
        seconds,
        bugs + text,
    )


def _fault(code: int | None, text: str, left: Sequence[str]) -> str:
    if code is None:
        return "time"
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    if code not in GOOD:
        return f"exit {code}"
    if _TRACEBACK in text:
        return "traceback"
    if "Warning:" in text:
        return "warning"
    if found := [c for c in text if not c.isprintable() and c != "\n"]:
        return f"control character {found[0]!r}"
    return f"left {', '.join(left)}" if left else ""


def _wait(pid: int, until: float) -> int | None:
    """Return the child's status; None if it and what it started had to be ended."""
    descriptor = os.pidfd_open(pid)
    try:
        done, _, _ = select.select(
            [descriptor], [], [], max(0.0, until - time.monotonic())
        )
        if not done:
            # a child that hangs at its very start has no process group yet
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        return status if done else None
    finally:
        os.close(descriptor)


def _child(call: Call, folder: Path, tmp: Path, said: Path, limits: Limits) -> None:
    """Run the call in the child, and end it."""
    code = 70
    try:
        os.setsid()
        for stream, flags, path in (
            (0, os.O_RDONLY, os.devnull),
            (1, os.O_WRONLY | os.O_CREAT, said),
        ):
            os.dup2(os.open(path, flags, 0o600), stream)
        os.dup2(1, 2)
        sys.stderr = os.fdopen(1, "w", errors="backslashreplace")
        sys.stdout = sys.stderr  # also where a test runner has its own
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(tmp)
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory, limits.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (int(limits.seconds) + 5,) * 2)
        sys.argv[0] = "edgec"
        code = call()
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
