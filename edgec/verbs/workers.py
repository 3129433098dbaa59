"""The executors of a search's trials (`--workers`).

They are threads of this process, or the workers of a Dask cluster.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from edgec.errors import DeviceError, InputError, ToolError
from edgec.executors import TIMES

_DASK_URL = re.compile(r"dask://([^/\s]+:\d+)/?")


@dataclass(frozen=True)
class Workers:
    """The workers that a person asks for.

    Attributes:
        threads: the number of threads of this process; None: the usual number.
        address: host and port of a Dask scheduler; "": threads do it.
    """

    threads: int | None = None
    address: str = ""

    @classmethod
    def of(cls, given: str | None) -> Workers:
        """Return the workers of a number, or of "dask://host:port".

        Raises InputError for anything else.
        """
        text = (given or "").strip()
        address = _DASK_URL.fullmatch(text)
        if address is not None:
            return cls(address=address[1])
        if given is None:
            return cls()
        if text.isdecimal() and int(text) > 0:
            return cls(int(text))

        hint = "give how many threads, or for example dask://192.168.1.5:8786"
        raise InputError(f'"{given}" names no workers', at="--workers", hint=hint)

    @contextlib.contextmanager
    def executor(self, threads: int, timeout: float) -> Iterator[Executor]:
        """Yield the executor: the cluster, or a pool of threads.

        threads: the usual number of threads.
        timeout: seconds to wait for the cluster.

        Raises ToolError where Dask is not installed, DeviceError where no cluster
        answers.
        """
        if not self.address:
            pool = ThreadPoolExecutor(self.threads or threads)
            try:
                yield pool
            finally:
                # An error must not wait for trials that nobody needs any more.
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
            # Trials are not pure: the same one may have another time.
            yield client.get_executor(pure=False, retries=TIMES)
