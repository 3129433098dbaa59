"""ssh://[user@]host[:port] - the system's OpenSSH, so ~/.ssh/config, agents and jump hosts work as they do by hand.

EDGEC_SSH_CONFIG names another configuration file, as ssh's -F does.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

from edgec_runtime import DeviceError, InputError

from edgec_devices.device import Device
from edgec_devices.remote import Remote
from edgec_devices.stream import PipeStream, Stream, bootstrap

USAGE = "ssh://pi@host"
CONNECT_S = 10

# What OpenSSH says, ours, whether the person must change something, and what to do.  {login}: as ssh takes it;
# {known}: as known_hosts has it.
SAYS = (
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "the host key of {host} is another than before", True,
     "make sure that it is your device, then: ssh-keygen -R {known}"),
    ("Host key verification failed", "the host key of {host} is not known here", True,
     "connect once by hand and compare the key: ssh {login}"),
    ("Permission denied", "{host} refuses the login", True, "give it your key: ssh-copy-id {login}"),
    ("Too many authentication failures", "{host} refuses the login", True, "name one key in ~/.ssh/config"),
    ("Could not resolve hostname", "there is no host {host}", True, "check the name; perhaps {host}.local"),
    ("Bad configuration option", "~/.ssh/config has an error", True, "ssh -G {login}"),
    ("Connection refused", "{host} refuses the connection", False, "start its server: sudo systemctl enable --now ssh"),
    ("No route to host", "{host} cannot be reached", False, "check its power and network: ping {host}"),
    ("timed out", "{host} does not answer", False, "check its power and network: ping {host}"),
)  # fmt: skip


def open_device(rest: str) -> Device:
    """rest: //[user@]host[:port]."""
    return Remote(lambda: open_stream(rest))


def open_stream(rest: str, ask: bool = False) -> Stream:
    """Not connected yet.  ask: ssh may ask a person for a password.  Raises InputError for a URL that cannot be one."""
    url = f"ssh:{rest}"
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError as e:
        raise InputError(f"the port is impossible: {e}", at=url, hint=f"for example {USAGE}:22") from e
    if (
        not host
        or parts.path.strip("/")
        or parts.query
        or host.startswith("-")
        or (parts.username or "").startswith("-")
    ):
        raise InputError("this names no host", at=url, hint=f"for example {USAGE}")
    if parts.password is not None:
        raise InputError("a password has no place in a URL", at=url, hint=f"use a key: ssh-copy-id {host}")
    # urlsplit() makes host names lower case; names in ~/.ssh/config are not
    name = parts.netloc.rpartition("@")[2].removesuffix(f":{port}").strip("[]")
    return SshStream(url, name, parts.username, port, ask)


class SshStream(PipeStream):
    """The device end's standard input and output through ssh."""

    def __init__(self, url: str, host: str, user: str | None, port: int | None, ask: bool) -> None:
        options = [f"ConnectTimeout={CONNECT_S}", "ServerAliveInterval=5", "ServerAliveCountMax=3"]
        if not (ask and sys.stdin.isatty()):
            options.append("BatchMode=yes")
        config = os.environ.get("EDGEC_SSH_CONFIG")
        command = ["ssh", *(["-F", config] if config else []), "-T", *(word for o in options for word in ("-o", o))]
        command += [*(["-p", str(port)] if port else []), *(["-l", user] if user else []), host]
        super().__init__(url, [*command, f'exec python3 -S -u -c "{bootstrap()[0]}"'])
        at = f"{user}@{host}" if user else host
        self._words = {
            "host": host,
            "login": f"-p {port} {at}" if port else at,
            "known": f"'[{host}]:{port}'" if port else host,
        }

    def explain(self, status: int | None, said: str) -> DeviceError | InputError:
        """Why ssh ended."""
        if status is None and said.startswith("ssh: "):
            return InputError(
                "there is no ssh on this machine", at=self.url, hint="sudo apt-get install openssh-client"
            )
        if status == 255:
            for words, what, input_error, hint in SAYS:
                if words in said:
                    kind = InputError if input_error else DeviceError
                    return kind(what.format(**self._words), at=self.url, hint=hint.format(**self._words))
        return super().explain(status, said)
