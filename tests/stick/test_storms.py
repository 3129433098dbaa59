"""A sample of the storms of storms.py; `make stick-storms` tries 200 of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgec_devices.stick import Stick, StickOptions

from tests.stick import storms
from tests.stick.plugged import environment
from tests.stick.test_stick_program import unpack

pytestmark = [pytest.mark.cc, pytest.mark.shared, pytest.mark.slow]


@pytest.fixture(scope="module")
def bundle() -> storms.Bundle:
    return storms.bundle()


def seeds(request: pytest.FixtureRequest, sample: int) -> range:
    """Those of the storms: all with --sweep."""
    return range(200 if request.config.getoption("--sweep") else sample)


@pytest.mark.timeout(3600)
def test_a_session(
    bundle: storms.Bundle, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    some = seeds(request, 4)
    with storms.used(tmp_path, bundle) as (stick, process):
        count, lost = storms.session_storms(process, stick, bundle, some)
    print(f"{count} inferences, {lost} times unplugged")
    assert lost >= len(some)


@pytest.mark.timeout(3600)
def test_a_webcam(
    bundle: storms.Bundle, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    some = seeds(request, 4)
    stop = tmp_path / "stop"
    with storms.used(tmp_path, bundle) as (stick, process):
        count, lost = storms.webcam_storms(process, stick, bundle, some, stop)
    print(f"{count} pictures, {lost} times unplugged")
    assert lost >= len(some)


@pytest.mark.timeout(3600)
def test_a_program(
    bundle: storms.Bundle, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """What a service of the program runs is this, too."""
    some = seeds(request, 2)
    (tmp_path / "program").mkdir()
    program = unpack(bundle.path, tmp_path / "program")
    count, lost = storms.program_storms(program, bundle, some, tmp_path)
    print(f"{count} inferences, {lost} times unplugged")
    assert lost >= len(some)


@pytest.mark.timeout(3600)
def test_a_service(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The server of detections, to which pictures come by HTTP."""
    some = seeds(request, 4)
    made = storms.detector()
    with (
        Stick.serve(made.book, StickOptions(firmware=True)) as stick,
        environment(stick, tmp_path, **storms.FIRMWARE) as variables,
        storms.served(made, variables) as address,
    ):
        count, lost = storms.service_storms(address, stick, made, some)
    print(f"{count} pictures, {lost} times unplugged")
    assert lost >= len(some)
