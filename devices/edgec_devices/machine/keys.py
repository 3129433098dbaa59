"""Keys of one machine, and OpenSSH's configuration for it."""

from __future__ import annotations

from pathlib import Path

from .programs import run

USER_KEY = "id_ed25519"
HOST_KEY = "host_ed25519"
CONFIG = "ssh_config"


def make_keys(folder: Path) -> None:
    """The user's and the host's key pair, made unless they are there.

    Raises ToolError.
    """
    for name in (USER_KEY, HOST_KEY):
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
    """What of them goes onto the disk, as disk.write() takes it."""
    return {
        "/etc/ssh/ssh_host_ed25519_key": (folder / HOST_KEY, 0o600, 0),
        "/etc/ssh/ssh_host_ed25519_key.pub": (folder / f"{HOST_KEY}.pub", 0o644, 0),
        "/home/pi/.ssh/authorized_keys": (folder / f"{USER_KEY}.pub", 0o600, user_id),
    }


def write_config(folder: Path, alias: str, user: str, port: int) -> Path:
    """A file for `ssh -F` or an Include line of ~/.ssh/config: the host `alias` with
    its key, checked strictly.
    """
    known = folder / "known_hosts"
    known.write_text(f"{alias} {(folder / f'{HOST_KEY}.pub').read_text()}")
    config = folder / CONFIG
    config.write_text(
        f"Host {alias}\n"
        "    HostName 127.0.0.1\n"
        f"    Port {port}\n"
        f"    User {user}\n"
        f'    IdentityFile "{folder / USER_KEY}"\n'
        "    IdentitiesOnly yes\n"
        f"    HostKeyAlias {alias}\n"
        f'    UserKnownHostsFile "{known}"\n'
        "    StrictHostKeyChecking yes\n"
    )
    return config
