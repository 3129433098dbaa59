"""Whether `edgec serve` bears cameras for minutes, and bad requests beside them.

Cameras send the fixtures' pictures by Frigate's ZeroMQ at their rate, and every answer is
compared with a Session's; meanwhile damaged messages and HTTP requests arrive, each of
which may only be refused. Markdown on the screen: latencies, losses, memory; the exit code
is 1 if something is wrong. It needs a C compiler, and Linux for the memory.

    python -m benchmarks.serve_load [--minutes 10] [--cameras 20] [--rate 5] [--bad 3000]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import zmq
from edgec_runtime import Session
from edgec_runtime.vision.tasks.instances import Box, Boxes
from numpy.typing import NDArray

from benchmarks.tables import markdown
from fixtures.shapes.pictures import scenes
from tests import builds
from tests.serve.conftest import Picture
from tests.serve.test_zmq import HEAD, Client, expected
from tests.shapes import bundle

ANSWER_MS = 20_000
"""Time after which the client gives an answer up."""


@dataclass
class Tally:
    """What the clients saw.

    Attributes:
        ms: latencies of the cameras' requests
        wrong: answers with other rows than a Session's, or none at all
        late: requests that a camera sent later than its rate asks for
        statuses: first lines of the answers to bad HTTP requests, with their number
    """

    ms: list[float] = field(default_factory=list)
    wrong: int = 0
    late: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Load:
    """A service, and what is sent to it.

    Attributes:
        zmq_address, http_address: of the service
        pictures: uint8 [H, W, 3], and the rows that Frigate must get for them
        end: time at which the cameras stop
        tally: what the clients saw
    """

    zmq_address: str
    http_address: tuple[str, int]
    pictures: list[tuple[Picture, NDArray[np.float32]]]
    end: float
    tally: Tally

    def camera(self, number: int, period: float) -> None:
        """Send pictures until the end, one every `period` seconds."""
        due = time.monotonic() + period * random.Random(number).random()
        turn = number
        with Client(self.zmq_address) as client:
            while due < self.end:
                wait = due - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                picture, rows = self.pictures[turn % len(self.pictures)]
                turn += 1
                begin = time.monotonic()
                try:
                    is_right = np.array_equal(client.detect(picture), rows)
                except zmq.Again:
                    is_right = False
                ms = 1e3 * (time.monotonic() - begin)
                with self.tally.lock:
                    self.tally.ms.append(ms)
                    self.tally.late += wait < -period
                    self.tally.wrong += not is_right
                if ms > ANSWER_MS:
                    break
                due += period

    def bad_messages(self, count: int, pause: float) -> None:
        """Send damaged ZeroMQ messages, each over a connection of its own."""
        rng = random.Random(1)
        context = zmq.Context()
        for _ in range(count):
            client = context.socket(rng.choice((zmq.DEALER, zmq.REQ)))
            client.setsockopt(zmq.LINGER, 500)
            client.connect(self.zmq_address)
            picture, _ = rng.choice(self.pictures)
            good = json.dumps({**HEAD, "shape": [1, *picture.shape]}).encode()
            parts = [damaged(part, rng) for part in (good, picture.tobytes())]
            client.send_multipart(parts)
            client.close()
            time.sleep(pause)
        context.destroy(1000)

    def bad_requests(self, count: int, pause: float) -> None:
        """Send damaged HTTP requests, and note the first lines of the answers."""
        rng = random.Random(2)
        good = (
            b"POST /v1/vision/detection HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 99\r\n\r\n"
            b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
            b"no picture\r\n--x--\r\n"
        )
        for _ in range(count):
            line = "no answer"
            try:
                with socket.create_connection(self.http_address, 20) as connection:
                    connection.sendall(damaged(good, rng))
                    connection.shutdown(socket.SHUT_WR)
                    line = connection.makefile("rb").readline()[:12].decode("latin-1")
            except ConnectionError:
                line = "closed"
            with self.tally.lock:
                self.tally.statuses[line] += 1
            time.sleep(pause)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with some replaced, and perhaps with an end cut off."""
    made = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        made[rng.randrange(len(made))] = rng.randrange(256)
    if rng.random() < 0.5:
        del made[rng.randrange(len(made)) :]
    return bytes(made)


def expected_rows(path: Path) -> list[tuple[Picture, NDArray[np.float32]]]:
    """Return pictures, and the rows that a Session gives for each."""
    with Session(path) as session:

        def boxes(picture: Picture) -> tuple[Box, ...]:
            result = session.result(picture)
            assert isinstance(result, Boxes)
            return result.boxes

        pictures = (scene.picture for scene in scenes(12, seed=5))
        return [(picture, expected(picture, boxes)) for picture in pictures]


def resident_mb(pid: int) -> tuple[float, float]:
    """Return the resident memory of a process now and at most, MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    now, most = (re.search(rf"{key}:\s+(\d+)", text) for key in ("VmRSS", "VmHWM"))
    assert now
    assert most
    return int(now[1]) / 1024, int(most[1]) / 1024


def main() -> int:
    """Run the load, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--cameras", type=int, default=20)
    parser.add_argument("--rate", type=float, default=5, help="frames/s of each camera")
    parser.add_argument("--bad", type=int, default=3000)
    args = parser.parse_args()
    with builds.apart():
        path = bundle()
        addresses = ("--zmq", "tcp://127.0.0.1:*", "--deepstack", "127.0.0.1:0")
        command = [sys.executable, "-m", "edgec_runtime.serve", str(path), *addresses]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                return _run(process, path, args)
            finally:
                process.kill()


def _run(process: subprocess.Popen[str], path: Path, args: argparse.Namespace) -> int:
    assert process.stdout is not None
    text = process.stdout.readline() + process.stdout.readline()
    zmq_address = re.search(r"tcp://\S+", text)
    http_address = re.search(r"http://([0-9.]+):(\d+)", text)
    assert zmq_address, text
    assert http_address, text
    host, port = http_address[1], int(http_address[2])
    seconds = 60 * args.minutes
    load = Load(
        zmq_address[0],
        (host, port),
        expected_rows(path),
        time.monotonic() + seconds,
        Tally(),
    )
    half = args.bad // 2
    threads = [
        threading.Thread(target=load.camera, args=(i, 1 / args.rate))
        for i in range(args.cameras)
    ]
    for send in (load.bad_messages, load.bad_requests):
        pause = 0.8 * seconds / max(half, 1)
        threads.append(threading.Thread(target=send, args=(half, pause)))
    for thread in threads:
        thread.start()
    time.sleep(min(30, seconds / 4))
    early, _ = resident_mb(process.pid)
    for thread in threads:
        thread.join()
    late, most = resident_mb(process.pid)
    process.terminate()
    code = process.wait(20)

    tally = load.tally
    p50, p99, worst = np.percentile(tally.ms, (50, 99, 100))
    rows = [
        ("pictures", str(len(tally.ms))),
        ("lost or wrong", str(tally.wrong)),
        ("sent late", str(tally.late)),
        ("latency, ms: median, 99 %, worst", f"{p50:.1f}, {p99:.1f}, {worst:.1f}"),
        ("memory, MB: early, late, most", f"{early:.1f}, {late:.1f}, {most:.1f}"),
        ("bad ZeroMQ messages", str(half)),
        ("bad HTTP requests", ", ".join(f"{n} {s}" for s, n in tally.statuses.items())),
        ("exit code after SIGTERM", str(code)),
    ]
    print("\n".join(markdown(("", f"{args.minutes:g} minutes"), rows, texts=2)))
    failed = any(s == "HTTP/1.1 500" for s in tally.statuses)
    return int(bool(tally.wrong or failed or code))


if __name__ == "__main__":
    sys.exit(main())
