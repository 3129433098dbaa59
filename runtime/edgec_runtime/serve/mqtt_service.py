"""Publishes what was detected by MQTT, as sensors that Home Assistant discovers.

Topics of the network NAME: `edgec/NAME/objects` (JSON with `count` and `objects`),
`edgec/NAME/available` (online, offline), and
`homeassistant/sensor/edgec_NAME/objects/config`
(https://www.home-assistant.io/integrations/mqtt#mqtt-discovery).
"""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any, Callable, Dict, Tuple
from urllib.parse import unquote, urlsplit

from ..errors import DeviceError, InputError
from ..vision.tasks.instances import Box
from .detector import Detector

EVERY_S = 0.5
"""Least time between two messages; those between are left out."""
_PORTS = {"mqtt": 1883, "mqtts": 8883}


class MqttService:
    """Publishes from a thread of its own; a context manager.

    It connects again whenever the broker was away.

    Args:
        url: mqtt://[user:password@]host[:port]; mqtts:// for TLS
        detector: detects the objects
        say: gets a line, from any thread, whenever the broker takes the connection,
            refuses it, or is away

    Raises:
        InputError: it is not such a URL
        DeviceError: paho-mqtt is not installed
    """

    def __init__(
        self, url: str, detector: Detector, say: Callable[[str], None]
    ) -> None:
        try:
            import paho.mqtt.client as paho
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise DeviceError(
                "paho-mqtt is needed to publish by MQTT, and is not there or older than 2",
                hint="pip install 'paho-mqtt>=2.1'",
            ) from None
        parts = _parts(url)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", detector.name)
        self._topic = f"edgec/{name}"
        self._detector = detector
        self._name = name
        self._last = 0.0
        self._say = say
        self._state = ""
        self._lock = threading.Lock()
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.will_set(f"{self._topic}/available", "offline", 1, True)
        self._client.on_connect = self._connected
        self._client.on_connect_fail = self._away
        self._client.on_disconnect = self._disconnected
        # a broker that is away for long must not fill the memory
        self._client.max_queued_messages_set(100)
        if parts.username:
            self._client.username_pw_set(
                unquote(parts.username), unquote(parts.password or "")
            )
        if parts.scheme == "mqtts":
            self._client.tls_set()
        port = parts.port or _PORTS[parts.scheme]
        self.address = f"{parts.hostname}:{port}"
        self._client.connect_async(str(parts.hostname), port)

    def __enter__(self) -> MqttService:
        self._client.loop_start()
        self._detector.watchers.append(self._publish)
        return self

    def __exit__(self, *error: object) -> None:
        self._detector.watchers.remove(self._publish)
        self._client.publish(f"{self._topic}/available", "offline", 1, True)
        self._client.on_disconnect = None
        self._client.disconnect()
        self._client.loop_stop()

    def _connected(
        self, client: Any, data: object, flags: object, reason: Any, *more: object
    ) -> None:
        if reason.is_failure:
            self._tell(f"refuses the connection: {reason}")
            return
        self._tell("takes the connection")
        client.publish(
            f"homeassistant/sensor/edgec_{self._name}/objects/config",
            json.dumps(self._discovery()),
            1,
            True,
        )
        client.publish(f"{self._topic}/available", "online", 1, True)

    def _disconnected(self, *state: object) -> None:
        # A broker that refuses a connection also ends it: the reason has been said.
        if not self._state.startswith("refuses"):
            self._away()

    def _away(self, *state: object) -> None:
        self._tell("is away; connecting again until it answers")

    def _tell(self, state: str) -> None:
        # Each attempt ends in the same state: it is news once.
        if state != self._state:
            self._state = state
            self._say(f"the broker {self.address} {state}")

    def _discovery(self) -> Dict[str, Any]:
        """Return the description of the sensor: how many objects, and which."""
        device = f"edgec_{self._name}"
        return {
            "name": "Objects",
            "unique_id": f"{device}_objects",
            "state_topic": f"{self._topic}/objects",
            "value_template": "{{ value_json.count }}",
            "json_attributes_topic": f"{self._topic}/objects",
            "availability_topic": f"{self._topic}/available",
            "state_class": "measurement",
            "device": {
                "identifiers": [device],
                "name": f"edgec {self._detector.name}",
                "manufacturer": "edgec",
            },
        }

    def _publish(self, boxes: Tuple[Box, ...]) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._last < EVERY_S:
                return
            self._last = now
        objects = [{"label": b.label, "score": round(b.score, 4)} for b in boxes]
        message = json.dumps({"count": len(objects), "objects": objects})
        self._client.publish(f"{self._topic}/objects", message)


def _parts(url: str) -> Any:
    """Return the parts of the URL of a broker.  Raises InputError."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InputError(
            f"{url!r} is not the URL of a broker",
            hint="give mqtt://user:password@host:1883",
        )
    return parts
