"""Board profiles, target names and device URLs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from edgec_devices.boards import Board, Target, boards
from edgec_devices.device import device_for
from edgec_runtime import InputError
from edgec_runtime.session.session import machine_target

# the package's `boards` is the function in it
boards_module = importlib.import_module("edgec_devices.boards")


def test_boards_are_what_is_in_the_folder(profiles: Path) -> None:
    (profiles / "attic.toml").write_text(ATTIC)
    assert boards() == ("attic",)
    assert Board.load("attic").clock_ghz == 2


@pytest.mark.parametrize("name", boards())
def test_every_profile_is_complete(name: str) -> None:
    b = Board.load(name)
    assert b.name == name
    assert 0.5 < b.clock_ghz < 6
    assert 0.2 < b.ipc < 4
    assert b.targets[0] == b.target() == b.target(b.targets[0].name)
    if name == "host":
        assert [t.name for t in b.targets] == [machine_target()]
        return
    assert b.targets[0].library == "aarch64-linux-gnu.2.28"
    assert b.targets[0].program == "aarch64-linux-musl"
    # QEMU lacks some cores.
    assert b.targets[0].qemu_cpu.replace("-", "_") in (b.targets[0].mcpu, "max")
    assert [t.name for t in b.targets] == ["linux-aarch64"]
    assert [t.name for t in b.optional] in ([], ["linux-armv7"])


def test_facts() -> None:
    assert Board.load("pi4").coral == "usb3"
    assert Board.load("pi3").coral == Board.load("pi-zero2").coral == "usb2"
    assert Board.load("coral-dev-board").coral == "pcie"
    for name in ("pi-zero2", "pi3", "pi4"):
        assert [t.name for t in Board.load(name).optional] == ["linux-armv7"]
    assert not Board.load("pi5").optional


ATTIC = """
model = "in the attic"
clock_ghz = 2
coral = "usb3"
ipc = 1.5
core = "cortex_a72"
caches = [{ kib = 32, ways = 2, foreseen = 1, missed = 8 }]

[[targets]]
name = "linux-aarch64"
library = "aarch64-linux-gnu.2.28"
program = "aarch64-linux-musl"
mcpu = "cortex_a72"
qemu = "qemu-aarch64"
qemu_cpu = "cortex-a72"
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of profiles in place of edgec's."""
    monkeypatch.setattr(boards_module, "PROFILES", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ('"usb3"', '"usb4"', "Invalid enum value 'usb4' - at `$.coral`"),
        ('coral = "usb3"', "", "missing required field `coral`"),
        ("ipc", "ips", "unknown field `ips`"),
        ("missed", "lost", "unknown field `lost` - at `$.caches[0]`"),
        ("= 1.5", '= "fast"', "Expected `float`, got `str` - at `$.ipc`"),
        ("ipc = ", "ipc ", "cannot read attic.toml"),
        ("clock_ghz = 2", "clock_ghz = 0", "Expected `float` > 0"),
        ("mcpu", "cpu", "at `$.targets[0]`"),
        ("[[targets]]", "[[optional]]", "missing required field `targets`"),
        (
            'core = "cortex_a72"',
            'core = "cortex_a73"',
            'the core "cortex_a73", which has no file; did you mean "cortex_a7',
        ),
    ],
)
def test_a_profile_that_is_wrong(
    right: str, wrong: str, what: str, profiles: Path
) -> None:
    path = profiles / "attic.toml"
    path.write_text(ATTIC.replace(right, wrong, 1))
    with pytest.raises(InputError) as e:
        Target.parse("attic+coral")
    assert what in e.value.what
    assert e.value.at == str(path)
    assert "docs/boards.md" in str(e.value.hint)


def test_host_without_avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards_module, "machine_target", lambda: "linux-x86_64")
    for avx2, cpu in ((True, "x86_64_v3"), (False, "x86_64_v2")):
        monkeypatch.setattr(boards_module, "_has_avx2", lambda found=avx2: found)
        assert Board.load("host").target().mcpu == cpu


def test_host_of_a_kind_that_we_do_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards_module, "machine_target", lambda: "linux-riscv64")
    with pytest.raises(InputError, match="linux-riscv64"):
        Board.load("host")


@pytest.mark.parametrize(
    ("text", "board", "coral"), [("pi4", "pi4", False), ("pi4+coral", "pi4", True)]
)
def test_targets(text: str, board: str, coral: bool) -> None:
    t = Target.parse(text)
    assert (t.board.name, t.coral, t.name) == (board, coral, text)


@pytest.mark.parametrize(
    ("text", "name", "model"),
    [
        ("cm5", "pi5", "Raspberry Pi 5"),
        ("pi500+coral", "pi5+coral", "Raspberry Pi 5"),
        ("rock-5b", "rk3588", "Rockchip RK3588"),
        ("radxa-zero3+coral", "rk3566+coral", "Rockchip RK3566"),
    ],
)
def test_another_name_of_a_board(text: str, name: str, model: str) -> None:
    t = Target.parse(text)
    assert (t.name, t.board.model) == (name, model)
    device = device_for(f"emulated:{text.partition('+')[0]}")
    assert device.url == f"emulated:{t.board.name}"


def test_no_two_boards_have_one_name() -> None:
    names = [*boards()]
    for board in map(Board.load, boards()):
        names += board.names
    assert len(names) == len({*names})


def test_the_page_of_targets_has_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text()
    for board in map(Board.load, boards()):
        for name in (board.name, *board.names):
            assert f"`{name}`" in page, name


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("cm6", 'there is no board "cm6"; did you mean "cm5"'),
        ("pi9", 'there is no board "pi9"; did you mean "pi'),
        ("", 'there is no board ""'),
        ("../pi4", 'there is no board "../pi4"'),
        ("raspberrypi4", 'did you mean "pi4"?'),
        ("Raspberry-Pi-5", 'did you mean "pi5"?'),
        ("raspberry pi zero 2", 'did you mean "pi-zero2"?'),
        ("rpi4coral", 'did you mean "pi4+coral"?'),
        ("PI5+CORAL", 'did you mean "pi5"?'),
        ("pi5+CORAL", '"+CORAL" is not known; did you mean "coral"?'),
        ("pi4+corl", '"+corl" is not known; did you mean "coral"?'),
        ("pi4+", '"+" is not known'),
    ],
)
def test_targets_that_are_none(text: str, what: str) -> None:
    with pytest.raises(InputError) as e:
        Target.parse(text)
    assert what in e.value.what
    assert e.value.hint


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("emulatd:pi4", 'did you mean "emulated"'),
        ("pi4", '"pi4" is not a device'),
        ("__init__:", "is not a device"),
        ("emulated:", "names no board"),
        ("emulated:pi44", 'did you mean "pi4"'),
        ("emulated:pi4/linux-armv8", 'did you mean "linux-armv7"'),
        ("local:fast", "is not a way to run"),
    ],
)
def test_urls_that_are_none(url: str, what: str) -> None:
    with pytest.raises(InputError) as e:
        device_for(url)
    assert what in str(e.value)


@pytest.mark.parametrize("url", ["local:", "emulated:pi4", "emulated:pi4/linux-armv7"])
def test_urls(url: str) -> None:
    assert device_for(url).url == url


def test_local_may_be_written_without_its_colon() -> None:
    assert device_for("local").url == "local:"
