"""Makes the keys of a machine, and OpenSSH's configuration for it."""

from __future__ import annotations

from pathlib import Path

from .programs import run

USER_KEY = "id_ed25519"
HOST_KEY = "host_ed25519"
CONFIG = "ssh_config"


def make_keys(folder: Path) -> None:
    """Make the key pairs of the user and the host unless they exist.

    Raises ToolError.
    """
    for name in (USER_KEY, HOST_KEY):
        # Keys stay the same over boots, so that known_hosts stays valid.
        if not (folder / name).exists():
            hint = "see that the folder can be written to"
            run(
                "ssh-keygen",
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "edgec",
                "-f",
                folder / name,
                hint=hint,
            )


def guest_files(folder: Path, user_id: int) -> dict[str, tuple[Path, int, int]]:
    """Return the files of the keys on the guest's disk, for disk.write()."""
    return {
        "/etc/ssh/ssh_host_ed25519_key": (folder / HOST_KEY, 0o600, 0),
        "/etc/ssh/ssh_host_ed25519_key.pub": (folder / f"{HOST_KEY}.pub", 0o644, 0),
        "/home/pi/.ssh/authorized_keys": (folder / f"{USER_KEY}.pub", 0o600, user_id),
    }


def write_config(folder: Path, alias: str, user: str, port: int) -> Path:
    """Write OpenSSH's configuration of the host `alias` with its key.

    It is for `ssh -F` or an Include line of ~/.ssh/config, and checks the host's key
    strictly.
    """
    # The host key was made here, so the first connection needs no trust.
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(f"{alias} {(folder / f'{HOST_KEY}.pub').read_text()}")
    config = folder / CONFIG
    # A known_hosts of its own: the ports of machines change, and the user's file stays
    # clean.
    config.write_text(
        f"Host {alias}\n"
        "    HostName 127.0.0.1\n"
        f"    Port {port}\n"
        f"    User {user}\n"
        f'    IdentityFile "{folder / USER_KEY}"\n'
        "    IdentitiesOnly yes\n"
        f"    HostKeyAlias {alias}\n"
        f'    UserKnownHostsFile "{known_hosts}"\n'
        "    StrictHostKeyChecking yes\n"
    )
    return config
