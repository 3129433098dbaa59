"""Many devices are asked by many threads: the device end is made by one for all.

Found by make fuzz-readers.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from edgec_devices import stream
from edgec_devices.minify import bare


def test_one_thread_makes_the_device_end(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = 0
    most = 0

    def counted(text: str) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.002)
        inside -= 1
        return bare(text)

    monkeypatch.setattr(stream, "bare", counted)
    stream._device_end.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(stream.device_end) for _ in range(8)]
    assert most == 1
    assert len({m.result()[1] for m in made}) == 1
