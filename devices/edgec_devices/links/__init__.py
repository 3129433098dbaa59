"""Has a module for each kind of device.

Each module has `USAGE` and `open_device(address) -> Device`; the address is the URL
behind the kind.
"""
