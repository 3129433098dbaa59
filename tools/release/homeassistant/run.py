"""Starts the add-on's service with the options that the Supervisor wrote."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

OPTIONS = "/data/options.json"
MODELS = "/config"


def command(options: Mapping[str, Any]) -> list[str]:
    """Return the command of the service, a list of words.

    options: a mapping as the schema of config.yaml has it
    """
    # Other add-ons reach this one by its container's address; the host has no port of it
    # unless its user opens one.
    words = [sys.executable, "-m", "edgec_runtime.serve"]
    words += [os.path.join(MODELS, options["bundle"])]
    words += ["--zmq", "tcp://0.0.0.0:5555", "--deepstack", "0.0.0.0:8100"]
    words += ["--threads", str(options["threads"]), "--queue", str(options["queue"])]
    if options.get("api_key"):
        words += ["--api-key", options["api_key"]]
    if options.get("mqtt"):
        words += ["--mqtt", options["mqtt"]]
    return words


if __name__ == "__main__":
    with open(OPTIONS, encoding="utf-8") as file:
        words = command(json.load(file))
    os.execv(words[0], words)
