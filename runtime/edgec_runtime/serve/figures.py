"""What a detector has done, in the text format of Prometheus.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import threading
from typing import Dict, Iterator

OUTCOMES = ("received", "answered", "dropped", "failed", "refused")
BOUNDS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Upper bounds of the histogram of latencies, in seconds."""


class Figures:
    """Counts and times.

    Attributes:
        received: pictures that came
        answered: pictures with an answer
        dropped: pictures for which newer ones left no place
        failed: pictures at which the network failed
        refused: requests that were not understood
    """

    def __init__(self) -> None:
        self.received = 0
        self.answered = 0
        self.dropped = 0
        self.failed = 0
        self.refused = 0
        self._inference_s = 0.0
        self._latency_s = 0.0
        self._buckets = [0] * len(BOUNDS_S)
        self._lock = threading.Lock()

    def add(self, inference_s: float, latency_s: float) -> None:
        """Add an answer: the time of its inference, and that since its arrival."""
        with self._lock:
            self.answered += 1
            self._inference_s += inference_s
            self._latency_s += latency_s
            for i, bound in enumerate(BOUNDS_S):
                self._buckets[i] += latency_s <= bound

    def counts(self) -> Dict[str, int]:
        """Return the counts by their names."""
        return {outcome: getattr(self, outcome) for outcome in OUTCOMES}

    @property
    def inference_ms(self) -> float:
        """The mean time of an inference in milliseconds; 0 before the first."""
        return 1e3 * self._inference_s / self.answered if self.answered else 0.0

    def text(self, waiting: int) -> str:
        """Return the figures for Prometheus.

        Args:
            waiting: the number of pictures that wait
        """
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines(waiting))

    def _lines(self, waiting: int) -> Iterator[str]:
        yield "# TYPE edgec_pictures_total counter"
        for outcome, count in self.counts().items():
            yield f'edgec_pictures_total{{outcome="{outcome}"}} {count}'
        yield "# TYPE edgec_waiting gauge"
        yield f"edgec_waiting {waiting}"
        yield "# TYPE edgec_inference_seconds summary"
        yield f"edgec_inference_seconds_sum {self._inference_s:.6f}"
        yield f"edgec_inference_seconds_count {self.answered}"
        yield "# TYPE edgec_latency_seconds histogram"
        for bound, count in zip(BOUNDS_S, self._buckets):
            yield f'edgec_latency_seconds_bucket{{le="{bound}"}} {count}'
        yield f'edgec_latency_seconds_bucket{{le="+Inf"}} {self.answered}'
        yield f"edgec_latency_seconds_sum {self._latency_s:.6f}"
        yield f"edgec_latency_seconds_count {self.answered}"
