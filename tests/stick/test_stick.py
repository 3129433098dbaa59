"""What a host sees of a stick at its plug, transfer by transfer."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from edgec_devices.stick import Stick, StickOptions
from edgec_devices.stick.descriptors import BOOT, FIRMWARE
from edgec_devices.stick.faults import Fault, Phase, What
from edgec_devices.stick.programs import ProgramBook, stated_pattern
from edgec_devices.stick.rates import Rates
from edgec_runtime.edgetpu_file.executable import AddressOf

from tests.stick.small_programs import (
    IN_BYTES,
    OUT_BYTES,
    SmallProgram,
    transfer,
)
from tests.stick.usbip_client import (
    DESCRIPTORS,
    OUTFEED_CHUNK,
    SCU_CTRL_3,
    STALLED,
    TAKEN_BACK,
    Client,
    GoneError,
    RefusedError,
    awaited,
    listed,
)

INSTRUCTIONS, INPUT, PARAMETERS = range(3)
OUTPUT_IN, EVENT_IN, INTERRUPT_IN = 1, 2, 3
EVENT = struct.pack("<QIB3x", 0, 0, 4)
RUNNING = StickOptions(firmware=True)
DATA = bytes(range(IN_BYTES))
PROGRAM = SmallProgram(7)
OTHER = SmallProgram(9)
SOON_S = 0.15
"""How long a test waits for what must not come."""


@pytest.fixture
def book() -> ProgramBook:
    made = ProgramBook()
    PROGRAM.add_to(made)
    OTHER.add_to(made)
    return made


@pytest.fixture
def client(book: ProgramBook) -> Iterator[tuple[Stick, Client]]:
    """An open stick."""
    with Stick.serve(book, RUNNING) as stick, Client(stick.path) as made:
        made.open_chip()
        yield stick, made


def cache(client: Client, program: SmallProgram = PROGRAM) -> None:
    """Put a program's parameters into the chip."""
    client.send(INSTRUCTIONS, program.caching)
    client.send(PARAMETERS, program.parameters)
    assert client.receive(EVENT_IN, 16) == EVENT


def call(client: Client, program: SmallProgram = PROGRAM, data: bytes = DATA) -> bytes:
    """One inference."""
    client.send(INSTRUCTIONS, program.executing)
    client.send(INPUT, data)
    made = client.receive(OUTPUT_IN, OUT_BYTES)
    assert client.receive(EVENT_IN, 16) == EVENT
    return made


def whole_call(stick: Stick) -> bytes:
    """What a driver does from its start to its first result."""
    with Client(stick.path) as usb:
        usb.open_chip()
        cache(usb)
        return call(usb)


def still_pending(client: Client, number: int) -> bool:
    """Whether a transfer does not end; it is taken back."""
    with pytest.raises(TimeoutError):
        client.end(number, SOON_S)
    return client.take_back(number) == TAKEN_BACK


@pytest.mark.parametrize("super_speed", [True, False])
def test_descriptors(book: ProgramBook, super_speed: bool) -> None:
    """Lengths are right, and packets are those of the port."""
    for firmware, ids in ((True, FIRMWARE), (False, BOOT)):
        options = StickOptions(super_speed=super_speed, firmware=firmware)
        with Stick.serve(book, options) as stick:
            (device,) = listed(stick.path)
            assert device.ids == ids
            assert device.speed == (5 if super_speed else 3)
            with Client(stick.path) as client:
                head = client.control(0x80, 6, 1 << 8, 0, 18)
                assert head is not None
                assert len(head) == head[0] == 18
                assert struct.unpack_from("<HH", head, 8) == ids
                config = client.control(0x80, 6, 2 << 8, 0, 512)
                assert config is not None
                assert len(config) == int.from_bytes(config[2:4], "little")
                check_parts(config, firmware, super_speed)
                objects = client.control(0x80, 6, 15 << 8, 0, 512)
                assert objects is not None
                assert len(objects) == int.from_bytes(objects[2:4], "little")
                assert objects[4] == (2 if super_speed else 1)
                assert client.control(0x80, 6, 9 << 8, 0, 18) is None


def check_parts(config: bytes, firmware: bool, super_speed: bool) -> None:
    """The descriptors in a configuration add up, and name the endpoints."""
    at, endpoints = 0, {}
    while at < len(config):
        if config[at + 1] == 5:
            (packet,) = struct.unpack_from("<H", config, at + 4)
            endpoints[config[at + 2]] = packet
        at += config[at]
    assert at == len(config)
    bulk = 1024 if super_speed else 512
    expected = dict.fromkeys((1, 2, 3, 0x81, 0x82), bulk) | {0x83: 64}
    assert endpoints == (expected if firmware else {})


def test_registers(client: tuple[Stick, Client]) -> None:
    """Sleep empties the core, whose registers then do not answer."""
    _, usb = client
    assert usb.read(0x44018) == 1
    usb.write(SCU_CTRL_3, 3 << 22, 4)
    assert usb.control(0xC0, 0, 0x4018, 4, 8) is None
    usb.write(SCU_CTRL_3, 2 << 22, 4)
    assert usb.read(0x44018) == 0
    usb.write(0x1A500, 0x12345678, 4)
    assert usb.read(0x1A500, 4) == 0x12345678


def test_calls(client: tuple[Stick, Client]) -> None:
    """Parameters stay for the next call; the driver's addresses do not matter."""
    _, usb = client
    cache(usb)
    assert call(usb) == PROGRAM.output(DATA)
    patched = bytearray(PROGRAM.executing)
    patched[13:16] = b"\xaa\xbb\xcc"
    program = SmallProgram(7)
    program.executing = bytes(patched)
    assert call(usb, program, DATA[::-1]) == PROGRAM.output(DATA[::-1])


def test_parameters_of_another_program(client: tuple[Stick, Client]) -> None:
    """Programs with one token keep their parameters beside each other."""
    stick, usb = client
    cache(usb)
    cache(usb, OTHER)
    assert call(usb) == PROGRAM.output(DATA)
    assert call(usb, OTHER) == OTHER.output(DATA)
    usb.open_chip()
    assert call(usb) == stated_pattern([DATA], OUT_BYTES)
    assert any("not in the chip" in line for line in stick.lines)


def test_another_token() -> None:
    """Parameters with another token take the place of all others."""
    book, third = ProgramBook(), SmallProgram(11, token=2)
    PROGRAM.add_to(book)
    third.add_to(book)
    with Stick.serve(book, RUNNING) as stick, Client(stick.path) as usb:
        usb.open_chip()
        cache(usb)
        cache(usb, third)
        assert call(usb, third) == third.output(DATA)
        assert call(usb) == stated_pattern([DATA], OUT_BYTES)


def test_header_and_bytes_in_one_transfer(client: tuple[Stick, Client]) -> None:
    _, usb = client
    cache(usb)
    for tag, data in ((INSTRUCTIONS, PROGRAM.executing), (INPUT, DATA)):
        packet = struct.pack("<IBxxx", len(data), tag) + data
        assert usb.end(usb.begin(1, packet))[0] == 0
    assert usb.receive(OUTPUT_IN, OUT_BYTES) == PROGRAM.output(DATA)


def test_transfers_may_wait(client: tuple[Stick, Client]) -> None:
    """Those inwards before the program, and all of a call at once."""
    _, usb = client
    cache(usb)
    event, output = usb.begin(EVENT_IN, 16), usb.begin(OUTPUT_IN, 4096)
    packets = ((INSTRUCTIONS, PROGRAM.executing), (INPUT, DATA))
    for tag, data in packets:
        usb.begin(1, struct.pack("<IBxxx", len(data), tag))
        usb.begin(1, data)
    assert usb.end(output) == (0, PROGRAM.output(DATA))
    assert usb.end(event) == (0, EVENT)


def test_chunks_at_usb_2(book: ProgramBook) -> None:
    """A chunk that is shorter than a packet ends the transfer."""
    options = StickOptions(super_speed=False, firmware=True)
    with Stick.serve(book, options) as stick, Client(stick.path) as usb:
        usb.open_chip()
        usb.write(OUTFEED_CHUNK, 0x20)
        cache(usb)
        usb.send(INSTRUCTIONS, PROGRAM.executing)
        usb.send(INPUT, DATA)
        parts = [usb.receive(OUTPUT_IN, 4096) for _ in range(4)]
        assert [len(p) for p in parts] == [256] * 4
        assert b"".join(parts) == PROGRAM.output(DATA)


def test_descriptors_of_transfers(client: tuple[Stick, Client]) -> None:
    """With all events on, the chip says which part of which buffer it wants."""
    _, usb = client
    cache(usb)
    usb.write(DESCRIPTORS, 0xFF)
    patched = bytearray(PROGRAM.executing)
    value = int.from_bytes(patched, "little")
    mask = 0xFFFFFFFF << 100
    address = 0x1234_5670
    value = value & ~mask | address << 100
    usb.send(INSTRUCTIONS, value.to_bytes(len(patched), "little"))
    wanted = struct.pack("<QIB3x", address, IN_BYTES, 1)
    assert usb.receive(EVENT_IN, 16) == wanted
    usb.send(INPUT, DATA)
    assert usb.receive(EVENT_IN, 16)[8:13] == struct.pack("<IB", OUT_BYTES, 3)
    assert usb.receive(OUTPUT_IN, OUT_BYTES) == PROGRAM.output(DATA)
    assert usb.receive(EVENT_IN, 16) == EVENT


def test_deadlock(client: tuple[Stick, Client]) -> None:
    """A transfer outwards before the output is taken: nothing answers any more, and a
    reset makes the stick vanish until it is replugged."""
    stick, usb = client
    cache(usb)
    usb.send(INSTRUCTIONS, PROGRAM.executing)
    usb.send(INPUT, DATA)
    usb.begin(1, struct.pack("<IBxxx", 8, INSTRUCTIONS))
    output = usb.begin(OUTPUT_IN, OUT_BYTES)
    register = usb.begin(0, 8, struct.pack("<BBHHH", 0xC0, 0, 0x8788, 4, 8))
    for number in (output, register):
        assert still_pending(usb, number)
    usb.begin(0, b"", struct.pack("<BBHHH", 0x23, 3, 4, 1, 0))
    with pytest.raises(GoneError):
        usb.end(usb.begin(EVENT_IN, 16))
    assert listed(stick.path) == []
    stick.replug()
    awaited(stick.path, BOOT)


def test_inputs_between_outputs() -> None:
    """A program that takes more input after a part of its output: the host must take the
    output first."""
    half = IN_BYTES // 2
    program = SmallProgram(
        5,
        transfers=(
            transfer(AddressOf.INPUT, "x", half),
            transfer(AddressOf.INPUT, "x", half, half),
            transfer(AddressOf.OUTPUT, "y", 100),
            transfer(AddressOf.SCRATCH, "", 64),
            transfer(AddressOf.OUTPUT, "y", OUT_BYTES - 100, 100),
        ),
    )
    book = ProgramBook()
    program.add_to(book)
    with Stick.serve(book, RUNNING) as stick, Client(stick.path) as usb:
        usb.open_chip()
        cache(usb, program)
        usb.send(INSTRUCTIONS, program.executing)
        usb.send(INPUT, DATA[:half])
        usb.send(INPUT, DATA[half:])
        first = usb.receive(OUTPUT_IN, OUT_BYTES)
        assert len(first) == 100
        usb.send(INPUT, bytes(64))
        rest = usb.receive(OUTPUT_IN, OUT_BYTES)
        assert first + rest == program.output(DATA)
        assert usb.receive(EVENT_IN, 16) == EVENT


@pytest.mark.parametrize(
    ("tag", "data", "message"),
    [
        (INPUT, DATA, "without a program"),
        (INSTRUCTIONS, bytes(32), "does not know"),
        (9, b"x", "tag 9"),
    ],
    ids=["input first", "unknown", "tag"],
)
def test_what_stalls_the_chip(
    client: tuple[Stick, Client], tag: int, data: bytes, message: str
) -> None:
    """Registers still answer, and the open sequence brings the chip back."""
    stick, usb = client
    usb.send(tag, data)
    assert still_pending(usb, usb.begin(1, bytes(8)))
    assert any(message in line for line in stick.lines)
    usb.open_chip()
    cache(usb)
    assert call(usb) == PROGRAM.output(DATA)


def test_an_input_of_another_length(client: tuple[Stick, Client]) -> None:
    stick, usb = client
    cache(usb)
    usb.send(INSTRUCTIONS, PROGRAM.executing)
    usb.send(INPUT, DATA[:-1])
    assert still_pending(usb, usb.begin(OUTPUT_IN, OUT_BYTES))
    assert any(f"expects {IN_BYTES} bytes" in line for line in stick.lines)


def test_instructions_wait_for_the_engines(book: ProgramBook) -> None:
    with Stick.serve(book, RUNNING) as stick, Client(stick.path) as usb:
        assert still_pending(usb, usb.begin(1, struct.pack("<IBxxx", 128, 0)))


def test_a_second_client(client: tuple[Stick, Client]) -> None:
    stick, _ = client
    with pytest.raises(RefusedError, match="2"):
        Client(stick.path)
    with pytest.raises(RefusedError, match="4"):
        Client(stick.path, "1-2")


def test_tcp(book: ProgramBook) -> None:
    with Stick.serve(book, StickOptions(tcp=0)) as stick:
        assert listed(stick.port) == listed(stick.path)


def test_unknown_firmware(book: ProgramBook) -> None:
    """The boot loader takes the blocks and refuses them at the end."""
    with Stick.serve(book) as stick, Client(stick.path) as usb:
        assert usb.end(usb.begin(1, b"x"))[0] == STALLED
        for number, block in enumerate((bytes(256), bytes(10))):
            assert usb.control(0x21, 1, number, 0, block) == b""
            assert usb.control(0xA1, 3, 0, 0, 6) == bytes((0, 0, 0, 0, 5, 0))
        assert usb.control(0x21, 1, 2, 0) == b""
        assert usb.control(0xA1, 3, 0, 0, 6) == bytes((10, 0, 0, 0, 10, 0))
        assert usb.control(0x21, 4, 0, 0) == b""
        blocks = [usb.control(0xA1, 2, n, 0, 256) for n in range(129)]
        assert blocks[0] == bytes(256)
        assert [len(b or b"") for b in blocks] == [256] * 128 + [0]
        usb.reset()
        assert usb.control(0xA1, 5, 0, 0, 1) == b"\2"
    assert any("refuses firmware of 266 bytes" in line for line in stick.lines)


def test_detach(book: ProgramBook) -> None:
    """The firmware gives way to the boot loader at the reset after a detach."""
    with Stick.serve(book, RUNNING) as stick, Client(stick.path) as usb:
        usb.reset()
        assert usb.control(0x80, 8, 0, 0, 1) == b"\0"
        assert usb.control(0x21, 0, 1000, 0) == b""
        usb.reset()
        awaited(stick.path, BOOT)


@pytest.mark.parametrize("what", [What.UNPLUG, What.BROWN_OUT])
@pytest.mark.parametrize(
    "phase",
    [
        Phase.IMPORT,
        Phase.REGISTER,
        Phase.PARAMETERS,
        Phase.INSTRUCTIONS,
        Phase.INPUT,
        Phase.OUTPUT,
        Phase.EVENT,
    ],
)
def test_unplugged(book: ProgramBook, what: What, phase: Phase) -> None:
    """The connection ends, and the stick comes back in its boot loader."""
    options = StickOptions(firmware=True, faults=(Fault(what, phase, 1, 0.05),))
    with Stick.serve(book, options) as stick:
        with pytest.raises((GoneError, RefusedError)):
            whole_call(stick)
        awaited(stick.path, BOOT)


def test_stalled_and_recovered(client: tuple[Stick, Client]) -> None:
    """Drained and opened again, the stick is as before."""
    stick, usb = client
    cache(usb)
    stick.plan([Fault(What.STALL, Phase.INPUT)])
    usb.send(INSTRUCTIONS, PROGRAM.executing)
    usb.send(INPUT, DATA)
    assert still_pending(usb, usb.begin(OUTPUT_IN, OUT_BYTES))
    assert still_pending(usb, usb.begin(EVENT_IN, 16))
    usb.open_chip()
    cache(usb)
    assert call(usb) == PROGRAM.output(DATA)


def test_wrong_lengths_and_lost_events(client: tuple[Stick, Client]) -> None:
    stick, usb = client
    cache(usb)
    faults = [Fault(What.SHORT, Phase.OUTPUT), Fault(What.LOSE, Phase.EVENT)]
    stick.plan(faults)
    usb.send(INSTRUCTIONS, PROGRAM.executing)
    usb.send(INPUT, DATA)
    assert usb.receive(OUTPUT_IN, OUT_BYTES) == PROGRAM.output(DATA)[:-8]
    assert still_pending(usb, usb.begin(EVENT_IN, 16))
    stick.plan([Fault(What.LOSE, Phase.OUTPUT), Fault(What.SHORT, Phase.EVENT)])
    usb.send(INSTRUCTIONS, PROGRAM.executing)
    usb.send(INPUT, DATA)
    assert usb.receive(EVENT_IN, 16) == EVENT[:-8]
    assert call(usb) == PROGRAM.output(DATA)


def test_heat(client: tuple[Stick, Client]) -> None:
    """The fourth top-level interrupt; the warning stays until it is cleared."""
    stick, usb = client
    cache(usb)
    stick.plan([Fault(What.HEAT, Phase.INPUT)])
    assert call(usb) == PROGRAM.output(DATA)
    assert usb.receive(INTERRUPT_IN, 4) == bytes((0x10, 0, 0, 0))
    assert usb.read(0x1A0DC, 4) == 1 << 31
    usb.write(0x1A0DC, 1 << 31 | 1 << 29, 4)
    assert usb.read(0x1A0DC, 4) == 0


def test_hang(client: tuple[Stick, Client]) -> None:
    stick, usb = client
    stick.plan([Fault(What.HANG, Phase.REGISTER)])
    setup = struct.pack("<BBHHH", 0xC0, 0, 0x8788, 4, 8)
    assert still_pending(usb, usb.begin(0, 8, setup))


def test_rates(book: ProgramBook) -> None:
    """Both directions take their time, and a transfer can be taken back on its way."""
    rates = Rates(outwards=1000.0, inwards=20_000.0)
    options = StickOptions(firmware=True, rates=rates)
    with Stick.serve(book, options) as stick, Client(stick.path) as usb:
        usb.open_chip()
        start = time.monotonic()
        cache(usb)
        sent = time.monotonic()
        assert sent - start > 0.9 * (128 + 200) / 1000
        late = usb.begin(1, struct.pack("<IBxxx", 128, INSTRUCTIONS))
        assert usb.take_back(late) == TAKEN_BACK
        sent = time.monotonic()
        assert call(usb) == PROGRAM.output(DATA)
        assert time.monotonic() - sent > 0.9 * (192 / 1000 + OUT_BYTES / 20_000)
