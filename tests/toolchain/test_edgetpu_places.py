"""Where edgetpu_compiler runs: on the PATH, by its path, over ssh (a double of ssh), by
a hand-off folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgec.emit.tflite import write_tflite
from edgec.errors import InputError, ToolError
from edgec.ops.pool import MaxPool2D
from edgec.toolchain.edgetpu import handoff
from edgec.toolchain.edgetpu.driver import compile_segments
from edgec.toolchain.edgetpu.handoff import HandOff, Pending
from edgec.toolchain.edgetpu.runner_option import runner_for
from edgec.toolchain.edgetpu.runners import LocalRunner
from edgec.toolchain.edgetpu.ssh import SshRunner
from tests.partition.test_legalize import pool
from tests.toolchain.stand_in_edgetpu_compiler import Rules, StandInEdgetpuCompiler

MODEL = write_tflite(pool(MaxPool2D((2, 2), (2, 2)), 0))
TWO = {"seg1": MODEL, "seg3": MODEL}


@pytest.fixture
def double(tmp_path: Path) -> StandInEdgetpuCompiler:
    return StandInEdgetpuCompiler(tmp_path / "bin")


class StandInSsh:
    """An executable called ssh, first on the PATH, that runs the command here, in a
    home and with a PATH of its own.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.says("")
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def says(
        self,
        text: str,
        code: int | None = None,
        before: str = "",
        path: Path | None = None,
    ) -> None:
        """code: fail at once with this text on stderr. before: what a login script
        prints. path: of programs there.
        """
        end = "" if code is None else f"printf '%s\\n' {text!r} >&2; exit {code}\n"
        there = f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin"
        script = (
            f'#!/bin/sh\nprintf "%s\\n" "$@" >{self.folder}/arguments\n{end}printf '
            f'"%s" {before!r}\n'
            f"for command; do :; done\ncd {self.home} && TMPDIR={self.home} "
            f'PATH={there} exec sh -c "$command"\n'
        )
        program = self.folder / "ssh"
        program.write_text(script)
        program.chmod(0o755)

    def arguments(self) -> list[str]:
        return (self.folder / "arguments").read_text().splitlines()


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInSsh:
    return StandInSsh(tmp_path / "ssh", monkeypatch)


def test_the_path_is_the_default(
    double: StandInEdgetpuCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert runner_for(None, {}) is None
    monkeypatch.setenv("PATH", str(double.folder), prepend=os.pathsep)
    runner = runner_for(None, {})
    assert isinstance(runner, LocalRunner)
    monkeypatch.setenv("PATH", f"{double.folder}:/usr/bin:/bin")
    results = compile_segments(TWO, runner)
    assert all(r.data is not None for r in results.values())
    assert double.calls() == [["seg1", "seg3"]]
    assert runner_for("none", {}) is None


def test_a_path_that_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a program"):
        runner_for(str(tmp_path / "absent"), {})
    (tmp_path / "text").write_text("x")
    with pytest.raises(InputError, match="is not executable"):
        runner_for(str(tmp_path / "text"), {})


def test_a_program_that_is_not_for_this_machine(tmp_path: Path) -> None:
    program = tmp_path / "edgetpu_compiler"
    program.write_bytes(b"\x7fELF of another world")
    program.chmod(0o755)
    with pytest.raises(ToolError, match=r"cannot run .*edgetpu_compiler"):
        compile_segments({"seg1": MODEL}, LocalRunner(str(program)))


def test_a_program_that_only_fails(tmp_path: Path) -> None:
    program = tmp_path / "edgetpu_compiler"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    (result,) = compile_segments({"seg1": MODEL}, LocalRunner(str(program))).values()
    assert "it ended with exit code 3" in (result.problem or "")


# ---- ssh
# --------------------------------------------------------------------------------------


def test_over_ssh(ssh: StandInSsh, double: StandInEdgetpuCompiler) -> None:
    ssh.says("", path=double.folder)
    results = compile_segments(TWO, SshRunner("ssh://me@there:2222"))
    assert all(r.data is not None for r in results.values())
    assert double.calls() == [["seg1", "seg3"]]
    arguments = ssh.arguments()
    assert arguments[arguments.index("-p") + 1] == "2222"
    assert "BatchMode=yes" in arguments
    assert "me@there" in arguments
    assert list(ssh.home.iterdir()) == []  # nothing stays there


def test_over_ssh_with_a_path_and_a_chatty_login(
    ssh: StandInSsh, double: StandInEdgetpuCompiler
) -> None:
    ssh.says("", before="Welcome to there!\n0 updates\n")
    (result,) = compile_segments(
        {"seg1": MODEL}, SshRunner(f"ssh://there{double.program}")
    ).values()
    assert result.data is not None


def test_a_failure_over_ssh_is_the_compilers(
    ssh: StandInSsh, double: StandInEdgetpuCompiler
) -> None:
    double.set(Rules(breaks_above=0))
    ssh.says("", path=double.folder)
    (result,) = compile_segments({"seg1": MODEL}, SshRunner("ssh://there")).values()
    assert "Internal compiler error" in (result.problem or "")
    assert list(ssh.home.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "Host key verification failed.",
            "connect once by hand to accept its key: ssh me@there",
        ),
        (
            "@@@ REMOTE HOST IDENTIFICATION HAS CHANGED! @@@\nHost key verification "
            "failed.",
            "ssh-keygen -R there",
        ),
        ("ssh: connect to host there port 22: Connection refused", "ssh://there:PORT"),
        ("me@there: Permission denied (publickey,password).", "ssh-copy-id me@there"),
        (
            "ssh: Could not resolve hostname there: Name or service not known",
            "check the name",
        ),
        ("ssh: connect to host there port 22: Connection timed out", "reachable"),
        ("something else", "try: ssh me@there"),
    ],
)
def test_what_ssh_says_becomes_a_hint(ssh: StandInSsh, text: str, hint: str) -> None:
    ssh.says(text, code=255)
    with pytest.raises(ToolError) as e:
        compile_segments({"seg1": MODEL}, SshRunner("ssh://me@there"))
    assert text.splitlines()[-1] in e.value.what
    assert hint in (e.value.hint or "")
    assert e.value.at == "ssh://me@there"


def test_no_program_over_there(ssh: StandInSsh) -> None:
    with pytest.raises(ToolError, match="there is no edgetpu_compiler on there") as e:
        compile_segments({"seg1": MODEL}, SshRunner("ssh://there"))
    assert "ssh://there/path/of/edgetpu_compiler" in (e.value.hint or "")


def test_a_hanging_machine_is_given_up(
    ssh: StandInSsh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgec.toolchain.edgetpu.ssh.GRACE_S", 0.0)
    monkeypatch.setattr("edgec.toolchain.edgetpu.ssh.CONNECT_S", 0)
    (ssh.folder / "ssh").write_text("#!/bin/sh\nsleep 60\n")
    before = time.monotonic()
    with pytest.raises(ToolError, match=r"no result after 0\.3 s"):
        compile_segments({"seg1": MODEL}, SshRunner("ssh://there", timeout=0.3))
    assert time.monotonic() - before < 20


def test_a_compiler_that_hangs_over_there_is_stopped_there(
    ssh: StandInSsh, double: StandInEdgetpuCompiler
) -> None:
    double.set(Rules(hangs=60))
    ssh.says("", path=double.folder)
    (result,) = compile_segments(
        {"seg1": MODEL}, SshRunner("ssh://there", timeout=1)
    ).values()
    assert "no result after 1 s" in (result.problem or "")
    assert list(ssh.home.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    ["ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://h:port", "ssh://-x@h"],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError, match="is not an address"):
        runner_for(url, {})


# ---- the folder
# --------------------------------------------------------------------------------------


def compile_there(
    folder: Path, double: StandInEdgetpuCompiler
) -> subprocess.CompletedProcess[str]:
    """The person runs compile.sh where the program is."""
    path = f"{double.folder}:/usr/bin:/bin"
    return subprocess.run(
        ["sh", folder / "compile.sh"],
        env={"PATH": path},
        capture_output=True,
        text=True,
        cwd="/",
    )


def asked_folder(folder: Path) -> Path:
    with pytest.raises(Pending, match="has to run by hand"):
        compile_segments(TWO, HandOff.new(folder, {"how": "to go on"}))
    return folder


def test_a_folder_goes_there_and_comes_back(
    tmp_path: Path, double: StandInEdgetpuCompiler
) -> None:
    folder = asked_folder(tmp_path / "out")
    assert {p.name for p in folder.iterdir()} >= {
        "README.txt",
        "compile.sh",
        "handoff.json",
        "call-01",
    }
    with pytest.raises(Pending, match="has not run on call-01 yet"):
        compile_segments(TWO, HandOff.open(folder))
    done = compile_there(folder, double)
    assert done.returncode == 0
    assert "edgec finish out" in done.stdout
    # each alone is not needed, since together worked
    assert double.calls() == [["seg1", "seg3"]]
    hand = HandOff.open(folder)
    assert hand.recipe == {"how": "to go on"}
    results = compile_segments(TWO, hand)
    assert all(
        r.data is not None and r.log.version == "16.0.384591198"
        for r in results.values()
    )


def test_alone_where_together_failed_without_another_round(
    tmp_path: Path, double: StandInEdgetpuCompiler
) -> None:
    double.set(Rules(together=False))
    folder = asked_folder(tmp_path / "out")
    compile_there(folder, double)
    hand = HandOff.open(folder)
    assert not any(r.data for r in compile_segments(TWO, hand).values())
    for name, data in TWO.items():
        assert compile_segments({name: data}, hand)[name].data is not None
    assert double.calls() == [["seg1", "seg3"], ["seg1"], ["seg3"]]


def test_the_script_runs_only_what_is_new(
    tmp_path: Path, double: StandInEdgetpuCompiler
) -> None:
    folder = asked_folder(tmp_path / "out")
    compile_there(folder, double)
    with pytest.raises(Pending, match="has to run once more"):
        compile_segments({"other": MODEL}, HandOff.open(folder))
    compile_there(folder, double)
    assert double.calls() == [["seg1", "seg3"], ["other"]]
    assert (
        compile_segments({"other": MODEL}, HandOff.open(folder))["other"].data
        is not None
    )


def test_the_script_says_what_it_misses(
    tmp_path: Path, double: StandInEdgetpuCompiler
) -> None:
    folder = asked_folder(tmp_path / "out")
    done = subprocess.run(
        ["sh", folder / "compile.sh"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 127
    assert "there is no edgetpu_compiler here" in done.stderr
    env = {"PATH": "/usr/bin:/bin", "EDGETPU_COMPILER": "bin/edgetpu_compiler"}
    done = subprocess.run(
        ["sh", "out/compile.sh"], env=env, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0
    assert double.calls() == [["seg1", "seg3"]]


@pytest.mark.parametrize("change", ["model", "missing", "state", "json", "name"])
def test_a_folder_that_was_changed(
    tmp_path: Path, double: StandInEdgetpuCompiler, change: str
) -> None:
    folder = asked_folder(tmp_path / "out")
    state = folder / "handoff.json"
    if change == "model":
        (folder / "call-01" / "seg1.tflite").write_bytes(MODEL + b"x")
    elif change == "missing":
        (folder / "call-01" / "seg1.tflite").unlink()
    elif change == "state":
        state.write_text(state.read_text().replace("to go on", "to go off"))
    elif change == "json":
        state.write_text("{")
    else:
        data = json.loads(state.read_text())
        # by someone who knows how the hash is made
        data["calls"][0]["folder"] = "../../elsewhere"
        del data["sha256"]
        state.write_text(json.dumps({**data, "sha256": handoff._digest(data)}))
    with pytest.raises(InputError, match=r"changed|missing|damaged") as e:
        HandOff.open(folder)
    assert "compile again" in (e.value.hint or "")


def _terabyte(path: Path) -> None:
    with path.open("wb") as f:
        f.truncate(1 << 40)


@pytest.mark.parametrize("name", ["handoff.json", "call-01/seg1.tflite"])
@pytest.mark.parametrize("make", [os.mkfifo, _terabyte, Path.mkdir])
def test_a_folder_with_something_else_in_it(
    tmp_path: Path, name: str, make: Callable[[Path], object]
) -> None:
    folder = asked_folder(tmp_path / "out")
    (folder / name).unlink()
    make(folder / name)
    with pytest.raises(InputError, match=name):
        HandOff.open(folder)


@pytest.mark.parametrize("name", ["edgec.out", "seg1_edgetpu.tflite"])
def test_an_answer_without_end(
    tmp_path: Path, double: StandInEdgetpuCompiler, name: str
) -> None:
    folder = asked_folder(tmp_path / "out")
    compile_there(folder, double)
    _terabyte(folder / "call-01" / name)
    with pytest.raises(
        InputError, match=f"{name} cannot be read: it has 1099511627776 bytes"
    ):
        compile_segments(TWO, HandOff.open(folder))


def test_an_exit_code_that_is_no_text(
    tmp_path: Path, double: StandInEdgetpuCompiler
) -> None:
    folder = asked_folder(tmp_path / "out")
    compile_there(folder, double)
    (folder / "call-01" / "edgec.out").write_text("")
    (folder / "call-01" / "code").write_bytes(b"\xff\n")
    assert set(compile_segments(TWO, HandOff.open(folder))) == set(TWO)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a hand-off folder"):
        HandOff.open(tmp_path)
    (tmp_path / "mine").write_text("x")
    with pytest.raises(InputError, match="is not empty"):
        runner_for(f"folder:{tmp_path}", {})
    with pytest.raises(InputError, match="does not exist"):
        runner_for(f"folder:{tmp_path}/a/b", {})
