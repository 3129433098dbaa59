"""Where the trials of a search run: threads of this process, or the workers of a Dask
cluster (`--workers`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from edgec.errors import DeviceError, InputError, ToolError
from edgec.executors import TIMES

_DASK = re.compile(r"dask://([^/\s]+:\d+)/?")

B = TypeVar("B")


@dataclass(frozen=True)
class Workers:
    """What `--workers` asks for. threads: of this process, None: as many as usual.
    address: of a Dask scheduler.
    """

    threads: int | None = None
    address: str = ""

    @classmethod
    def of(cls, given: str | None) -> Workers:
        """A number, or "dask://host:port". Raises InputError for anything else."""
        text = (given or "").strip()
        address = _DASK.fullmatch(text)
        if address is not None:
            return cls(address=address[1])
        if given is None or (text.isdecimal() and int(text) > 0):
            return cls(int(text) if given is not None else None)
        hint = "give how many threads, or for example dask://192.168.1.5:8786"
        raise InputError(f'"{given}" names no workers', at="--workers", hint=hint)

    @contextlib.contextmanager
    def executor(self, threads: int, timeout: float) -> Iterator[Executor]:
        """The cluster, or as many threads as were asked for, by default `threads`.

        Raises ToolError where Dask is not installed, DeviceError where no cluster
        answers.
        """
        if not self.address:
            pool = ThreadPoolExecutor(self.threads or threads)
            try:
                yield pool
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
            return
        try:
            from distributed import Client
        except ImportError as e:
            raise ToolError(
                "Dask is not installed",
                at="--workers",
                hint="pip install 'edgec[dask]'",
            ) from e
        try:
            client = Client(
                f"tcp://{self.address}", timeout=timeout, set_as_default=False
            )
        except (OSError, TimeoutError) as e:
            hint = "start it there: dask scheduler, and dask worker on each machine"
            raise DeviceError(
                f"no Dask scheduler answers at {self.address}: {e}",
                at="--workers",
                hint=hint,
            ) from e
        with client:
            yield client.get_executor(pure=False, retries=TIMES)
