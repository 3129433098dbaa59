"""docs/c-api.md: its examples are built as they stand, by CMake and by make, and give
what the bundle gives.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import Bundle, Session
from edgec_runtime.device_end.bundles import machine_target

import edgec
from tests import builds

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "fixtures" / "digits"
PAGE = ROOT / "docs" / "c-api.md"

pytestmark = [pytest.mark.slow, pytest.mark.cc]


def examples() -> dict[str, str]:
    """The page's files by name."""
    found = re.findall(
        r'^```\w+ title="(.+?)"\n(.*?)^```$', PAGE.read_text(), re.M | re.S
    )
    return dict(found)


@pytest.fixture
def app(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder as the page has it: the examples, the bundle's files in model/, an input
    and what the bundle says.
    """
    board = "pi4" if request.node.get_closest_marker("arm") else "host"
    made = (
        builds.once(f"c-api {board}", lambda to: _bundle(board, to / "d.edgec"))
        / "d.edgec"
    )
    for name, text in examples().items():
        (tmp_path / name).write_text(text)
    with zipfile.ZipFile(made) as z:
        z.extractall(
            tmp_path / "model", [n for n in z.namelist() if n.startswith("src/")]
        )
    x = np.load(DIGITS / "digits_test.npz")["x"][:1]
    with Bundle.open(made) as bundle, Session(bundle) as session:
        (info,) = session.inputs
        session.prepare({info.name: x})[info.name].tofile(tmp_path / "x.raw")
        (want,) = session.run({info.name: x}).values()
        want.tofile(tmp_path / "want.raw")
        for target, path in bundle.manifest.weights.items():
            (tmp_path / f"weights-{target}.bin").write_bytes(bundle.read(path))
    return tmp_path


def _bundle(board: str, path: Path) -> None:
    also = ["armv7"] if board == "pi4" else []
    calibrate = DIGITS / "digits_calibration.npz"
    edgec.compile(
        DIGITS / "digits.onnx",
        board,
        path,
        also=also,
        calibrate=calibrate,
        quantize="fast",
    )


def run(folder: Path, command: str) -> str:
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "warning" not in done.stderr.lower()
    return done.stdout


def test_make(app: Path) -> None:
    """On this machine; `make` takes the options of a project of its own."""
    run(app, f"make app CC=gcc CFLAGS=-Werror MODEL_TARGET={machine_target()}")
    run(app, f"./app weights-{machine_target()}.bin x.raw y.raw")
    assert (app / "y.raw").read_bytes() == (app / "want.raw").read_bytes()


@pytest.mark.arm
@pytest.mark.parametrize("target", ["linux-aarch64", "linux-armv7"])
def test_make_for_the_board(app: Path, target: str) -> None:
    """With Debian's cross compiler, and run as on the board."""
    prefix = {
        "linux-aarch64": "aarch64-linux-gnu",
        "linux-armv7": "arm-linux-gnueabihf",
    }[target]
    if not shutil.which(f"{prefix}-gcc"):
        pytest.skip(f"no {prefix}-gcc: install gcc-{prefix}")
    run(app, f"make app CC={prefix}-gcc LDFLAGS=-static MODEL_TARGET={target}")
    qemu = {
        "linux-aarch64": "qemu-aarch64 -cpu cortex-a76",
        "linux-armv7": "qemu-arm -cpu max",
    }[target]
    run(app, f"{qemu} ./app weights-{target}.bin x.raw y.raw")
    assert (app / "y.raw").read_bytes() == (app / "want.raw").read_bytes()


def test_cmake_in_c_and_in_cxx(app: Path) -> None:
    if not shutil.which("cmake"):
        pytest.skip("no cmake: install cmake")
    strict = (
        "-DCMAKE_C_FLAGS=-Werror -DCMAKE_CXX_FLAGS=-Werror -DCMAKE_BUILD_TYPE=Debug"
    )
    run(app, f"cmake -S . -B build -DMODEL_TARGET={machine_target()} {strict}")
    run(app, "cmake --build build")
    run(app, f"build/app weights-{machine_target()}.bin x.raw y.raw")
    assert (app / "y.raw").read_bytes() == (app / "want.raw").read_bytes()
    assert run(app, f"build/app_cxx weights-{machine_target()}.bin").startswith(
        "digits: "
    )


def test_a_segment_with_too_many_tensors_is_an_error(app: Path) -> None:
    """And what a segment returns is passed on."""
    (app / "many.c").write_text(
        """#include "ek_model.h"
static int five(void *a, const void *w, const void *const *in, void *const *out) {
    return (void)a, (void)w, (void)in, (void)out, 5;
}
static const int none[EK_MAX_PORTS + 1];
static const ek_tensor tensor = {"x", "|i1", 0, {0}, 1, NULL};
int main(void) {
    ek_segment s = {.n_inputs = 1, .n_outputs = EK_MAX_PORTS, .inputs = none, .outputs = none, .run = five};
    ek_model m = {.n_tensors = 1, .tensors = &tensor, .n_segments = 1, .segments = &s};
    if (ek_infer(&m, NULL) != 5) return 1;
    s.n_outputs++;
    return ek_infer(&m, NULL) != EK_TOO_MANY_PORTS;
}
"""
    )
    run(app, "gcc -std=c11 -Wall -Wextra -Werror -Imodel/src many.c -o many")
    run(app, "./many")


def _compiled(model: Path, path: Path) -> None:
    edgec.compile(model, "pi3", path, also=["armv7"])


def _array(name: str, data: bytes) -> str:
    return (
        f"static const _Alignas(64) unsigned char {name}[] = "
        f"{{{','.join(map(str, data))}}};\n"
    )


BARE = """#include "data.h"
#include "ek_model.h"
#include <stdio.h>
#include <string.h>
int main(void)
{
    const ek_model *m = &edgec_model;
    const ek_tensor *x = &m->tensors[m->inputs[0]], *y = &m->tensors[m->outputs[0]];
    if (x->bytes != sizeof x_raw || y->bytes != sizeof want_raw) return 2;
    memcpy(x->data, x_raw, sizeof x_raw);
    int code = ek_infer(m, weights);
    if (code) return 3;
    printf("%s\\n", memcmp(y->data, want_raw, sizeof want_raw) ? "differs" : "equal");
    return 0;
}
"""


@pytest.mark.shared
@pytest.mark.parametrize("core", ["m7", "m55"])
@pytest.mark.parametrize("model", ["resnet8_i8", "vww96_i8"])
def test_on_a_bare_cortex_m(
    shared: Path, tmp_path: Path, model: str, core: str
) -> None:
    """The plain C for 32 bits, weights in flash: what TFLite's reference kernels give,
    bit for bit.
    """
    for program in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if not shutil.which(program):
            pytest.skip(f"no {program}: {shared / 'armlab' / 'setup.sh'} mcu")
    file = shared / "models" / model / f"{model}.tflite"
    made = (
        builds.once(f"c-api {model}", lambda to: _compiled(file, to / "m.edgec"))
        / "m.edgec"
    )
    with zipfile.ZipFile(made) as z:
        z.extractall(tmp_path, [n for n in z.namelist() if n.startswith("src/")])
    with np.load(file.with_name("ref.npz")) as ref:
        x = ref["in0_0"]
        want = ref["kref0_0"]
    with Bundle.open(made) as bundle:
        weights = bundle.read(bundle.manifest.weights["linux-armv7"])
    data = (("x_raw", x.tobytes()), ("want_raw", want.tobytes()), ("weights", weights))
    (tmp_path / "data.h").write_text(
        "".join(_array(name, content) for name, content in data)
    )
    (tmp_path / "app.c").write_text(BARE)
    sources = " ".join(map(str, sorted((tmp_path / "src" / "linux-armv7").glob("*.c"))))
    said = run(
        tmp_path,
        f"{shared}/armlab/run-mcu {core} app.c {sources} -- -std=c11 -DEK_PROGRAM "
        f"-I{tmp_path}/src",
    )
    assert said == "equal\n"
