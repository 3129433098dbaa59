"""The device end: answers the host's requests about slots until the host says goodbye
(docs/protocol.md).

This is part of what the host sends over the link and starts there, see wire.py.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import select
import signal
import site
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from edgec_runtime.device_end.bundles import MAX_FILES, MODEL, machine_target
from edgec_runtime.device_end.disk import (
    Disk,
    Refused,
    make_folder,
    opened,
    refusal,
    replace,
)
from edgec_runtime.device_end.facts import collect, identity
from edgec_runtime.device_end.incoming import App, WritePlan
from edgec_runtime.device_end.packed import one_file
from edgec_runtime.device_end.printable import printable
from edgec_runtime.device_end.running import MAX_OUTPUT_BYTES, TooMuch, environment, run
from edgec_runtime.device_end.showing import Showing
from edgec_runtime.device_end.slots import SCRATCH, recover_all
from edgec_runtime.device_end.trust import (
    FOLDER,
    MAX_SIGNATURE_BYTES,
    SYSTEM_FOLDER,
    Key,
    administered,
)
from edgec_runtime.device_end.units import Units
from edgec_runtime.device_end.vitals import VitalsWatch
from edgec_runtime.device_end.wheels import WheelSite
from edgec_runtime.device_end.wire import MAX_MESSAGE, PROTOCOL, Delivery, pack, unpack

VERSION = 1  # of the requests; raised with each that is added
TIMING = (
    "--runs",
    "--seconds",
    "--warmup",
    "--profile",
    "--threads",
    "--stream",
)  # options of main.c that a host may give
IDLE_S = 90.0  # without a word from the host, the console is given back
LONGEST_S = 7 * 86400.0  # for which a host may let a program run
BEAT_S = 2.0  # between two signs of life while a program runs
Execute = Callable[..., "subprocess.CompletedProcess[bytes]"]
Answer = Tuple[Dict[str, Any], bytes]


class Service:
    """Answers the requests of a host, without I/O of its own: bytes in, bytes out.

    It first repairs whatever an interruption left in any application's folder.

    Args:
        execute: running.run, or a test's replacement
        sha: hash of the device end
        source: its text
    """

    def __init__(
        self,
        root: str,
        disk: Optional[Disk] = None,
        execute: Execute = run,
        sha: str = "",
        source: str = "",
    ) -> None:
        self.root = root
        self.disk = disk or Disk()
        self.execute = execute
        self.units = Units(root, self.disk, execute, source=source)
        # where the host is heard: a program ends when it is closed
        self.listen: Optional[int] = None
        recover_all(root, self.disk)
        greeting = {"protocol": [PROTOCOL, PROTOCOL], "agent": VERSION, "sha256": sha}
        self.delivery = Delivery(True, json.dumps(greeting).encode())
        self.app: Optional[App] = None
        self.showing: Optional[Showing] = None
        # to the stream, while a request is worked on
        self.write: Callable[[bytes], None] = lambda data: None

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes of the stream, and do the requests in them."""
        self.hear(data, now)
        self.work()

    def hear(self, data: bytes, now: float) -> None:
        """Take bytes of the stream; work() does the requests in them."""
        session = self.delivery.session
        self.delivery.receive(data, now)
        if self.delivery.session != session:
            self.close()
            self._tune()

    def work(self) -> None:
        """Do the waiting requests."""
        while self.delivery.messages:
            self._answer(self.delivery.messages.popleft())

    def close(self) -> None:
        """Let other hosts flash, and end the show."""
        if self.app:
            self.app.close()
        if self.showing:
            self.showing.end()
        self.app = self.showing = None

    def _tune(self) -> None:
        with contextlib.suppress(
            ValueError, TypeError, KeyError, OverflowError, RecursionError
        ):
            line = json.loads(self.delivery.peer or b"{}")
            self.delivery.tune(
                int(line["chunk"]), int(line["window"]), float(line["rate"])
            )

    def _answer(self, message: bytes) -> None:
        head: Dict[str, Any] = {}
        try:
            head, blob = unpack(message)
            do = getattr(self, f"do_{head.get('do')}", None)
            if do is None:
                raise Refused(
                    "device",
                    f"the device end has no {head.get('do')!r:.40}",
                    f"needs edgec-agent > {VERSION}",
                )
            answer = do(head, blob)
        except Refused as e:
            answer = {"error": {"kind": e.kind, "what": e.what, "hint": e.hint}}, b""
        except BrokenPipeError:  # nobody listens any more
            self.delivery.closed = True
            return
        except OSError as e:
            r = refusal(e)
            answer = {"error": {"kind": r.kind, "what": r.what, "hint": r.hint}}, b""
        except Exception as e:
            # a request that no host of ours makes, or our bug: the other slots stay as
            # they are
            what = f"the device end failed: {type(e).__name__}: {e}"
            answer = (
                {"error": {"kind": "device", "what": what, "hint": "report it"}},
                b"",
            )
        if answer is not None:
            self.delivery.send(pack({**answer[0], "id": head.get("id", 0)}, answer[1]))

    def _open(self, head: Dict[str, Any], lock: bool = True) -> App:
        if self.app is None or self.app.name != head["app"]:
            self.close()
            self.app = App(self.root, head["app"], self.disk)
        if lock:
            self.app.lock()
        return self.app

    # ---- the requests

    def do_info(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Return the identity of this device."""
        folder = self.root
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        room = os.statvfs(folder)
        return {
            **identity(),
            "target": machine_target(),
            "python": platform.python_version(),
            "page": os.sysconf("SC_PAGE_SIZE"),
            "free": room.f_bavail * room.f_frsize,
            "root": self.root,
        }, b""

    def do_facts(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Return the facts of this device for `edgec doctor`."""
        if sys.flags.no_site:
            # we were started without it, and look for packages where every other Python
            # does
            site.main()
        return {"facts": collect(self.root, execute=self.execute)}, b""

    def do_begin(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Prepare for a bundle; return its lacking parts. The blob is its glue."""
        app = self._open(head)
        plan = WritePlan(head.get("recipe"), blob)
        for slot in (
            app.active(),
            *((app.inactive(), SCRATCH) if head.get("scratch") else ()),
        ):
            state = app.whole(slot) if slot else None
            if slot and state and state["sha256"] == plan.sha256:
                app.verified(slot)
                return {"same": slot}, b""
        return {"lacks": app.begin(plan)}, b""

    def do_put(self, head: Dict[str, Any], blob: bytes) -> Optional[Answer]:
        """A piece of a part.  Answered only when it fails."""
        self._open(head).put(head["part"], head["at"], blob)
        return None

    def do_install(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Everything is here: write it to `try`."""
        self._open(head).install(head.get("allow_downgrade") is True)
        return {"slot": SCRATCH}, b""

    def do_activate(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Make the version in `try` the active one, in place of the inactive slot."""
        app = self._open(head)
        return {
            "active": app.activate(head.get("allow_downgrade") is True),
            "service": self.units.refresh(app.name),
        }, b""

    def do_discard(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Discard the version in `try`."""
        self._open(head).discard()
        return {}, b""

    def do_rollback(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Go back to the other slot."""
        app = self._open(head)
        return {"active": app.rollback(), "service": self.units.refresh(app.name)}, b""

    def do_service(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Have systemd run the active slot.  check: only whether it could."""
        app = self._open(head, lock=not head.get("check"))
        if head.get("check"):
            self.units.check(app.name)
            return {}, b""
        app.program(self.slot(app, {}))
        return self.units.install(app.name), b""

    @staticmethod
    def slot(app: App, head: Dict[str, Any]) -> str:
        """Return the named slot, the active one by default."""
        slot = app.active() if head.get("slot") is None else head["slot"]
        if slot is None:
            raise Refused("input", f"{app.name} has no active slot", "edgec flash")
        return str(slot)

    def do_trust(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Take only bundles signed with this key, or with another trusted one, from now
        on.
        """
        try:
            key = Key.parse(blob.decode())
        except ValueError as e:
            raise Refused(
                "input",
                f"the key cannot be read: {e}",
                "give the .pub file of edgec sign --new-key",
            ) from e
        if administered():
            what = f"on this device only the administrator's keys count, in {SYSTEM_FOLDER}"
            raise Refused(
                "input", what, f"sudo cp the key to {SYSTEM_FOLDER} on the device"
            )
        folder = os.path.join(self.root, FOLDER)
        path = os.path.join(folder, f"{key.public.hex()[:16]}.pub")
        make_folder(self.disk, folder)
        replace(self.disk, path, key.line.encode())
        return {"path": path, "fingerprint": key.fingerprint}, b""

    def do_site(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Return the wheels of an application."""
        site = WheelSite(self._open(head, lock=False), self.execute)
        return {"wheels": site.there(), "active": site.active()}, b""

    def do_unpack(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """A wheel is here whole: unpack it.

        It is not used yet.  The blob is its signature, or empty.
        """
        return {
            "wheel": WheelSite(self._open(head), self.execute).unpack(
                blob[:MAX_SIGNATURE_BYTES]
            )
        }, b""

    def do_adopt(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Use these wheels, if they work together."""
        return WheelSite(self._open(head), self.execute).adopt(head["wheels"]), b""

    def do_status(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """All applications and their slots."""
        there = sorted(os.listdir(self.root)) if os.path.isdir(self.root) else []
        apps = []
        for name in there:
            with contextlib.suppress(Refused):
                apps.append(App(self.root, name, self.disk).status())
        return {"apps": [a for a in apps if a["slots"]]}, b""

    def do_show(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Start a webcam with these slots.

        The blob is the picture that the effect names, or empty.
        """
        self.close()
        self.showing = Showing(self.root, self.disk, head, blob)
        return {}, b""

    def do_shown(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Return the state of the show.

        Args:
            end: whether to end it first
        """
        if self.showing is None:
            raise Refused("input", "nothing is shown", "start it again")
        if not head.get("end"):
            return self.showing.state(), b""
        found = self.showing.finish()
        self.showing = None
        return found, b""

    def do_run(self, head: Dict[str, Any], blob: bytes) -> Answer:
        """Run a slot's program.

        The blob is input files of the sizes in "inputs"; the answer has outputs
        likewise.

        options: how it is timed.  watch: read the device's vitals, too.  launched: the
        program is told when it was started, for the time that it takes to load.
        """
        app = self._open(head)
        slot = self.slot(app, head)
        start = app.program(slot)
        env = environment(bool(app.trusted()))
        if head.get("session"):
            site = WheelSite(app, self.execute)
            if not site.active():
                raise Refused(
                    "input",
                    f"{app.name} has no runtime on the device",
                    "edgec flash --with-runtime",
                )
            start = [sys.executable, "-m", "edgec_runtime", app.at(slot, MODEL)]
            env = site.environment(site.active())
        # here, as what only some requests need: a slow board takes long to import it
        import tempfile

        with tempfile.TemporaryDirectory(prefix="edgec-") as folder:
            command = [
                *start,
                *_timing(head.get("options", ())),
                "--json",
                "--output",
                folder,
            ]
            names: List[str] = []
            for size in _sizes(head, blob):
                names.append(os.path.join(folder, f"input{len(names)}.npy"))
                with open(names[-1], "wb") as f:
                    f.write(blob[:size])
                blob = blob[size:]
            if names:
                command += ["--input", *names]
            said: Dict[str, Any] = {}
            if head.get("watch"):
                with VitalsWatch(execute=self.execute) as watch:
                    done = self._execute(command, folder, env, head)
                said["vitals"] = watch.as_dict()
            else:
                done = self._execute(command, folder, env, head)
            outputs = []
            room = MAX_MESSAGE - MAX_OUTPUT_BYTES
            for i in range(int(head.get("outputs", 0)) if done.returncode == 0 else 0):
                with opened(os.path.join(folder, f"output{i}.npy"), room) as f:
                    outputs.append(f.read(room))
                room -= len(outputs[-1])
        said.update(status=done.returncode, outputs=[len(o) for o in outputs])
        said["error_output"] = done.stderr.decode(errors="replace")[-2000:]
        return {**said, "report": done.stdout.decode(errors="replace")}, b"".join(
            outputs
        )

    def _execute(
        self,
        command: List[str],
        folder: str,
        env: Optional[Dict[str, str]],
        head: Dict[str, Any],
    ) -> "subprocess.CompletedProcess[bytes]":
        """The program, in this folder.  Raises Refused when it takes too long."""
        if head.get("launched"):
            command = [*command, "--launched", str(time.monotonic_ns())]
        try:
            with self._beating():
                return self.execute(
                    command,
                    cwd=folder,
                    env=env,
                    timeout=_limit(head),
                    listen=self.listen,
                )
        except TooMuch as e:
            raise Refused("device", str(e), "compile the model again") from None
        except subprocess.TimeoutExpired:
            what = f"the program did not end within {_limit(head):.0f} s"
            raise Refused("device", what, "try fewer runs or a smaller model") from None

    @contextlib.contextmanager
    def _beating(self) -> Iterator[None]:
        """Send signs of life during a program, so that the device does not seem gone."""
        end = threading.Event()

        def beat() -> None:
            while not end.wait(BEAT_S):
                self.write(self.delivery.beat(time.monotonic()))

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def _limit(head: Dict[str, Any]) -> float:
    """Return the seconds that the program may take."""
    limit = head.get("limit")
    if (
        isinstance(limit, bool)
        or not isinstance(limit, (int, float))
        or not 0 < limit <= LONGEST_S
    ):
        raise Refused(
            "input",
            f"the program cannot be given {limit!r:.40} s",
            f"give at most {LONGEST_S:.0f} s",
        )
    return float(limit)


def _sizes(head: Dict[str, Any], blob: bytes) -> List[int]:
    """Return the bytes of each input; together they are the blob."""
    sizes = head.get("inputs", [])
    good = (
        isinstance(sizes, list)
        and len(sizes) <= MAX_FILES
        and all(type(n) is int and n >= 0 for n in sizes)
    )
    if not good or sum(sizes) != len(blob):
        raise Refused(
            "input", "the list of the inputs' sizes is impossible", "update edgec"
        )
    return list(sizes)


def _timing(options: Sequence[Any]) -> List[str]:
    """Return the options that time the program.

    No others: the host does not choose its files.
    """
    words = list(map(str, options))
    if not re.fullmatch(
        rf"(({'|'.join(TIMING)}) \d+(\.\d+)? )*", "".join(f"{w} " for w in words)
    ):
        raise Refused(
            "device",
            f"the program is not run with {' '.join(words):.80}",
            "update edgec",
        )
    return words


def serve(source: int, sink: int, service: Service, idle: float = IDLE_S) -> None:
    """Until the stream ends, the host says goodbye, or nothing is heard for `idle`
    seconds.
    """
    service.write = functools.partial(_write, sink)
    service.listen = source
    try:
        _converse(source, sink, service, idle)
    finally:
        service.close()


def _converse(source: int, sink: int, service: Service, idle: float) -> None:
    heard = time.monotonic()
    while not service.delivery.closed:
        _write(sink, service.delivery.poll(time.monotonic()))
        now = time.monotonic()
        wait = min(service.delivery.wake(), heard + idle) - now
        if select.select([source], [], [], max(wait, 0.0))[0]:
            data = os.read(source, 1 << 16)
            if not data:
                break
            service.hear(data, now)
            # Acknowledged before it is done, which may take longer than the host waits
            # for a line that is silent.
            _write(sink, service.delivery.poll(time.monotonic()))
            service.work()
            if service.delivery.heard == now:
                heard = time.monotonic()
        elif time.monotonic() - heard >= idle:
            break


def _write(sink: int, out: bytes) -> None:
    while out:
        out = out[os.write(sink, out) :]


def verify(root: str, name: str) -> int:
    """Verify the active slot for a service's unit before each start.

    Return the exit code.
    """
    try:
        app = App(root, name, Disk())
        app.program(Service.slot(app, {}))
    except (Refused, OSError) as e:
        r = e if isinstance(e, Refused) else refusal(e)
        print(printable(f"error: {r.what}\n  hint: {r.hint}"), file=sys.stderr)
        return 1
    return 0


def main(sha: str, texts: Dict[str, str]) -> None:
    """Serves standard input and output; a terminal is made transparent and given back
    as it was.

    With the arguments verify, root and application: see verify().  sha, texts: of
    packed.one_file().
    """
    if sys.argv[1:2] == ["verify"]:
        sys.exit(verify(*sys.argv[2:4]))
    os.umask(os.umask(0o022) | 0o022)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    root = os.path.abspath(
        os.path.expanduser(os.environ.get("EDGEC_ROOT") or "~/.edgec")
    )
    service = Service(root, sha=sha, source=one_file(texts, sha))
    if not os.isatty(0):
        serve(0, 1, service)
        return
    import termios
    import tty

    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        serve(0, 1, service)
        termios.tcdrain(1)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
