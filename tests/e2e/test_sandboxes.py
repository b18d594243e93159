"""Callers, holders and daemons in pid namespaces and sandboxes, and numbers that are used again."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import MBX, Daemon, fresh_home, fresh_name
from tests.support.patience import looks
from tests.support.shells import TIMEOUT_S, Finished, Shell, bare_environment, look_alike
from tests.support.successors import Successor
from tests.support.worlds import can_unshare, unshared, with_limits

PLAIN = ("--norc", "--noprofile")
BWRAP = "bwrap --bind / / --dev-bind /dev /dev"
APART = {
    "bwrap": f"{BWRAP} --unshare-pid",
    "bwrap with proc": f"{BWRAP} --unshare-pid --proc /proc",
    "bwrap without proc": f"{BWRAP} --unshare-pid --tmpfs /proc",
    "bwrap, all apart": f"{BWRAP} --unshare-all --proc /proc --new-session",
    "bwrap, read-only": "bwrap --ro-bind / / --dev-bind /dev /dev --unshare-pid --proc /proc",
    "unshare": "unshare --pid --fork",
    "unshare with proc": "unshare --pid --fork --mount-proc",
}
"""How a command gets a pid namespace of its own; the daemon's socket is there."""

SILENT_MS = 10_000
"""A lease's time-out where a test waits for it: a claim before it must come in time."""
SILENCE_S = 30.0
"""How long is waited for that: a daemon that stands still counts it as nobody's silence."""

needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None
    or subprocess.run(
        [*BWRAP.split(), "--unshare-pid", "true"], check=False, capture_output=True
    ).returncode
    != 0,
    reason="bubblewrap is not installed, or may not make namespaces",
)
needs_pid_namespaces = pytest.mark.skipif(
    not can_unshare("--pid"), reason="there are no pid namespaces here"
)


@pytest.fixture
def home() -> Iterator[Path]:
    with fresh_home() as folder:
        yield folder


def environment_of(home: Path) -> dict[str, str]:
    path = f"{Path(MBX).parent}{os.pathsep}{os.environ['PATH']}"
    return bare_environment(MBX_HOME=str(home)) | {"PATH": path}


def document(done: Finished) -> dict[str, Any]:
    assert done.out, done.err
    told = json.loads(done.out)
    assert isinstance(told, dict)
    return told


def registered(shell: Shell, name: str) -> dict[str, Any]:
    """Let the shell hold a new identity; the session as `whoami` tells it."""
    done = shell.run(f"mbx identity register {name} --role tester --json")
    assert done.status == 0, done.out + done.err
    session = document(shell.run("mbx whoami --json"))["session"]
    assert isinstance(session, dict)
    return session


# -- callers in a sandbox, the daemon outside -----------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.root
@needs_bwrap
@needs_pid_namespaces
def test_the_daemon_outside_knows_who_calls_from_within_a_pid_namespace(home: Path) -> None:
    name, calls = fresh_name(), 0
    with (
        Daemon(home),
        Shell(env=environment_of(home)) as shell,
        Shell(env=environment_of(home)) as bare,
    ):
        session = registered(shell, name)
        for how, prefix in APART.items():
            told = document(shell.run(f"{prefix} mbx whoami --json"))
            assert (told["agent"], told["session"]) == (name, session), how
            sent = shell.run(f"{prefix} mbx send --to {name} --subject s -m b --json")
            assert sent.status == 0, (how, sent.out)
            refused = bare.run(f"{prefix} mbx inbox --json")
            assert (refused.status, document(refused)["error"]["code"]) == (5, "no-lease"), how
            calls += 3
        inbox = document(shell.run("mbx inbox --json"))
        assert inbox["unread"] == len(APART)
    sys.stdout.write(f"{calls} calls from {len(APART)} sorts of namespaces\n")


_ORPHANED = 'while [ $PPID != 1 ] && kill -0 $PPID; do :; done; exec "$@"'
"""Whoever starts it ends at once: bwrap would die with that parent, if it had seen it alive."""


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.root
@needs_bwrap
def test_an_agent_cli_in_a_sandbox_is_a_session_that_is_seen_to_live_and_to_die(
    home: Path, tmp_path: Path
) -> None:
    name = fresh_name()
    claude = look_alike(tmp_path, "claude")
    argv = [*BWRAP.split(), "--unshare-pid", "--proc", "/proc", "--die-with-parent"]
    with ExitStack() as stack:
        daemon = stack.enter_context(Daemon(home))
        heir = stack.enter_context(daemon.agent())
        client = ["bash", "-c", _ORPHANED, "bash", *argv, str(claude), *PLAIN]
        with Shell(client, env=environment_of(home)) as sandboxed, heir.connect() as line:
            session = registered(sandboxed, name)
            assert session["cli"] == "claude"
            shown = line.call("identity.show", name=name)
            assert shown["holder"]["pid"] != 2, "the number is the one outside"
            assert line.refusal("identity.claim", name=name)["code"] == "in-use"
            daemon.kill()
            daemon.start()
            assert document(sandboxed.run("mbx whoami --json"))["agent"] == name
        with heir.connect() as line:
            for _ in looks():
                if line.call("identity.show", name=name)["claimable"]:
                    break
            assert line.call("identity.claim", name=name)["epoch"] == 2


# -- a daemon in a namespace ----------------------------------------------------------------------


def child_of(pid: int) -> int:
    """The only child of a process, by its number here."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def stop(daemon: Daemon) -> None:
    """By the protocol: a signal from outside does not find it."""
    with daemon.line() as line:
        line.hello()
        line.call("daemon.stop")
    assert daemon.wait() == 0


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.root
@needs_pid_namespaces
@pytest.mark.parametrize("mount_proc", [True, False], ids=["own proc", "foreign proc"])
def test_who_calls_a_daemon_in_a_pid_namespace_from_outside_is_unknown_and_the_token_counts(
    home: Path, mount_proc: bool
) -> None:
    name = fresh_name()
    with Daemon(home) as first, Shell(env=environment_of(home)) as shell:
        session = registered(shell, name)
        stop(first)
        prefix = unshared("--pid", *(["--mount-proc"] if mount_proc else []))
        with Daemon(home, prefix=prefix) as second, second.agent() as stranger:
            told = document(shell.run("mbx whoami --json"))
            assert (told["agent"], told["session"]) == (None, None)
            # The kernel names nobody, or /proc is not the daemon's: that is no "no session".
            assert "pid namespace" in told["lineage"] or "does not name" in told["lineage"]
            refused = shell.run("mbx inbox --json")
            assert (refused.status, document(refused)["error"]["next"][:10]) == (5, "mbx doctor")
            examined = examination_of_the_daemon(shell)
            assert (examined["level"], examined["fix"]) == ("warn", "mbx daemon restart")
            said = f"MBX_CLI={session['cli']} MBX_SESSION={session['id']}"
            assert document(shell.run(f"{said} mbx whoami --json"))["agent"] == name
            sent = shell.run(f"{said} mbx send --to {name} --subject s -m b --json")
            assert sent.status == 0, sent.out
            with stranger.bare() as line:
                line.hello(holder="self")
                assert line.refusal("identity.claim", name=name)["code"] == "no-lease"
                shown = line.call("identity.show", name=name)
                assert (shown["state"], shown["claimable"]) == ("held", False)
            # By its number here: what it says of itself is the number of another process.
            assert second.pid == 1
            assert document(shell.run("mbx daemon status --json"))["pid"] > 1
            assert shell.run("mbx daemon stop").status == 0
            assert second.wait() == 0
        with Daemon(home):
            told = document(shell.run("mbx whoami --json"))
            assert (told["agent"], told["lease"]["epoch"], told["unread"]) == (name, 1, 1)


def examination_of_the_daemon(shell: Shell, prefix: str = "") -> dict[str, Any]:
    """What doctor says of the daemon, run behind `prefix`."""
    checks = document(shell.run(f"{prefix}mbx doctor --json"))["checks"]
    (found,) = [one for one in checks if one["name"] == "daemon"]
    assert isinstance(found, dict)
    return found


@pytest.mark.root
@needs_pid_namespaces
def test_who_cannot_see_the_daemon_is_told_to_kill_nobody_and_can_stop_it(home: Path) -> None:
    inside = " ".join(unshared("--pid", "--mount-proc")) + " "
    with Daemon(home) as daemon, Shell(env=environment_of(home)) as shell:
        well = examination_of_the_daemon(shell, inside)
        assert (well["level"], f"process {daemon.pid} " in well["detail"]) == ("ok", True)
        daemon.signal(signal.SIGSTOP)
        hung = examination_of_the_daemon(shell, inside)
        daemon.signal(signal.SIGCONT)
        # 0 is what the kernel calls it in there, and `kill -9 0` would be for the caller's group.
        assert (hung["level"], hung["fix"]) == ("fail", "mbx daemon status")
        assert shell.run(f"{inside}mbx daemon stop").status == 0
        assert daemon.wait() == 0


@pytest.mark.root
@needs_pid_namespaces
def test_below_a_foreign_proc_nobody_is_taken_for_the_process_of_the_same_number(
    home: Path,
) -> None:
    with Daemon(home, prefix=unshared("--pid")) as daemon:
        inside = child_of(daemon.process.pid if daemon.process else 0)
        enter = ["nsenter", "--pid", "--target", str(inside), "bash", *PLAIN]
        with Shell(enter, env=environment_of(home)) as shell:
            told = document(shell.run("mbx whoami --json"))
            assert (told["agent"], told["session"]) == (None, None)
            assert "/proc" in told["lineage"]
            done = shell.run(f"mbx identity register {fresh_name()} --role tester --json")
            assert (done.status, document(done)["error"]["code"]) == (5, "no-lease")
        stop(daemon)


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.root
@needs_pid_namespaces
def test_a_holder_that_a_moved_daemon_cannot_see_is_claimable_after_the_time_out_only(
    home: Path,
) -> None:
    outside, inside = fresh_name("outside"), fresh_name("inside")
    limits = with_limits(LEASE_TIMEOUT_MS=SILENT_MS, LEASE_RENEW_MS=SILENT_MS // 2)
    apart = unshared("--pid", "--mount-proc")
    with ExitStack() as stack:
        first = stack.enter_context(Daemon(home))
        shell = stack.enter_context(Shell(env=environment_of(home)))
        registered(shell, outside)
        stop(first)
        second = stack.enter_context(Daemon(home, prefix=apart, python=limits))
        number = child_of(second.process.pid if second.process else 0)
        enter = ["nsenter", "--pid", "--mount", "--target", str(number), "bash", *PLAIN]
        other = stack.enter_context(Shell(enter, env=environment_of(home)))
        refused = document(other.run(f"mbx identity claim {outside} --json"))["error"]
        assert refused["code"] == "in-use", "unknown is not dead"
        assert "cannot be seen" in refused["reason"]
        registered(other, inside)
        assert shows(second, inside, "live")
        other.run("mbx identity release")
        claimed = _until_claimed(other, outside)
        assert claimed["epoch"] == 2, "silence counts where nothing can be learnt"
        assert document(shell.run("mbx whoami --json"))["agent"] is None
        stop(second)
        third = stack.enter_context(Daemon(home, python=limits))
        heir = stack.enter_context(third.agent())
        with heir.connect() as line:  # now it is the one within who cannot be seen
            assert line.refusal("identity.claim", name=outside)["code"] == "in-use"
            for _ in looks(within_s=SILENCE_S):
                if line.call("identity.show", name=outside)["claimable"]:
                    break
            assert line.call("identity.claim", name=outside)["epoch"] == 3
        # It is told so, and holds nothing any more.
        assert document(shell.run("mbx inbox --json"))["error"]["code"] in {
            "lease-lost",
            "no-lease",
        }


def shows(daemon: Daemon, name: str, state: str) -> bool:
    with daemon.line() as line:
        line.hello()
        agents = line.call("agents.list")["agents"]
    return any((one["name"], one["state"]) == (name, state) for one in agents)


def _until_claimed(shell: Shell, name: str) -> dict[str, Any]:
    for _ in looks(within_s=SILENCE_S):
        done = shell.run(f"mbx identity claim {name} --json")
        if done.status == 0:
            return document(done)
        assert document(done)["error"]["code"] == "in-use"
    raise AssertionError(f"{name} is never claimable")


# -- numbers used again ---------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.root
@pytest.mark.parametrize("seen_by", ["running", "next"])
def test_whoever_has_the_number_of_a_dead_holder_is_nobody(home: Path, seen_by: str) -> None:
    rounds = 3
    with Daemon(home) as daemon:
        for _ in range(rounds):
            name = fresh_name()
            holder = daemon.agent()
            holder.registered(name).close()
            if seen_by == "next":
                daemon.stop()
            holder.kill()
            with Successor(daemon.socket_path, holder.pid) as newcomer:
                if seen_by == "next":
                    daemon.start()
                with newcomer.connect() as line:
                    told = line.call("session.whoami")
                    assert (told["agent"], told["lease"]) == (None, None)
                    assert line.refusal("mail.inbox")["code"] == "no-lease"
                    assert line.refusal("identity.release")["code"] == "no-lease"
                    granted = line.call("identity.claim", name=name)  # by its own right
                    assert granted["epoch"] == 2
                    assert line.call("identity.show", name=name)["holder"]["pid"] == holder.pid
            holder.close()
    sys.stdout.write(f"{rounds} numbers used again\n")


# -- a sandbox without the daemon -----------------------------------------------------------------


def files_below(folder: Path) -> set[str]:
    """All but the lock of starters: it may be made where that is allowed, and is no daemon."""
    return {str(path) for path in folder.rglob("*") if path.name != "start.lock"}


HIDDEN: dict[str, Callable[[Path], str]] = {
    "nothing can be written": lambda home: "--ro-bind / /",
    "only the run folder can be written": lambda home: (
        f"--ro-bind / / --bind {home}/run {home}/run"
    ),
    "the home is not there": lambda home: (
        f"--ro-bind / / --tmpfs {home.parent} --remount-ro {home.parent}"
    ),
    "the home is somebody else's": lambda home: (
        f"--ro-bind / / --perms 0700 --tmpfs {home} --remount-ro {home}"
    ),
}


@pytest.mark.root
@needs_bwrap
@pytest.mark.parametrize("how", HIDDEN)
def test_behind_a_sandbox_the_command_says_so_and_starts_nothing(how: str, tmp_path: Path) -> None:
    home = tmp_path / "deep" / "home"
    home.parent.mkdir()
    with Daemon(home) as daemon:  # there was one
        daemon.stop()
    before = files_below(tmp_path)
    with Shell(env=environment_of(home)) as shell:
        prefix = f"bwrap {HIDDEN[how](home)} --dev-bind /dev /dev --unshare-pid --proc /proc"
        for command in ("whoami", "inbox", "identity claim x-y"):
            done = shell.run(f"{prefix} {MBX} {command} --json")
            error = document(done)["error"]
            assert (done.status, error["code"]) == (6, "sandboxed"), (command, error)
            assert "outside the sandbox" in error["next"]
        status = shell.run(f"{prefix} {MBX} daemon status --json")
        assert document(status)["running"] is False
    assert files_below(tmp_path) == before, "nothing was made"


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.root
@needs_bwrap
def test_a_running_daemon_whose_folder_a_sandbox_hides_is_not_doubled(home: Path) -> None:
    with Daemon(home) as daemon, Shell(env=environment_of(home)) as shell:
        before = daemon.state_hash()
        run = home / "run"
        prefix = f"{BWRAP} --perms 0700 --tmpfs {run}"
        done = shell.run(f"{prefix} mbx whoami --json")
        error = document(done)["error"]
        assert (done.status, error["code"]) == (6, "sandboxed"), error
        assert str(run) in error["next"]
        assert daemon.state_hash() == before
        assert document(shell.run("mbx daemon status --json"))["pid"] == daemon.pid


# -- another user ---------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_another_user_and_root_in_anothers_home_are_refused_with_words_and_leave_nothing() -> None:
    with fresh_home() as home:
        theirs = home / "theirs"
        theirs.mkdir(mode=0o755)
        os.chown(theirs, 65_534, 65_534)
        done = run({"HOME": str(theirs)}, MBX, "whoami", "--json")  # as `sudo mbx` does it
        error = json.loads(done.stdout)["error"]
        assert (done.returncode, error["code"]) == (6, "daemon-unreachable")
        assert "65534" in error["message"]
        assert error["next"]
        assert list(theirs.rglob("*")) == []
        home.chmod(0o755)
        with Daemon(home / "ours"):
            nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
            told = {"MBX_HOME": str(home / "ours"), "HOME": "/nonexistent"}
            done = run(told, *nobody, MBX, "whoami", "--json")
            error = json.loads(done.stdout)["error"]
            assert (done.returncode, error["code"]) == (6, "sandboxed")
            assert "another user" in error["message"]
            # No home at all: the password database names a folder that is not there.
            done = run({"LC_ALL": "C"}, *nobody, MBX, "whoami", "--json")
            error = json.loads(done.stdout)["error"]
            assert done.returncode == 6, error
            assert error["next"]


def run(environment: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
