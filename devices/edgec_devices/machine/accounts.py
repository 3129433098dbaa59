"""Users and groups of the guest: Debian's own and Raspberry Pi OS's first user."""

from __future__ import annotations

USER = "pi"
PASSWORD = "raspberry"
UID = 1000
SHADOW_GID = 42  # in base-passwd's list
# openssl passwd -6 -salt edgecpi raspberry
_HASH = (
    "$6$edgecpi$21pVyMqRuvV4EHzKpOW6TzmAFIV48XqKx3rJoFl9mqI"
    "/kMa0OMirCCenCwxIpIqfIp/3jrtDh2ZEOl/Ea3jEN0"
)
_GROUPS = ("adm", "dialout", "sudo", "video", "plugdev")
# their packages make these when they are configured
_SERVICES = {"messagebus": 101, "sshd": 102}


def passwd(master: str) -> str:
    """/etc/passwd.  master: base-passwd's."""
    master = "".join(line + "\n" for line in master.replace(":*:", ":x:").splitlines())
    services = "".join(
        f"{n}:x:{i}:{i}::/run/{n}:/usr/sbin/nologin\n" for n, i in _SERVICES.items()
    )
    return f"{master}{services}{USER}:x:{UID}:{UID}:,,,:/home/{USER}:/bin/bash\n"


def group(master: str) -> str:
    """/etc/group.  master: base-passwd's."""
    lines = [line.replace(":*:", ":x:") for line in master.splitlines()]
    lines = [line + USER if line.split(":")[0] in _GROUPS else line for line in lines]
    lines += [f"{n}:x:{i}:" for n, i in (*_SERVICES.items(), (USER, UID))]
    return "".join(line + "\n" for line in lines)


def shadow(passwd_file: str) -> str:
    """/etc/shadow: only the first user has a password."""
    names = [line.split(":")[0] for line in passwd_file.splitlines()]
    return "".join(
        f"{n}:{_HASH if n == USER else '*'}:19000:0:99999:7:::\n" for n in names
    )
