"""The noise that a bundle's program makes without inputs is that of the session, in
every element type.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import TensorInfo
from edgec_runtime.bundle.manifest import DTYPES
from edgec_runtime.model.inputs import _noise

from edgec.emit.c import CSRC

_PROGRAM = """
#include "program_io.h"
int main(void) {{
    static unsigned char data[{nbytes}];
    ek_tensor t = {{.name = "x", .dtype = "{dtype}", .rank = 1, .shape = {{{n}}}}};
    t.bytes = {nbytes}, t.data = data;
    fill_noise(&t, 3);
    return fwrite(data, 1, sizeof data, stdout) == sizeof data ? 0 : 1;
}}
"""


@pytest.mark.cc
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_program_makes_the_noise_of_the_session(tmp_path: Path, dtype: str) -> None:
    info = TensorInfo("x", (37,), dtype)
    text = _PROGRAM.format(nbytes=info.nbytes, dtype=dtype, n=37)
    (tmp_path / "noise.c").write_text(text)
    command = [
        "gcc",
        "-std=c11",
        "-w",
        f"-I{CSRC}",
        str(tmp_path / "noise.c"),
        "-o",
        str(tmp_path / "noise"),
        "-lm",
    ]
    subprocess.run(command, check=True)
    made = subprocess.run(
        [str(tmp_path / "noise")], check=True, stdout=subprocess.PIPE
    ).stdout
    want = _noise(info, 3)
    assert made == want.tobytes()
    assert len(np.unique(want)) > 1
    assert np.isfinite(want.astype(np.float64)).all()
