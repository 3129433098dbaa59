"""All that serves one bundle: its session, the detector, and the interfaces to it."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any, Callable, ContextManager, Dict, List, Optional

from ..errors import InputError
from ..session.session import Session
from . import PLACES
from .detector import Detector
from .figures import Figures
from .http_service import PATH, HttpService, port_of
from .mqtt_service import MqttService
from .zmq_service import ZmqService


@dataclass(frozen=True)
class ServeSettings:
    """What a service offers.

    Attributes:
        zmq: the address for Frigate's detector `zmq`
        deepstack: HOST:PORT for HTTP
        api_key: the key that an HTTP client needs; "" for none
        mqtt: the URL of a broker
        places: largest number of pictures that wait
        threads: number of CPU threads
    """

    zmq: Optional[str] = None
    deepstack: Optional[str] = None
    api_key: str = ""
    mqtt: Optional[str] = None
    places: int = PLACES
    threads: int = 1

    def check(self) -> None:
        """Raise InputError if nothing is offered."""
        if not (self.zmq or self.deepstack or self.mqtt):
            raise InputError(
                "the service has no address",
                hint="give --zmq tcp://127.0.0.1:5555 or --deepstack 127.0.0.1:8100",
            )
        if not (self.zmq or self.deepstack):
            raise InputError(
                "MQTT tells what is detected, and no picture can come",
                hint="give --zmq or --deepstack too",
            )
        if self.api_key and not self.deepstack:
            raise InputError(
                "ZeroMQ has no key: everybody who reaches its address is served",
                hint="leave --api-key out, or give --deepstack",
            )


class Ending:
    """Whether a service is to end: by SIGINT or SIGTERM within a `with` block."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._before: Dict[int, Any] = {}

    def __enter__(self) -> Ending:
        """Take the signals, if this is the main thread: no other one can."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._now)
        return self

    def __exit__(self, *error: object) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _now(self, number: int, frame: Optional[FrameType]) -> None:
        """End the service after the pictures that wait."""
        self._event.set()

    def wait(self) -> None:
        """Wait for the end."""
        # Without a time limit the main thread would not run the signals' handlers on
        # every system.
        while not self._event.wait(1.0):
            pass


def serve(
    bundle: str, settings: ServeSettings, say: Callable[[str], None], ending: Ending
) -> Figures:
    """Serve a bundle until the end, and return its figures.

    Args:
        bundle: the path of the .edgec file
        settings: what is offered
        say: gets a line for each address, when all answer, and, from any thread, one
            whenever a broker is there or away
        ending: says when to end

    Raises:
        BundleError, InputError: the bundle, or a setting, cannot be used
        DeviceError: an address cannot be taken, or a library is missing
    """
    settings.check()
    lines: List[str] = []
    with ExitStack() as stack:
        session = stack.enter_context(Session(bundle, threads=settings.threads))
        detector = Detector(session, settings.places)
        services = stack.enter_context(ExitStack())
        stack.enter_context(detector)
        # The addresses are taken before anything answers, so that an error leaves none.
        made = [make() for make in _services(settings, detector, lines, say)]
        for service in made:
            services.enter_context(service)
        for line in lines:
            say(line)
        ending.wait()
    return detector.figures


def _services(
    settings: ServeSettings,
    detector: Detector,
    lines: List[str],
    say: Callable[[str], None],
) -> List[Callable[[], ContextManager[Any]]]:
    """Return what makes each service; each adds a line about its address."""

    def zmq() -> ZmqService:
        service = ZmqService(str(settings.zmq), detector)
        lines.append(f"Frigate's detector zmq: {service.address}")
        return service

    def http() -> HttpService:
        host, port = port_of(str(settings.deepstack))
        service = HttpService(host, port, detector, settings.api_key)
        base = f"http://{service.address}"
        lines.append(f"DeepStack: {base}{PATH}; figures: {base}/metrics")
        return service

    def mqtt() -> MqttService:
        service = MqttService(str(settings.mqtt), detector, say)
        lines.append(f"MQTT: {service.address}")
        return service

    makers = ((settings.zmq, zmq), (settings.deepstack, http), (settings.mqtt, mqtt))
    return [make for given, make in makers if given]
