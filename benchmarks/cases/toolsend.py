"""S3: a durable send as a model makes it, by the official SDK's client over MCP."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.report import Report
from benchmarks.wire import Line
from benchmarks.workshop import Daemon, Workshop, environment, register, register_and_release

_CLIENTS: Final = Path(__file__).parents[1] / "sdkclients.py"
_SERVER: Final = Path(__file__).parents[1] / "sdkserver.py"
_SENDER: Final = "bench-sender"
_READER: Final = "bench-reader"
_LETTER: Final = {"to": _READER, "subject": "Port", "body": "x" * 700}
_FLOOR_IS: Final = "the SDK's own server, one row synced for each call"


def run(workshop: Workshop, report: Report) -> None:
    """One client, for the time of a send; eight at once, for sends a second."""
    home, database = workshop.home(), workshop.home() / "floor.db"
    mbx = [str(Path(sys.executable).with_name("mbx")), "mcp"]
    floor = [sys.executable, str(_SERVER), str(database)]
    with Daemon(home) as daemon:
        line = Line.of_session(daemon.socket)
        register_and_release(line, [_READER])
        register(line, _SENDER)  # this process is the holder, the connectors its grandchildren
        for clients, what, field, unit in (
            (1, "send by the SDK's client, p50", "p50_ms", "ms"),
            (8, "sends by 8 of the SDK's clients in one process", "rate", "1/s"),
        ):
            pairs = []
            for number in workshop.rounds():
                workshop.say(f"S3 {clients} clients, round {number + 1}")
                calls = max(1, workshop.scale.reads // (10 * clients))
                ours = _measured(home, mbx, "mbx_send", clients, calls)
                theirs = _measured(home, floor, "send", clients, calls)
                pairs.append((ours[field], theirs[field]))
            report.compare("S3", what, unit, pairs, _FLOOR_IS, None)
        line.close()


def _measured(home: Path, argv: list[str], tool: str, clients: int, calls: int) -> dict[str, float]:
    env = environment(home)
    asked: dict[str, Any] = {"argv": argv, "env": env, "tool": tool, "arguments": _LETTER}
    asked |= {"clients": clients, "calls": calls}
    done = subprocess.run(
        [sys.executable, str(_CLIENTS), json.dumps(asked)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told
