"""The options of `edgec eval`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgec_devices.options import FilePath, LinkOptions, option

from edgec.errors import InputError
from edgec.options.declaration import ProgressOption
from edgec.options.devices import BundleArgument, ThreadsOption, device_url

HERE = "local:"


@dataclass(frozen=True)
class _Data:
    data: FilePath = field(
        metadata=option(
            "labelled pictures: a folder for each class, a .csv, COCO's .json, folders "
            "of pairs, or points (docs/eval.md)",
            metavar="PATH",
        )
    )


@dataclass(frozen=True, kw_only=True)
class EvalOptions(ProgressOption, LinkOptions, ThreadsOption, _Data, BundleArgument):
    """The options of `edgec eval`.

    Raises InputError for impossible numbers.
    """

    model: FilePath | None = field(
        default=None,
        metadata=option(
            "the float model that it was compiled from, beside it; or models:NAME",
            metavar="FILE",
        ),
    )
    on: str = field(
        default=HERE,
        metadata=option(
            "also on a device: emulated:pi4, ssh://pi@host, …", metavar="DEVICE"
        ),
    )
    budgets: Sequence[str] = field(
        default=(),
        metadata=option(
            "exit code 1 unless it holds: drop.top1<=1%, map50>=40%, …",
            python='"drop.top1<=1%" and the like; a missed one is not an error but an '
            "entry of the report",
            flags=("--budget",),
            metavar="EXPR",
            multiple=True,
        ),
    )
    pictures: FilePath | None = field(
        default=None,
        metadata=option(
            "where the pictures are that a .csv or .json names (default: beside it)",
            metavar="DIR",
        ),
    )
    normalise: str | None = field(
        default=None,
        metadata=option(
            "errors of points: by the box around them (box), or by the distance of two "
            "points (36,45) [default: two eyes where points have such names, else box]",
            metavar="HOW",
        ),
    )
    samples: int | None = field(
        default=None,
        metadata=option("at most so many pictures, spread over all", metavar="N"),
    )
    worst: int = field(
        default=12,
        metadata=option(
            "so many of the worst pictures are shown", metavar="N", show_default=True
        ),
    )
    resamples: int | None = field(
        default=None,
        metadata=option(
            "draws of the bootstrap (default: 1000; 200 for COCO)", metavar="N"
        ),
    )
    fresh: bool = field(
        default=False,
        metadata=option(
            "run every picture anew (default: an evaluation goes on where one of the "
            "same bundle, pictures and labels was interrupted)"
        ),
    )
    json: FilePath | None = field(
        default=None,
        metadata=option("all figures, machine-readable (docs/eval.md)", metavar="FILE"),
    )
    junit: FilePath | None = field(
        default=None,
        metadata=option("a test case for each budget", metavar="FILE"),
    )
    html: FilePath | None = field(
        default=None,
        metadata=option("a page with the worst pictures", metavar="FILE"),
    )

    def __post_init__(self) -> None:
        least = {"samples": 1, "resamples": 10, "worst": 0}
        for name, smallest in least.items():
            number = getattr(self, name)
            if number is not None and number < smallest:
                raise InputError(
                    f"--{name} cannot be {number}",
                    f"--{name}",
                    f"give {smallest} or more",
                )

    @property
    def url(self) -> str:
        """The URL of the device that runs the bundle too; HERE: this machine alone."""
        return device_url(self.on)

    @property
    def is_local(self) -> bool:
        """Whether only this machine runs the bundle."""
        return self.url.partition(":")[0] == HERE.rstrip(":")
