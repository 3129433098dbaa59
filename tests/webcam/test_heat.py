"""What the page says of the machine's temperature, and whether it is slowed down, on a
Pi with and without the file.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from edgec_runtime.device_end.vitals import Sensors
from edgec_runtime.webcam import server
from edgec_runtime.webcam.server import Heat

from tests.devices.test_vitals import ALARM, WORD, Machine, pi, with_vcgencmd  # noqa: F401


def _heat(machine: Machine) -> Heat:
    return Heat(Sensors(str(machine.root), machine.execute))


def test_files_tell(pi: Machine) -> None:  # noqa: F811
    heat = _heat(pi)
    assert heat.glance() == {"celsius": 48.212, "throttled": False}
    pi.write(WORD, "4")
    assert heat.glance()["throttled"] is True
    pi.write(WORD, "40000")  # since the boot, not now
    assert heat.glance()["throttled"] is False
    pi.write(ALARM, "1")
    assert heat.glance()["throttled"] is True
    assert pi.asked == []


def test_where_no_file_tells_the_firmware_is_asked_now_and_then(
    pi: Machine,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (pi.root / WORD).unlink()
    with_vcgencmd(pi, monkeypatch)
    pi.answers["get_throttled"] = b"throttled=0x2\n"
    heat = _heat(pi)
    assert [heat.glance()["throttled"] for _ in range(5)] == [True] * 5
    assert pi.asked == ["get_throttled"]
    monkeypatch.setattr(server, "TOOL_EVERY_S", 0.0)
    pi.answers["get_throttled"] = b"throttled=0x20000\n"
    assert heat.glance()["throttled"] is False


def test_nothing_tells(tmp_path: Path) -> None:
    assert _heat(Machine(tmp_path / "none", {})).glance() == {
        "celsius": None,
        "throttled": None,
    }
