"""The root file system: Debian packages, unpacked, and what their installation scripts
would have set up.

The scripts are not run: they are arm64 programs, and this machine is not.  What they do
that matters here is said in guest/etc, accounts.py and below; dpkg's database has every
package as installed, so dpkg -i works in the guest.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import accounts
from .initramfs import GUEST, LinuxKernel
from .programs import run
from .tree import MERGED, Tree

# Nobody reads these on an emulated board, and they are half the files.
_LEFT_OUT = tuple(
    f"usr/share/{n}/"
    for n in (
        "doc",
        "man",
        "locale",
        "info",
        "lintian",
        "bash-completion",
        "bug",
        "zsh",
        "apport",
        "menu",
    )
)
# Units that nothing here needs, each for a second or more of emulated time: caches
# filled at the first boot, sessions.
_MASKED = (
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-logind.service",
    "ldconfig.service",
    "systemd-hwdb-update.service",
    "systemd-journal-catalog-update.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "systemd-pstore.service",
)
_LINKS = {
    "etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target",
    "etc/systemd/system/multi-user.target.wants/ssh.service": "/lib/systemd/system/ssh.service",
    "usr/bin/awk": "mawk",
    "var/run": "/run",
    "var/lock": "/run/lock",
    **{f"etc/systemd/system/{unit}": "/dev/null" for unit in _MASKED},
}
# What installation scripts copy: from -> to.
_COPIES = {
    "usr/share/openssh/sshd_config": "etc/ssh/sshd_config",
    "usr/share/base-files/profile": "etc/profile",
    "usr/share/base-files/motd": "etc/motd",
    "usr/share/base-files/dot.profile": "root/.profile",
    "usr/share/base-files/dot.bashrc": "root/.bashrc",
    "etc/skel/.profile": "home/pi/.profile",
    "etc/skel/.bashrc": "home/pi/.bashrc",
}


def root_tree(folder: Path, packages: Iterable[Path]) -> Tree:
    """The root file system in a folder that does not exist yet.  Raises ToolError."""
    folder.mkdir(parents=True)
    tree = Tree(folder)
    for name in MERGED:
        tree.make_folder(f"usr/{name}")
        tree.link(name, f"usr/{name}")
    status = []
    for package in packages:
        names = tree.unpack(
            package,
            lambda name: not name.startswith(_LEFT_OUT) or name.endswith("/copyright"),
        )
        status.append(_installed(tree, package, names))
    tree.write("var/lib/dpkg/status", "\n".join(status).encode())
    _configure(tree)
    return tree


def add_modules(tree: Tree, kernel: LinuxKernel, names: Iterable[str]) -> None:
    """Modules of the kernel, and what they depend on, for `busybox modprobe`; nothing
    loads them by itself.
    """
    folder = f"usr/lib/modules/{kernel.version}"
    rows = []
    for file, data in kernel.ordered(names).items():
        tree.write(f"{folder}/extra/{file}", data)
        below = [
            f"extra/{f}"
            for f in reversed(kernel.ordered([file.removesuffix(".ko")]))
            if f != file
        ]
        rows.append(f"extra/{file}: {' '.join(below)}\n")
    tree.write(f"{folder}/modules.dep", "".join(rows).encode())


def _installed(tree: Tree, package: Path, names: list[str]) -> str:
    """The package's paragraph of dpkg's database, whose list of files is written."""
    control = run("dpkg-deb", "--field", package, hint="try again").stdout
    fields = dict(
        line.split(": ", 1)
        for line in control.splitlines()
        if not line.startswith(" ") and ": " in line
    )
    name = fields["Package"] + (
        f":{fields['Architecture']}" if fields.get("Multi-Arch") == "same" else ""
    )
    tree.write(
        f"var/lib/dpkg/info/{name}.list",
        "".join(f"/{n}\n" for n in (n or "." for n in names)).encode(),
    )
    return (
        control.rstrip("\n").replace("\n", "\nStatus: install ok installed\n", 1) + "\n"
    )


def _configure(tree: Tree) -> None:
    home = (accounts.UID, accounts.UID)
    tree.make_folder("home/pi", 0o755, home)
    tree.make_folder("home/pi/.ssh", 0o700, home)
    for source, name in _COPIES.items():
        owner = home if name.startswith("home/") else (0, 0)
        tree.write(name, (tree.folder / source).read_bytes(), owner=owner)
    for path in sorted((GUEST / "etc").rglob("*")):
        if path.is_file():
            mode = 0o440 if path.parent.name == "sudoers.d" else 0o644
            tree.write(str(path.relative_to(GUEST)), path.read_bytes(), mode)
    masters = tree.folder / "usr/share/base-passwd"
    passwd = accounts.passwd((masters / "passwd.master").read_text())
    tree.write("etc/passwd", passwd.encode())
    tree.write(
        "etc/group", accounts.group((masters / "group.master").read_text()).encode()
    )
    tree.write(
        "etc/shadow", accounts.shadow(passwd).encode(), 0o640, (0, accounts.SHADOW_GID)
    )
    tree.write("etc/machine-id", b"")
    for name, target in _LINKS.items():
        tree.link(name, target)
    for name in ("blas", "lapack"):  # of update-alternatives, for numpy
        library = f"usr/lib/aarch64-linux-gnu/lib{name}.so.3"
        if (tree.folder / library).parent.joinpath(name).is_dir():
            tree.link(library, f"{name}/lib{name}.so.3")
