"""A process that looks like an agent CLI: it holds an identity, and times what it starts.

Started as ``claude client.py SOCKET NAME``: it reads one JSON object a line, with `argv`, `input`,
`remove` (a file, before each run), `restore` (files and what is in them, likewise) and `count`, and
answers with the seconds of each run.
"""

import json
import os
import socket
import sys
import time


def main(path: str, name: str) -> None:
    """Register, then run what is asked for until the input ends."""
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.connect(path)
        lines = daemon.makefile("rwb")
        for number, (method, params) in enumerate(
            (
                ("hello", {"protocol": 1, "client": "bench"}),
                ("identity.register", {"name": name, "role": "bench"}),
            )
        ):
            asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            lines.write(json.dumps(asked).encode() + b"\n")
            lines.flush()
            told = json.loads(lines.readline())
            if "error" in told:
                raise RuntimeError(told["error"])
    sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        times = [_run_s(asked) for _ in range(asked["count"])]
        sys.stdout.write(json.dumps(times) + "\n")
        sys.stdout.flush()


def _run_s(asked: dict) -> float:  # type: ignore[type-arg]
    """Seconds from start to end of a program that has its input in a file."""
    if asked["remove"] and os.path.exists(asked["remove"]):
        os.unlink(asked["remove"])
    for path, text in asked["restore"].items():
        with open(f"{path}.bench", "w") as file:
            file.write(text)
        os.replace(f"{path}.bench", path)
    files = [
        (os.POSIX_SPAWN_OPEN, 0, asked["input"], os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
    ]
    begun = time.perf_counter()
    pid = os.posix_spawnp(asked["argv"][0], asked["argv"], os.environ, file_actions=files)
    os.waitpid(pid, 0)
    took = time.perf_counter() - begun
    size = os.stat(asked["output"]).st_size
    if bool(size) != asked["speaks"]:
        raise RuntimeError(f"{asked['argv']} wrote {size} bytes")
    return took


if __name__ == "__main__":
    main(*sys.argv[1:])
