"""One file per kind of device.

Each has `USAGE` and `open_device(rest of the URL) -> Device`.
"""
