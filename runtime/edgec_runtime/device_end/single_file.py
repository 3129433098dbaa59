"""Joins the device end into one file of Python, which the host sends and a service's
unit starts (docs/protocol.md).

This is part of the device end, see wire.py.
"""

from __future__ import annotations

from typing import Mapping

PACKAGE = "edgec_runtime.device_end."


def one_file(texts: Mapping[str, str], sha: str) -> str:
    """Return the text of the device end as one file.

    Args:
        texts: the text of each module by its name, in an order in which each imports
            only modules before it
        sha: their hash, by which the host knows them
    """
    return (
        "# The device end of edgec, made of edgec_runtime's files by the host.\n"
        "import sys, types\n"
        f"TEXTS = {dict(texts)!r}\n"
        "for name, text in TEXTS.items():\n"
        f"    module = types.ModuleType({PACKAGE!r} + name)\n"
        "    sys.modules[module.__name__] = module\n"
        "    exec(compile(text, name + '.py', 'exec'), module.__dict__)\n"
        f"module.main({sha!r}, TEXTS)\n"
    )
