"""The exported program for cameras on the whole emulated machine, which has no edgec: its
V4L2 with vivid, its page, and a camera that is unplugged.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

import pytest
from edgec_devices.machine import Machine

from tests.conftest import whole_machine
from tests.exporting.camera_apps import shapes_of_a_board

pytestmark = [pytest.mark.pi, pytest.mark.slow]
PATIENCE = 120.0
"""Seconds, of a machine that is emulated beside other tests."""
RSS_MB = 30
PART = 90_000
"""Characters of a command, of which the system takes 128 KB."""

ASKS = """
import json, time, urllib.request
def get(path):
    for _ in range(300):
        try:
            return urllib.request.urlopen("http://127.0.0.1:8080/" + path, timeout=60).read()
        except OSError:
            time.sleep(0.2)
result = json.loads(get("result"))
picture = get("picture.jpg")
print(json.dumps([sorted(result), picture[:2].hex(), len(picture)]))
"""


@pytest.fixture(scope="module")
def machine(
    release: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    app = shapes_of_a_board()
    with whole_machine(
        tmp_path_factory.mktemp("machine"), release, cameras=True
    ) as machine:
        machine.run(
            "sudo busybox modprobe vivid n_devs=1 node_types=0x1 && sudo udevadm settle",
            PATIENCE,
        )
        text = base64.b64encode(app.program.read_bytes()).decode()
        for start in range(0, len(text), PART):
            part = text[start : start + PART]
            machine.run(f"echo {part} | base64 -d >> /tmp/app", PATIENCE)
        machine.run("chmod +x /tmp/app")
        yield machine


def test_each_format_of_a_camera(machine: Machine) -> None:
    """Colour bars: the program finds something or nothing in them, frame by frame."""
    for fourcc in ("YUYV", "NV12", "YU12", "RGB3", "BGR3", "GREY"):
        words = f"--format 320x180:{fourcc} --count 3 2>/tmp/err"
        lines = machine.run(f"/tmp/app {words} || cat /tmp/err >&2", PATIENCE)
        rows = [json.loads(line) for line in lines.splitlines()]
        assert [row["frame"] for row in rows] == [1, 2, 3], fourcc
        assert all(isinstance(row["boxes"], list) for row in rows)
        print(fourcc, machine.run("cat /tmp/err").strip().replace("\n", "; "))


def test_its_page_and_a_camera_that_is_unplugged(machine: Machine) -> None:
    machine.run(
        "cd /tmp; sh -c './app --page 127.0.0.1:8080 >lines 2>err; echo $? >code' "
        ">/dev/null 2>&1 & for i in $(seq 300); do test -s lines && exit; sleep 0.2; done",
        PATIENCE,
    )
    print(machine.run("cat /tmp/err").strip())
    asked = machine.run(f"python3 - <<'END'\n{ASKS}\nEND", PATIENCE)
    keys, magic, size = json.loads(asked)
    assert keys == ["boxes", "frame", "ms"]
    assert magic == "ffd8"
    assert size > 1000
    status = machine.run("cat /proc/$(pgrep -x app)/status")
    (kib,) = map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))
    print(f"VmHWM {kib} kB")
    assert kib < RSS_MB * 1024

    driver = "/sys/bus/platform/drivers/vivid"
    machine.run(f"echo vivid.0 | sudo tee {driver}/unbind", PATIENCE)
    machine.run(
        "for i in $(seq 300); do test -s /tmp/code && exit; sleep 0.2; done; exit 1",
        PATIENCE,
    )
    assert machine.run("cat /tmp/code").strip() == "1"
    message = machine.run("cat /tmp/err")
    assert re.search(r"error: /dev/video0 (is gone|gave no frame)", message), message
    assert "hint: plug it in again" in message
