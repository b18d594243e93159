"""`scripts/bench --profile CLIENTS`: where the time of S1 goes in the daemon, by py-spy."""

import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from benchmarks import wire
from benchmarks.cases.send import connected
from benchmarks.mail import Sends
from benchmarks.workshop import Daemon, Workshop

_RATE_HZ: Final = 400
_LOAD_S: Final = 10.0
_BATCH: Final = 512
_LEAST_SHARE: Final = 0.01


def run(workshop: Workshop, clients: int) -> str:
    """Load the daemon and sample it; a table of the shares of its two threads by function."""
    spy = Path(sys.executable).with_name("py-spy")
    stacks = Path(tempfile.mkstemp(dir=workshop.folder)[1])
    with Daemon(workshop.home()) as daemon:
        lines = connected(daemon, clients)
        wire.drive(lines, Sends("warm").take(_BATCH))
        argv = [str(spy), "record", "-t", "-f", "raw", "-r", str(_RATE_HZ), "-d", "3600"]
        argv += ["-o", str(stacks), "--pid", str(daemon.pid())]
        sampling = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        sends, over = Sends("profile"), threading.Event()
        timer = threading.Timer(_LOAD_S, over.set)
        timer.start()
        while not over.is_set():
            wire.drive(lines, sends.take(_BATCH))
        sampling.send_signal(signal.SIGINT)
        sampling.wait(60)
    return table(stacks.read_text(encoding="utf-8").splitlines())


def table(stacks: Iterable[str]) -> str:
    """Shares of all samples, per thread: each function with those it calls, and by itself."""
    inclusive: Counter[tuple[str, str]] = Counter()
    alone: Counter[tuple[str, str]] = Counter()
    samples = 0
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        where = "loop " if "MainThread" in thread else "store"
        functions = [frame.rpartition(":")[0] or frame for frame in frames]
        samples += int(count)
        for function in set(functions):
            inclusive[where, function] += int(count)
        alone[where, functions[-1] if functions else "?"] += int(count)
    rows = [
        f"{where} {share / samples:6.1%} {alone[where, function] / samples:6.1%}  {function}"
        for (where, function), share in inclusive.most_common()
        if share / samples >= _LEAST_SHARE
    ]
    return "\n".join(["thread  with   alone  function", *sorted(rows, key=lambda row: row[:5])])
