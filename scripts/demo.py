#!/usr/bin/env python3
"""The main job of mbx, live: two shells, signed mail, `kill -9`; then a second, paired machine.

`scripts/demo` sets up the environment and runs this. Everything happens in real shells with real
`mbx` commands, in a home folder of its own. Whatever is claimed is checked; the exit status is 0
only if every claim held.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from scripts.demohosts import THERE, PairedStory
from scripts.demostage import ClaimError, Places, Stage, Transcript
from scripts.terminals import TerminalError

_SHOWN_MIN_COLUMNS = 60
_PACE_S = 0.7
_FAILURES = (ClaimError, TerminalError, OSError, subprocess.SubprocessError, KeyError, ValueError)


def main() -> int:
    """Run the demo; its exit status."""
    options = _parse()
    if options.home is not None and options.home.exists() and any(options.home.iterdir()):
        print(f"{options.home} is not empty: the demo needs a store of its own", file=sys.stderr)
        return 2
    started = time.monotonic()
    stage = Stage(sys.stdout, 0.0 if options.fast or not sys.stdout.isatty() else _PACE_S)
    transcript = Transcript()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    work = Path(tempfile.mkdtemp(prefix="mbx-demo-"))
    home = (options.home or work / "home").resolve()
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        stage.title("mbx: signed mail between shells, and between two machines", str(home))
        _tell(
            PairedStory(stage, transcript, Places(work, home, _columns())), 1 if options.fast else 3
        )
    except KeyboardInterrupt:
        return 130
    except _FAILURES as error:
        transcript.claim("the demo ran to its end", False, f"{type(error).__name__}: {error}")
        stage.claim("the demo ran to its end", False, str(error))
    finally:
        _stop_daemon(home)
        _stop_daemon(work / THERE)
        shutil.rmtree(work, ignore_errors=True)
    return _verdict(stage, transcript, time.monotonic() - started, options.json)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/demo", description="Show the main job of mbx, live, and check every claim."
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a transcript to FILE")
    parser.add_argument(
        "--home", type=Path, metavar="DIR", help="keep the store in DIR, which must be empty"
    )
    parser.add_argument("--fast", action="store_true", help="no pauses for readers, one kill")
    return parser.parse_args()


def _columns() -> int:
    return max(_SHOWN_MIN_COLUMNS, shutil.get_terminal_size((80, 24)).columns)


def _tell(story: PairedStory, kills: int) -> None:
    with story:
        story.two_identities()
        story.signed_mail()
        story.bare_shell_is_refused()
        story.killed_in_the_middle(kills)
        story.everything_is_there()
        story.the_owner_decides()
        story.two_people_pair()
        story.mail_between_hosts()
        story.killed_on_the_way()
        story.the_owner_ends_it()
    story.shells_have_ended()
    story.stores_from_outside()


def _stop_daemon(home: Path) -> None:
    """Leave nothing running, however the demo ended."""
    if not home.exists():
        return
    mbx = Path(sys.executable).with_name("mbx")
    # Nothing of an outer mailbox's places: its daemon is not ours to stop.
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "MBX_HOME": str(home)}
    subprocess.run([mbx, "daemon", "stop"], env=env, capture_output=True, check=False)


def _verdict(stage: Stage, transcript: Transcript, took_s: float, target: Path | None) -> int:
    held = transcript.held()
    if target is not None:
        document = {**transcript.document(), "took_s": round(took_s, 1)}
        target.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    stage.verdict(held, f"{transcript.counts()}, {took_s:.1f} s")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
