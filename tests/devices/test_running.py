"""What the device end starts ends with it: children, output without end, a host that is
gone.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.flash import flash
from edgec_devices.protocol import Connection
from edgec_devices.stream import stream_for
from edgec_runtime.device_end import programs
from edgec_runtime.device_end.programs import TooMuch, run

from tests import builds
from tests.devices.attack_files import APP, bundle


def gone(pid: int) -> bool:
    """Whether a process ends within a minute."""
    for _ in range(1200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def test_output_and_status() -> None:
    done = run(shell("echo out; echo err >&2; exit 3"), timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert len(run(shell("head -c 3000000 /dev/zero"), timeout=60).stdout) == 3_000_000


def test_a_child_that_holds_the_output_open_ends_with_the_program() -> None:
    began = time.monotonic()
    done = run(shell("sleep 1000 & echo $!"), timeout=500)
    assert time.monotonic() - began < 100
    assert gone(int(done.stdout))


def test_a_program_that_hangs_ends_with_its_children() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as e:
        run(shell("sleep 1000 & echo $!; wait"), timeout=2)
    assert gone(int(e.value.output))


def test_output_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(TooMuch, match="wrote more than 1 MB"):
        run(shell("cat /dev/zero"), timeout=500)


def test_a_host_that_is_gone() -> None:
    source, sink = os.pipe()
    holder = subprocess.Popen(["sleep", "1"], pass_fds=(sink,))
    os.close(sink)
    with pytest.raises(BrokenPipeError):
        run(shell("sleep 1000"), timeout=500, listen=source)
    os.close(source)
    holder.wait()


@pytest.mark.cc
@pytest.mark.parametrize(
    "end",
    [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, None],
    ids=["told to end", "hung up", "killed", "host gone"],
)
def test_the_device_end_ends_its_program(
    tmp_path: Path, root: Path, end: signal.Signals | None
) -> None:
    """Told to, hung up on, killed, or because nobody listens any more; the program has
    a child.

    Before it says its numbers it writes more than a pipe holds. So the device end reads
    by then, and has told its guard which program to end.
    """
    source = tmp_path / "hang.c"
    source.write_text(
        f"""
        #include <stdio.h>
        #include <unistd.h>
        static char more_than_a_pipe[1 << 20];
        int main() {{
            int child = fork();
            if (child) {{
                fwrite(more_than_a_pipe, 1, sizeof more_than_a_pipe, stdout);
                FILE *file = fopen("{tmp_path}/pid", "w");
                fprintf(file, "%d %d", getpid(), child);
                fclose(file);
            }}
            for (;;) pause();
        }}
        """
    )
    builds.program(
        [*builds.ZIG, "-target", f"{platform.machine()}-linux-musl"],
        [source],
        tmp_path / "hang",
    )
    path = bundle(tmp_path / "1.edgec", (tmp_path / "hang").read_bytes(), "hang")
    assert flash(path, ["local:"])[0].ok
    connection = Connection(stream_for("local:"))
    connection._send(
        "run", b"", {"app": APP, "limit": 300.0, "options": ["--runs", "1"]}
    )
    connection._turn(time.monotonic())
    for _ in range(400):
        connection._turn(time.monotonic() + 0.05)
        if (tmp_path / "pid").exists() and len(
            (tmp_path / "pid").read_text().split()
        ) == 2:
            break
    pids = [int(w) for w in (tmp_path / "pid").read_text().split()]
    stream = connection.stream
    process = stream._process  # type: ignore[attr-defined]
    if end is None:
        stream.close()
    else:
        process.send_signal(end)
        process.wait(60)
        stream.close()
    assert all(gone(pid) for pid in pids)


def test_told_to_end_while_it_starts_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the program's start and the moment it is known."""
    started: list[subprocess.Popen[bytes]] = []

    class Told(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            started.append(self)
            os.kill(os.getpid(), signal.SIGTERM)

    def end(*_: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("edgec_runtime.device_end.programs.subprocess.Popen", Told)
    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit):
            run(["sleep", "60"], timeout=60)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(started) == 2
    assert all(gone(p.pid) for p in started)
