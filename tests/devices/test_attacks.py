"""A sample of `make attacks`: refused, and, with the check taken out that refuses it,
not refused.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.devices.attack_cases import cases
from tests.devices.attack_files import Files
from tests.devices.attacks import CHECKS, run

pytest.importorskip("cryptography")
pytestmark = pytest.mark.cc


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("files"))


def test_there_are_many_and_each_check_refuses_one() -> None:
    found = cases()
    assert len(found) >= 140
    assert {check for c in found for check in c.checks} == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("mutate", [False, True], ids=["refused", "without its check"])
def test_a_sample(tmp_path: Path, files: Files, mutate: bool) -> None:
    """One of each check, and some more; of a third, that it is the check which refuses
    them.
    """
    found = cases()
    random.Random(7).shuffle(found)
    firsts = {c.checks: c for c in reversed(found)}
    sample = [*firsts.values(), *found[:10]]
    for case, said, good in run(
        sample[::3] if mutate else sample, files, tmp_path, mutate
    ):
        assert good, f"{case.name}: {said}"
