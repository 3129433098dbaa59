"""The options of `edgec serve`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgec_devices.options import FilePath, argument, option
from edgec_runtime.serve import PLACES

from edgec.options.declaration import ProgressOption

if TYPE_CHECKING:
    from edgec_runtime.serve.service import ServeSettings


@dataclass(frozen=True, kw_only=True)
class ServeOptions(ProgressOption):
    """The options of `edgec serve`. `progress` gets the addresses, when all answer."""

    bundle: FilePath = field(
        kw_only=False,
        metadata=argument("a .edgec file of a detector", metavar="BUNDLE"),
    )
    zmq: str | None = field(
        default=None,
        metadata=option(
            "answer Frigate's detector zmq there", metavar="tcp://127.0.0.1:5555"
        ),
    )
    deepstack: str | None = field(
        default=None,
        metadata=option(
            "answer DeepStack's HTTP there; also /health, and /metrics for Prometheus",
            metavar="127.0.0.1:8100",
        ),
    )
    api_key: str = field(
        default="",
        metadata=option("what an HTTP client has to send as api_key", metavar="KEY"),
    )
    mqtt: str | None = field(
        default=None,
        metadata=option(
            "publish what is detected, for Home Assistant too",
            metavar="mqtt://host",
        ),
    )
    queue: int = field(
        default=PLACES,
        metadata=option(
            "the most pictures that wait; the oldest is dropped for a newer one",
            metavar="N",
            show_default=True,
        ),
    )
    threads: int = field(
        default=1, metadata=option("CPU threads", metavar="N", show_default=True)
    )

    def settings(self) -> ServeSettings:
        """Return the settings of the service, as the runtime has them."""
        from edgec_runtime.serve.service import ServeSettings

        return ServeSettings(
            zmq=self.zmq,
            deepstack=self.deepstack,
            api_key=self.api_key,
            mqtt=self.mqtt,
            places=self.queue,
            threads=self.threads,
        )
