"""Every node test of the onnx package through edgec: no result is wrong, nothing ends
as a bug of edgec.

python -m benchmarks.onnx_sweep        # make onnx-sweep
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.ops.onnx_backend import TYPES, cases, compiled


def main() -> int:
    """Print the counts and what is not as it must be; 1 if there is any."""
    outcomes: Counter[str] = Counter()
    bad: list[str] = []
    for case in cases():
        outcome = case.outcome()
        outcomes[outcome.split(":")[0]] += 1
        if outcome.startswith("wrong"):
            bad.append(f"{case}: {outcome}")
    print(
        f"outputs of {len(cases())} models: "
        + ", ".join(f"{n} {what}" for what, n in outcomes.most_common())
    )
    compiles: Counter[str] = Counter()
    for case in cases():
        if not case.model.graph.input or "expanded" in case.name:
            continue
        for name in TYPES:
            try:
                outcome = compiled(case.retyped(name), syntax=True)
            except Exception as e:
                outcome = "bug"
                bad.append(f"{case} as {name}: {type(e).__name__}: {e}")
            compiles[outcome.split(":")[0]] += 1
    print(
        f"C of {compiles.total()} models: "
        + ", ".join(f"{n} {what}" for what, n in compiles.most_common())
    )
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
