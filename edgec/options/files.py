"""The options of the verbs about bundles and keys as files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgec_devices.options import FilePath, argument, option

from edgec.options.declaration import ProgressOption
from edgec.options.devices import BundleArgument


@dataclass(frozen=True)
class _Folder:
    folder: FilePath = field(metadata=argument("the hand-off folder"))


@dataclass(frozen=True, kw_only=True)
class FinishOptions(ProgressOption, _Folder):
    """The options of `edgec finish`."""


@dataclass(frozen=True)
class _InspectedFile:
    bundle: FilePath = field(
        metadata=argument("the .edgec file, or a .tflite file of edgetpu_compiler")
    )


@dataclass(frozen=True, kw_only=True)
class InspectOptions(_InspectedFile):
    """The options of `edgec inspect`."""

    key: FilePath | None = field(
        default=None,
        metadata=option(
            "a public key: whether the signature is of it (default: the keys that this "
            "machine trusts)",
            metavar="FILE.pub",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ModelsOptions(ProgressOption):
    """The options of `edgec models`."""

    get: Sequence[str] = field(
        default=(),
        kw_only=False,
        metadata=option(
            "names of the list; these alone are returned, and downloaded into the cache "
            "unless they are there",
            python_only=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class PackageOptions(BundleArgument):
    """The options of `edgec package`."""

    format: str = field(
        default="deb",
        metadata=option("deb, or tar (.tar.gz with install.sh)", show_default=True),
    )
    arch: str | None = field(
        default=None,
        metadata=option(
            "arm64, armhf or amd64, where the bundle has programs for several"
        ),
    )
    app: str | None = field(
        default=None,
        metadata=option("the service is edgec-APP (default: the model's name)"),
    )
    version: str | None = field(
        default=None,
        metadata=option(
            "of the package (default: edgec's and the bundle's hash, which does not grow)"
        ),
    )
    maintainer: str | None = field(
        default=None, metadata=option('"Name <address>", shown by apt')
    )
    output: FilePath | None = field(
        default=None,
        metadata=option(
            "file or folder (default: its own name, here)", flags=("-o", "--output")
        ),
    )
