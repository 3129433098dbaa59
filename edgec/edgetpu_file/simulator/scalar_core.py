"""The scalar core: it reads the program, and starts what the other units do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from edgec.edgetpu_file.programs import TILES, WIDE_UNIT, tiles_of
from edgec.edgetpu_file.simulator.chip import (
    ROW,
    UNITS,
    Chip,
    Condition,
    NotUnderstoodError,
    StuckError,
    Unit,
    Work,
)
from edgec.edgetpu_file.simulator.compute import compute
from edgec.edgetpu_file.simulator.copies import (
    narrow_to_wide,
    receive,
    send,
    wide_to_narrow,
)
from edgec.edgetpu_file.simulator.curves import load_curve
from edgec.edgetpu_file.simulator.host import INPUT, PARAMETERS, Host
from edgec.edgetpu_file.simulator.mesh import mesh
from edgec.edgetpu_file.stream import Instruction

_REGISTERS = 32
_MASK32 = (1 << 32) - 1
_WORD = 4
"""Bytes of a unit of what an outfeed puts into the buffer of parameters."""
_ACTIVATION_UNIT = 8
"""Bytes of a unit of activations in an infeed or outfeed."""
_TO_INFEED, _TO_HOST = 1, 3
"""Where an outfeed sends to."""
_PRODUCER_A, _PRODUCER_B = 5, 6
"""Counters of the scalar core: what tiles have sent to receive_a, and to receive_b."""
_COPY_FENCE = 5
"""The bit of a fence that is for narrow_to_wide or send: sources differ, so here it is
for all units that copy within a tile or send."""
_OF_TILES: dict[str, Callable[[Chip, int, Instruction], Work]] = {
    "compute": compute,
    "compute_most": compute,
    "compute_sum": compute,
    "curve": load_curve,
    "receive_a": receive,
    "receive_b": receive,
    "send": send,
    "narrow_to_wide": narrow_to_wide,
    "wide_to_narrow": wide_to_narrow,
    "mesh_south": mesh,
    "mesh_west": mesh,
    "mesh_north": mesh,
    "mesh_east": mesh,
}
_COMPUTING = frozenset({"compute_most", "compute_sum", "curve"})
"""What the unit `compute` executes beside the instructions of its name."""
_MOVE_REGISTER, _MOVE_IMMEDIATE = 0x0F, 0x2F
_ADD, _AND, _LESS, _DIFFERS = 0x21, 0x23, 0x2C, 0x0A
_PREDICATES = 8
_PUSH, _REQUEST = 0xA, 0xC


class ScalarCore:
    """The scalar core with the units beside it: infeed, outfeed and the tiles' queue."""

    def __init__(self, chip: Chip, host: Host) -> None:
        """Begin a program."""
        self._chip = chip
        self._host = host
        self._registers = [0] * _REGISTERS
        self._predicates = [False] * _PREDICATES
        self._request = [0] * 4
        self._for_tiles = deque[Instruction]()
        self._signals = 0
        self._infeed, self._outfeed = Unit("infeed"), Unit("outfeed")
        self._outfed = bytearray()
        self._sends = [0, 0]
        self._halted = False

    def run(self, instructions: Sequence[Instruction]) -> None:
        """Execute a program whose instructions `check` has passed.

        Raises:
            NotUnderstoodError: an instruction is not understood
            StuckError: the program does not come to its end
        """
        for i in instructions:
            if i.name == "scalar":
                self._scalar(i)
            elif i.name in _OF_TILES or i.name == "tile_fence":
                self._for_tiles.append(i)
            elif i.name == "infeed":
                self._infeed.queue.append((i, self._send_in(i)))
            elif i.name == "outfeed":
                self._outfeed.queue.append((i, self._send_out(i)))
            elif i.name == "scalar_fence":
                self._fence(i)
            elif i.name == "halt":
                self._finish(i)
                return

    def _scalar(self, i: Instruction) -> None:
        """Execute a word: what it sends sees the registers as they were before it."""
        if i.value("if") and self._predicates[i.value("predicate")] != i.value("is"):
            return
        act = i.value("act")
        if act == _PUSH:
            at = i.value("act.at")
            if at >= len(self._request):
                raise NotUnderstoodError(i, f"a request has no part {at}")
            self._request[at] = self._registers[i.value("act.register")]
        elif act == _REQUEST:
            low, high, size, tag = self._request
            problem = self._host.request(high << 32 | low, size, tag)
            if problem:
                raise NotUnderstoodError(i, problem)
        elif act:
            raise NotUnderstoodError(i, f"act={act:#x}")
        self._calculate(i)

    def _calculate(self, i: Instruction) -> None:
        """Set a register or a predicate."""
        alu, value, to = i.value("alu"), i.value("immediate"), i.value("alu.to")
        source = self._registers[i.value("alu.from")]
        if alu == _LESS and to < _PREDICATES:
            self._predicates[to] = _signed(source) < _signed(value)
        elif alu == _DIFFERS and to < _PREDICATES and value < _REGISTERS:
            self._predicates[to] = source != self._registers[value]
        elif alu == _ADD:
            self._registers[to] = (source + value) & _MASK32
        elif alu == _AND:
            self._registers[to] = source & value
        elif alu == _MOVE_IMMEDIATE:
            self._registers[to] = value
        elif alu == _MOVE_REGISTER and value < _REGISTERS:
            self._registers[to] = self._registers[value]
        elif alu or value:
            raise NotUnderstoodError(i, f"alu={alu:#x} immediate={value:#x}")

    def _send_in(self, i: Instruction) -> Work:
        """Send a part of what has arrived to tiles, in packets."""
        chip = self._chip
        activations, outfed = i.value("activations"), i.value("outfed")
        unit = _ACTIVATION_UNIT if activations else _WORD if outfed else WIDE_UNIT
        arrived = self._host.arrived[INPUT if activations else PARAMETERS]
        if outfed:
            arrived = self._outfed
        size = unit * self._units_of(i)
        begin = unit * (i.value("wait") - 1)
        # What is outfed is at the buffer's begin, and the count of its words goes on.
        first = 0 if outfed else begin // unit % 2048
        if not activations and first != i.value("buffer"):
            raise NotUnderstoodError(i, "it sends other parameters than it waits for")
        lane = _WORD * (i.value("words_more") + 1)
        packet = lane * (i.value("lanes_more") + 1)
        if (activations and outfed) or (packet > lane and lane != WIDE_UNIT):
            raise NotUnderstoodError(i, f"its packets have lanes of {lane} bytes")
        if begin < 0:
            raise NotUnderstoodError(i, "it waits for nothing")
        yield lambda: len(arrived) >= begin + size
        for at in range(begin, begin + size, packet):
            data = bytes(arrived[at : min(at + packet, begin + size)])
            for tile in tiles_of(i.value("to_tiles")):
                chip.packets[tile, "receive_a"].append(data)

    def _units_of(self, i: Instruction) -> int:
        if not i.value("buffer.more0"):
            return 1
        whole = (i.value("buffer.more0") + 1) * i.value("buffer.more1")
        if i.value("?203"):
            return whole + i.value("last_more") + 1
        return whole + i.value("buffer.more0") + 1

    def _send_out(self, i: Instruction) -> Work:
        """Send packets that tiles have sent to the host, or to the infeed."""
        to = i.value("to")
        if to not in (_TO_HOST, _TO_INFEED):
            raise NotUnderstoodError(i, f"its field to is {to}")
        units = (i.value("units.more0") + 1) * (i.value("units.more1") + 1)
        size = (_ACTIVATION_UNIT if to == _TO_HOST else _WORD) * units
        packets = self._chip.packets_to_scalar_core
        while size > 0:
            yield lambda: bool(packets)
            data = packets.popleft()[: min(size, ROW)]
            size -= len(data)
            if to == _TO_INFEED:
                self._outfed += data
                continue
            problem = self._host.send(data)
            if problem:
                raise NotUnderstoodError(i, problem)

    def _until(self, condition: Condition, i: Instruction) -> None:
        """Let everything work until a condition holds."""
        while not condition():
            moved = self._infeed.advance()
            moved |= self._dispatch()
            moved |= self._chip.run()
            moved |= self._outfeed.advance()
            if not moved:
                raise StuckError(self._stuck(i))

    def _stuck(self, i: Instruction) -> str:
        """Return a sentence that names the units which wait for ever."""
        units = (self._infeed, *self._chip.units.values(), self._outfeed)
        waiting = [f"{u.name} (word {u.queue[0][0].word})" for u in units if not u.idle]
        return (
            f"the program does not go on at word {i.word}; of {len(waiting)} units that "
            f"wait the first are {', '.join(waiting[:4])}"
        )

    def _dispatch(self) -> bool:
        """Give the tiles' units their instructions, up to a fence that waits."""
        moved = False
        while self._for_tiles:
            i = self._for_tiles[0]
            if i.name == "tile_fence":
                if not self._all_idle(i):
                    return moved
                self._set_counters(i)
            else:
                for tile in tiles_of(i.value("tiles")):
                    work = _OF_TILES[i.name](self._chip, tile, i)
                    name = "compute" if i.name in _COMPUTING else i.name
                    self._chip.units[tile, name].queue.append((i, work))
            self._for_tiles.popleft()
            moved = True
        return moved

    def _all_idle(self, i: Instruction) -> bool:
        units = i.value("units")
        names = [name for k, name in enumerate(UNITS) if units >> k & 1]
        if units >> _COPY_FENCE & 1:
            names += ["wide_to_narrow", "narrow_to_wide", "send"]
        tiles = [*tiles_of(i.value("tiles"))]
        return all(self._chip.units[t, n].idle for t in tiles for n in names)

    def _set_counters(self, i: Instruction) -> None:
        mask = i.value("counters")
        tiles = [*tiles_of(i.value("tiles"))]
        for counter in range(self._chip.counters.shape[1]):
            if mask >> counter & 1:
                self._chip.counters[tiles, counter] = i.value("count")
        self._signals += i.value("signal")

    def _fence(self, i: Instruction) -> None:
        """Wait for the tiles, for the units beside the scalar core, and for counters."""
        if i.value("wait_for_signal"):
            self._until(lambda: self._signals > 0, i)
            self._signals -= 1
        for counter, sent in ((_PRODUCER_A, 0), (_PRODUCER_B, 1)):
            if i.value("wait") >> counter & 1:
                needed = self._sends[sent] + i.value(f"threshold{counter}")
                self._until(partial(self._has_sent, sent, needed), i)
            if i.value("counters") >> counter & 1:
                self._sends[sent] = self._chip.sends[sent]

    def _has_sent(self, kind: int, count: int) -> bool:
        return self._chip.sends[kind] >= count

    def _finish(self, i: Instruction) -> None:
        units = (self._infeed, self._outfeed, *self._chip.units.values())
        self._until(lambda: not self._for_tiles and all(u.idle for u in units), i)
        left = sum(len(self._chip.packets[t, "receive_a"]) for t in range(TILES))
        if left or self._host.wanted:
            raise StuckError("the program ends before all data are sent")


def _signed(value: int) -> int:
    """Return a word of 32 bits as a signed number."""
    return value - (value >> 31 << 32)
