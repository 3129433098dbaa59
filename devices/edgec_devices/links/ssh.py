"""ssh://[user@]host[:port] reaches a device by the system's OpenSSH.

~/.ssh/config, agents and jump hosts work as they do by hand. EDGEC_SSH_CONFIG names
another configuration file, as ssh's -F does. An emulated machine needs neither.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from urllib.parse import urlsplit

from edgec_runtime import DeviceError, InputError
from edgec_runtime.device_end.remote_show import page_socket

from edgec_devices import device_names
from edgec_devices.device import Device
from edgec_devices.remote import Remote
from edgec_devices.stream import ByteStream, Page, PipeStream, bootstrap

USAGE = "ssh://pi@host"

# A message of OpenSSH, the message of edgec, whether the person must change something
# here, and the remedy. {login} has the form of ssh's argument, {known} the form of
# known_hosts.
SAYS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the host key of {host} is another than before",
        True,
        "make sure that it is your device, then: ssh-keygen -R {known}",
    ),
    (
        "Host key verification failed",
        "the host key of {host} is not known here",
        True,
        "connect once by hand and compare the key: ssh {login}",
    ),
    (
        "Permission denied",
        "{host} refuses the login",
        True,
        "give it your key: ssh-copy-id {login}",
    ),
    (
        "Too many authentication failures",
        "{host} refuses the login",
        True,
        "name one key in ~/.ssh/config",
    ),
    ("Bad configuration option", "~/.ssh/config has an error", True, "ssh -G {login}"),
    (
        "cannot listen to port",
        "port {port} of this machine is taken",
        True,
        "give another --port",
    ),
    (
        "Connection refused",
        "{host} refuses the connection",
        False,
        "start its server: sudo systemctl enable --now ssh",
    ),
    (
        "No route to host",
        "{host} cannot be reached",
        False,
        "check its power and network: ping {host}",
    ),
    (
        "timed out",
        "{host} does not answer",
        False,
        "check its power and network: ping {host}",
    ),
)
UNKNOWN_HOST = "Could not resolve hostname"
CHATTER = re.compile(
    rb"debug\d: |OpenSSH_|Authenticated to |Transferred: |Bytes per second: "
)
# A message of ssh -v, and the stage of the link after it.
STAGES = (
    (b"OpenSSH_", "ssh was connecting"),
    (b"Connection established", "ssh was logging in"),
    (b"Authenticated to ", "ssh had logged in; python3 did not start"),
)
ALIVE_COUNT = 4
_NAMED = re.compile(r"(?!-)[\w.:%+@~-]+")
"""Hosts and users. Others could be taken for an option by OpenSSH, or for syntax by a
shell: OpenSSH itself refuses these since 9.6.
"""


def open_device(rest: str) -> Device:
    """Open //[user@]host[:port]."""
    return Remote(lambda: open_stream(rest))


def open_stream(rest: str, ask: bool = False) -> ByteStream:
    """Return a stream that is not connected yet; raises InputError for a wrong URL.

    `ask` says whether ssh may ask a person for a password.
    """
    url = f"ssh:{rest}"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
    except ValueError as e:
        raise InputError(
            f"this is not a URL: {e}", at=url, hint=f"for example {USAGE}:22"
        ) from e
    named = bool(
        _NAMED.fullmatch(host or "") and _NAMED.fullmatch(parts.username or "pi")
    )
    if not named or parts.path.strip("/") or parts.query:
        raise InputError("this names no host", at=url, hint=f"for example {USAGE}")
    # It would be seen in the list of processes, and ssh takes none anyway.
    if parts.password is not None:
        raise InputError(
            "a password has no place in a URL",
            at=url,
            hint=f"use a key: ssh-copy-id {host}",
        )
    # urlsplit() makes host names lower case, but names in ~/.ssh/config keep their case.
    name = parts.netloc.rpartition("@")[2].removesuffix(f":{port}").strip("[]")
    return SshStream(url, name, parts.username, port, ask)


class SshStream(PipeStream):
    """The device end's standard input and output through `ssh -v`."""

    def __init__(
        self, url: str, host: str, user: str | None, port: int | None, ask: bool
    ) -> None:
        super().__init__(url, [])
        self._host = host
        self._user = user
        self._port = port
        # Without a terminal a question would wait for ever.
        self._batch = not (ask and sys.stdin.isatty())
        self._stage = STAGES[0][1]
        self._forward: list[str] = []
        at = f"{user}@{host}" if user else host
        self._words = {
            "host": host,
            "port": "",
            "login": f"-p {port} {at}" if port else at,
            "known": f"'[{host}]:{port}'" if port else host,
        }

    def carry_page(self, port: int) -> Page:
        """Forward a port here to a socket on the device, by ssh.

        The socket is in a folder that only this user may enter.
        """
        name = secrets.token_hex(16)
        # ssh would go on without the page, unless it is told to exit.
        self._forward = [
            "-L",
            f"127.0.0.1:{port}:{page_socket(name)}",
            "-o",
            "ExitOnForwardFailure=yes",
        ]
        self._words["port"] = str(port)
        return Page(name, "socket")

    def command(self) -> list[str]:
        """Return the command of ssh.

        ssh gives up by itself without a connection, and if the other end falls silent.
        """
        # ssh gives up a little before this program does: it can tell the reason.
        every = max(1, int(self.timeout / (ALIVE_COUNT + 2)))
        options = [
            f"ConnectTimeout={max(1, round(self.timeout))}",
            f"ServerAliveInterval={every}",
        ]
        options += [
            f"ServerAliveCountMax={ALIVE_COUNT}",
            *(["BatchMode=yes"] if self._batch else []),
        ]
        port = ["-p", str(self._port)] if self._port else []
        user = ["-l", self._user] if self._user else []
        option_words = [word for option in options for word in ("-o", option)]
        start = f'exec python3 -S -u -c "{bootstrap()[0]}"'
        return [
            "ssh",
            *config_options(self._host),
            "-v",
            "-T",
            *self._forward,
            *option_words,
            *port,
            *user,
            self._host,
            start,
        ]

    @property
    def silence_hint(self) -> str:  # type: ignore[override]
        """Return a command that tells a broken network from a broken device."""
        by_hand = " ".join(
            ["ssh", *config_options(self._host), self._words["login"], "true"]
        )
        return (
            f"see whether this works: {by_hand}; if it is only slow, "
            f"add --timeout {4 * self.timeout:g}"
        )

    @property
    def stage(self) -> str:
        """Return the stage after the last message of ssh -v."""
        return self._stage

    def chatter(self, line: bytes) -> bool:
        """Return whether ssh says a line only because of -v."""
        for words, stage in STAGES:
            if words in line:
                self._stage = stage
        return bool(CHATTER.match(line))

    def explain(self, status: int | None, output: str) -> DeviceError | InputError:
        """Return why ssh ended, see PipeStream.explain."""
        if status is None and output.startswith("ssh: "):
            return InputError(
                "there is no ssh on this machine",
                at=self.url,
                hint="sudo apt-get install openssh-client",
            )
        # 255 is ssh's own failure; other codes come from the command on the device.
        unreachable = UNKNOWN_HOST in output or "Connection refused" in output
        if status == 255 and unreachable:
            again = device_names.power_on_command(f"ssh://{self._host}")
            if again:
                return DeviceError(
                    f"{self._host} has no power", at=self.url, hint=again
                )
        if status == 255 and UNKNOWN_HOST in output:
            return InputError(
                f"there is no host {self._host}",
                at=self.url,
                hint=device_names.instead_of_host(self._host),
            )
        if status == 255:
            for words, what, input_error, hint in SAYS:
                if words in output:
                    kind = InputError if input_error else DeviceError
                    return kind(
                        what.format(**self._words),
                        at=self.url,
                        hint=hint.format(**self._words),
                    )
        return super().explain(status, output)


def config_options(host: str) -> list[str]:
    """Return ssh's -F, or no option.

    The file is EDGEC_SSH_CONFIG, or the configuration of an emulated machine.
    """
    file = os.environ.get("EDGEC_SSH_CONFIG")
    if file:
        return ["-F", file]
    # A person can name an emulated machine without editing ~/.ssh/config.
    machine = device_names.machine_named(host)
    return ["-F", str(machine.ssh_config)] if machine else []
