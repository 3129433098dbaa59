"""The options of `edgec tune`."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, field

from edgec_devices.options import FilePath, LinkOptions, option

from edgec.errors import InputError
from edgec.options.declaration import ProgressOption
from edgec.options.devices import BundleArgument, OnOption


@dataclass(frozen=True, kw_only=True)
class TuneOptions(ProgressOption, LinkOptions, OnOption, BundleArgument):
    """The options of `edgec tune`.

    Raises InputError for impossible numbers.
    """

    workers: str | int | None = field(
        default=None,
        metadata=option(
            "trials at a time (default: the cores here for --on emulated:, else 1); or "
            "dask://host:port: a Dask cluster",
            metavar="N|URL",
        ),
    )
    ops: int | None = field(
        default=None,
        metadata=option(
            "at most so many kinds of calls, the largest first", metavar="N"
        ),
    )
    output: FilePath | None = field(
        default=None,
        metadata=option(
            "the database; what it has is not tried again (default: "
            "~/.config/edgec/tune.json, which compile reads)",
            flags=("-o", "--output"),
            metavar="FILE",
        ),
    )
    executor: Executor | None = field(
        default=None,
        metadata=option(
            "tries them instead of threads of this process", python_only=True
        ),
    )

    def __post_init__(self) -> None:
        if self.ops is not None and self.ops < 1:
            raise InputError(
                f"--ops cannot be {self.ops}", at="--ops", hint="give 1 or more"
            )
