"""A Coral stick without one: what a host sees of it at its USB plug."""

from edgec_devices.stick.stick import Stick, StickOptions

__all__ = ["Stick", "StickOptions"]
