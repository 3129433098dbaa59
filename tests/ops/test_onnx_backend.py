"""A seeded sample of ONNX's own node tests (`make onnx-sweep` has all): refused by
name, or right; never a bug.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.ops.onnx_backend import TYPES, Case, cases, compiled

pytestmark = pytest.mark.slow

KNOWN_WRONG = (
    "test_flatten_negative_axis",
    "test_spacetodepth_crd",
    "test_training_dropout",
)
"""Cases that had wrong results and no error once."""


@pytest.fixture(scope="module")
def everything() -> tuple[Case, ...]:
    """Loading them takes a few seconds."""
    return cases()


def test_outputs_are_right_or_refused(everything: tuple[Case, ...]) -> None:
    chosen = Random(0).sample(everything, 500)
    chosen += [case for case in everything if case.name.startswith(KNOWN_WRONG)]
    outcomes = {str(case): case.outcome() for case in chosen}
    assert not {
        name: text for name, text in outcomes.items() if text.startswith("wrong")
    }
    equal = [name for name, text in outcomes.items() if text == "equal"]
    assert len(equal) > 100
    assert {
        "test_flatten_negative_axis1-run_time",
        "test_spacetodepth_crd_mode_example-run_time",
    } <= set(equal)
    assert outcomes["test_training_dropout-first"].startswith(
        "refused: Dropout: training_mode"
    )


def test_every_type_compiles_or_is_refused(everything: tuple[Case, ...]) -> None:
    chosen = Random(0).sample(
        [c for c in everything if c.known and "expanded" not in c.name], 250
    )
    random = Random(1)
    outcomes = [compiled(case.retyped(random.choice(TYPES))) for case in chosen]
    assert outcomes.count("compiled") > 20
