"""Shared fixtures: golden files, the data folder, loud skips."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from edgec_devices.machine import Machine, Settings, boot
from edgec_devices.machine.debian import RELEASES
from edgec_runtime import ToolError
from edgec_runtime.bundle.cache import cache_dir
from hypothesis import HealthCheck, settings

from tests import builds

# deadlines and slow first draws say something about a busy machine, nothing about the
# code
settings.register_profile(
    "explore", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# the same examples each time: --hypothesis-profile=explore tries others
settings.register_profile("edgec", settings.get_profile("explore"), derandomize=True)
settings.load_profile("edgec")

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")

_INDEX = SHARED / "models" / "index.json"
MODELS: dict[str, dict[str, Any]] = {
    entry["name"]: entry
    for entry in (json.loads(_INDEX.read_text()) if _INDEX.is_file() else ())
}
"""The entries of the data folder's models by name; none where it is absent."""

# zig builds a C library at its first start: tests that have a cache folder of their own
# share that one
os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(cache_dir("zig")))

_NEEDS = {
    "cc": ("gcc", "no C compiler: install gcc"),
    "arm": ("qemu-aarch64", "no qemu-aarch64: install qemu-user"),
    "pi": ("qemu-system-aarch64", "no qemu-system-aarch64: install qemu-system-arm"),
    "browser": ("chromium", "no browser: install chromium"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sweep",
        action="store_true",
        help="run every case of long tests, not a sample of them",
    )
    parser.addoption(
        "--release",
        choices=RELEASES,
        default=RELEASES[0],
        help="Debian of the emulated machine",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden files instead of comparing",
    )


def cheapness(item: pytest.Item) -> int:
    """The rank of a test by what its markers say of its time; the longest come first."""
    dear = ("pi", "slow", "arm", "browser", "cc")
    return next(
        (i for i, marker in enumerate(dear) if item.get_closest_marker(marker)),
        len(dear),
    )


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Tests in an order in which the workers end together.

    pytest-xdist cuts it into a piece for each worker: each begins with long tests and
    ends with short ones, which others can take over. Tests of a file stay together.
    """
    files: dict[tuple[int, Path], list[pytest.Item]] = {}
    for item in items:
        files.setdefault((cheapness(item), item.path), []).append(item)
    groups = [files[key] for key in sorted(files)]
    pieces = (groups[i::workers] for i in range(workers))
    return [item for piece in pieces for group in piece for item in group]


def leave_a_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each long test with many cases those whose names have the lowest hashes;
    pytest says how many are left out.

    Several tests are cases of one sweep where they name it: `sweep(1, among="power")`.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker("sweep")
        if marker is not None:
            test = item.nodeid.partition("[")[0]
            cases.setdefault(marker.kwargs.get("among", test), []).append(item)
    left_out = set[pytest.Item]()
    for every in cases.values():
        marker = every[0].get_closest_marker("sweep")
        assert marker is not None
        left_out.update(
            sorted(every, key=lambda item: zlib.crc32(item.nodeid.encode()))[
                marker.args[0] :
            ]
        )
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """A test whose need is not met is skipped with the reason, which -rs prints at the
    end.
    """
    if not config.getoption("--sweep"):
        leave_a_sample(config, items)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = dealt(items, workers)
    for item in items:
        for marker, (program, reason) in _NEEDS.items():
            if item.get_closest_marker(marker) and shutil.which(program) is None:
                item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("shared") and not (SHARED / "models").is_dir():
            item.add_marker(
                pytest.mark.skip(reason=f"no data folder at {SHARED}: set EDGEC_SHARED")
            )


@pytest.fixture(scope="session", autouse=True)
def _builds(tmp_path_factory: pytest.TempPathFactory) -> None:
    builds.use(tmp_path_factory.getbasetemp())
    # what a person tuned changes no test
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> str:
    """Debian's, of the emulated machine."""
    name: str = request.config.getoption("--release")
    return name


@pytest.fixture(scope="session")
def machine(
    release: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A whole emulated Pi 4, as the tests that had it before left it: booting one takes
    as long as they do.
    """
    with whole_machine(tmp_path_factory.mktemp("machine"), release) as booted:
        yield booted


@contextmanager
def whole_machine(
    folder: Path,
    release: str,
    cameras: bool = False,
    stick: tuple[str, ...] | None = None,
) -> Iterator[Machine]:
    """An emulated Pi 4 that is on in a `with` block; the test is skipped where apt has
    no packages for it.
    """
    try:
        settings = Settings("pi4", release=release, cameras=cameras, stick=stick)
        with boot(settings, folder) as booted:
            yield booted
    except ToolError as e:
        if "apt-get" in str(e.hint):
            pytest.skip(f"no emulated machine: {e}")
        raise


@pytest.fixture
def shared() -> Path:
    """The data folder."""
    return SHARED


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(text, suffix): text equals the file named after the test, or
    --update-golden writes it.
    """

    def check(text: str, suffix: str) -> None:
        name = request.node.name.replace("[", "-").replace("]", "")
        path = ROOT / "tests" / "golden" / f"{name}{suffix}"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), (
            f"{path} is missing: run pytest --update-golden and look at it"
        )
        assert text == path.read_text(), (
            f"{path.name} changed: if meant, run pytest --update-golden"
        )

    return check
