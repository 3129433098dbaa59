"""The driver of edgetpu_compiler, with a stand-in of that name on the PATH (the real one is not free software)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edgec.toolchain.edgetpu import CompiledSegment, compile_segments, find_compiler, parse_logs

HEAD = "Edge TPU Compiler version 16.0.384591198\nStarted a compilation timeout timer of 180 seconds.\n"
TAIL = "Compilation child process completed within timeout period.\nCompilation succeeded! \n"


def block(name: str, rows: list[tuple[str, int, str]]) -> str:
    """What the program prints of one compiled model with -s."""
    total = sum(n for _, n, _ in rows)
    on_cpu = sum(n for _, n, status in rows if status != "Mapped to Edge TPU")
    partly = (
        "\nModel successfully compiled but not all operations are supported by the Edge TPU. A percentage of the model "
        "will instead run on the CPU, which is slower.\n"
        f"Number of operations that will run on Edge TPU: {total - on_cpu}\n"
        f"Number of operations that will run on CPU: {on_cpu}\n"
    )
    table = "".join(f"{op:<31}{n:<11}{status}\n" for op, n, status in rows)
    return (
        f"Input model: /tmp/x/{name}.tflite\nInput size: 3.17MiB\nOutput model: {name}_edgetpu.tflite\n"
        "Output size: 4.18MiB\nOn-chip memory used for caching model parameters: 3.33MiB\n"
        "On-chip memory remaining for caching model parameters: 4.19MiB\n"
        "Off-chip memory used for streaming uncached model parameters: 64.00B\n"
        f"Number of Edge TPU subgraphs: 1\nTotal number of operations: {total}\nOperation log: {name}_edgetpu.log\n"
        + (partly if on_cpu else "")
        + f"\nOperator                       Count      Status\n\n{table}"
    )


WHOLE = [("CONV_2D", 35, "Mapped to Edge TPU"), ("ADD", 10, "Mapped to Edge TPU")]
PARTLY = [*WHOLE, ("RESHAPE", 2, "Operation is otherwise supported, but not mapped due to some unspecified limitation")]


class StandInEdgetpuCompiler:
    """A script called edgetpu_compiler, first on the PATH, that prints a given text and copies its inputs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def says(self, text: str, *, writes: bool = True, only_alone: bool = False, sleeps: float = 0) -> None:
        lines = [
            f"#!{sys.executable}",
            "import os, subprocess, sys, time",
            "args = sys.argv[1:]; assert args[:2] == ['-s', '-o'], args",
            "out, models = args[2], args[3:]",
            f"open({str(self.folder / 'calls')!r}, 'a').write(' '.join(map(os.path.basename, models)) + '\\n')",
            f"sleeps = {sleeps}",
            "if sleeps: subprocess.run(['sleep', str(sleeps)])",
            f"if {only_alone} and len(models) > 1: print('Internal compiler error. Aborting!'); sys.exit(1)",
            f"text = {text!r}",
            "for m in models:",
            "    target = os.path.join(out, os.path.basename(m)[:-7] + '_edgetpu.tflite')",
            f"    if {writes}: open(target, 'wb').write(b'C' + open(m, 'rb').read())",
            "print(text)",
        ]
        path = self.folder / "edgetpu_compiler"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o755)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInEdgetpuCompiler:
    return StandInEdgetpuCompiler(tmp_path, monkeypatch)


def only(result: dict[str, CompiledSegment]) -> CompiledSegment:
    (segment,) = result.values()
    return segment


def test_without_the_program_nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler() is None
    assert compile_segments({"seg1": b"model"}) == {}


def test_a_segment_that_maps_whole(stand_in: StandInEdgetpuCompiler) -> None:
    stand_in.says(HEAD + "\nModel compiled successfully in 542 ms.\n\n" + block("seg1", WHOLE) + TAIL)
    segment = only(compile_segments({"seg1": b"model"}))
    assert segment.data == b"Cmodel"
    assert segment.warnings == ()
    log = segment.log
    assert (log.version, log.tpu_ops, log.cpu_ops, log.subgraphs) == ("16.0.384591198", 45, 0, 1)
    assert log.cached_bytes == round(3.33 * (1 << 20))
    assert log.streamed_bytes == 64


def test_leftovers_on_the_cpu_are_a_warning(stand_in: StandInEdgetpuCompiler) -> None:
    stand_in.says(HEAD + block("seg1", PARTLY) + TAIL)
    segment = only(compile_segments({"seg1": b"model"}))
    assert segment.data is None
    (warning,) = segment.warnings
    assert warning.startswith("edgec expected all of seg1 on the Edge TPU")
    assert "2 x RESHAPE: Operation is otherwise supported" in warning


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            HEAD + "ERROR: Restored original execution plan after delegate application failure.\n"
            "Compilation failed: Compilation failed due to large activation tensors in model.\n"
            "Compilation child process completed within timeout period.\nCompilation failed! \n",
            "Compilation failed due to large activation tensors in model.",
        ),
        (
            "Edge TPU Compiler version 16.0.384591198\nERROR: Didn't find op for builtin opcode 'CONV_2D' version '6'. "
            "An older version of this builtin might be supported.\n\nERROR: Registration failed.\n\n"
            "Invalid model: seg1.tflite\nModel could not be parsed\n",
            "Didn't find op for builtin opcode 'CONV_2D' version '6'",
        ),
        (
            "Edge TPU Compiler version 15.0.340273435\n\nInternal compiler error. Aborting! \n",
            "Internal compiler error",
        ),
        ("", "it printed nothing"),
    ],
)
def test_a_failure_is_a_warning_with_its_reason(stand_in: StandInEdgetpuCompiler, text: str, reason: str) -> None:
    stand_in.says(text, writes=False)
    segment = only(compile_segments({"seg1": b"model"}))
    assert segment.data is None
    assert reason in segment.warnings[0]
    assert segment.log.failure is not None


def test_a_missing_output_is_a_warning(stand_in: StandInEdgetpuCompiler) -> None:
    stand_in.says(HEAD + block("seg1", WHOLE) + TAIL, writes=False)
    assert "wrote no file for seg1" in only(compile_segments({"seg1": b"model"})).warnings[0]


def test_it_is_stopped_with_its_children(stand_in: StandInEdgetpuCompiler) -> None:
    stand_in.says("", sleeps=60)
    segment = only(compile_segments({"seg1": b"model"}, timeout=1))
    assert "no result after 1 s" in segment.warnings[0]


def test_a_program_that_does_not_start(tmp_path: Path) -> None:
    segment = only(compile_segments({"seg1": b"model"}, str(tmp_path / "absent")))
    assert "cannot run" in segment.warnings[0]


def test_segments_are_compiled_together(stand_in: StandInEdgetpuCompiler) -> None:
    stand_in.says(
        HEAD + "Models compiled successfully in 2988 ms.\n" + block("seg1", WHOLE) + block("seg3", WHOLE) + TAIL
    )
    both = compile_segments({"seg1": b"one", "seg3": b"three"})
    assert {n: s.data for n, s in both.items()} == {"seg1": b"Cone", "seg3": b"Cthree"}
    assert stand_in.calls() == ["seg1.tflite seg3.tflite"]


def test_and_alone_where_together_fails(stand_in: StandInEdgetpuCompiler) -> None:
    stand_in.says(HEAD + block("seg1", WHOLE) + block("seg3", PARTLY) + TAIL, only_alone=True)
    both = compile_segments({"seg1": b"one", "seg3": b"three"})
    assert both["seg1"].data == b"Cone"
    assert both["seg3"].data is None
    assert stand_in.calls() == ["seg1.tflite seg3.tflite", "seg1.tflite", "seg3.tflite"]


def test_totals_without_a_table() -> None:
    (log,) = parse_logs("Input model: a.tflite\nTotal number of operations: 7\n").values()
    assert log.whole
    text = "Input model: a.tflite\nNumber of operations that will run on Edge TPU: 1\n"
    (log,) = parse_logs(text + "Number of operations that will run on CPU: 18\n").values()
    assert (log.tpu_ops, log.cpu_ops, log.whole) == (1, 18, False)
