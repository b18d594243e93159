"""Setup killed at any of its steps: each file is the old one or the new one, and a rerun mends."""

import os
import signal
import sys
from pathlib import Path

import pytest

from mbx.setup.client import Scripts
from tests.setup.conftest import Place, acts

STEPS = ("open", "os.rename", "os.remove", "os.mkdir")
STEPS_MAX = 120


def killed_at(place: Place, step: int, *, installing: bool) -> bool:
    """Run setup in a child that dies right before its n-th act on a file; False if it ended."""
    child = os.fork()
    if not child:
        left = step

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in STEPS and str(place.user.parent) in str(arguments[0]):
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            place.run(installing=installing)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def fresh(folder: Path) -> Place:
    folder.mkdir()
    place = Place(folder)
    place.scripts = Scripts({}, "")
    place.clients("codex")
    (place.user / ".codex/config.toml").write_text("a = 1")
    return place


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("installing", [True, False], ids=["setup", "uninstall"])
def test_a_kill_at_any_step_leaves_old_or_new_files_and_a_rerun_ends_well(
    tmp_path: Path, installing: bool
) -> None:
    whole = fresh(tmp_path / "whole")
    old = whole.seen()
    whole.run()
    new = whole.seen()
    for step in range(STEPS_MAX):
        place = fresh(tmp_path / f"at-{step}")
        if not installing:
            place.run()
        was_killed = killed_at(place, step, installing=installing)
        for path, (content, _) in place.seen().items():
            if path.endswith(".mbx-new"):
                continue
            here, there = str(place.user.parent).encode(), str(whole.user.parent).encode()
            known = [seen[path][0] for seen in (old, new) if path in seen]
            assert content.replace(here, there) in known, path
        place.run()
        assert set(acts(place.run()).values()) == {"unchanged"}
        place.take_out()
        assert place.seen() == old
        if not was_killed:
            break
    else:
        pytest.fail("it never got through")
    assert step > 20
