"""All checks together, in order, within a bounded time whatever hangs.

Each section looks in a thread of its own: a read of a dead network disk never comes back, and must
not keep the others, nor the process, from ending.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mbx import PROTOCOL, __version__
from mbx.client import Clock
from mbx.core.errors import MbxError
from mbx.core.limits import LOG_FILES_KEPT
from mbx.core.snapshot import DOWN, SLOW
from mbx.doctor import (
    authority,
    clients,
    files,
    hooks,
    looking,
    peering,
    places,
    service,
    serving,
    wellbeing,
)
from mbx.doctor.verdict import Check
from mbx.paths import Paths

PLACES_S: Final = 1.5
"""How long it may take to find the places of the installation."""

SECTION_S: Final = 7.5
"""How long all sections together may take; with the start of Python it stays below 10 s."""

_CREDENTIALS_MAX: Final = 1_000

_LOG_TAIL_BYTES: Final = 64 * 1024

Section = Callable[[], list[Check]]
"""Looks, and says what it found."""


class Visit(NamedTuple):
    """Who asks, from where, when (ms UTC, for ages of files).

    `resolve` finds the places of the installation, raising MbxError; it looks at the disk, so it
    can hang as everything can.
    """

    resolve: Callable[[], Paths]
    environ: Mapping[str, str]
    argument_zero: str
    user_id: int
    now_ms: int
    clock: Clock


class Situation(NamedTuple):
    """A visit to an installation whose places are known."""

    paths: Paths
    visit: Visit

    @property
    def user_id(self) -> int:
        """Who asks."""
        return self.visit.user_id

    @property
    def now_ms(self) -> int:
        """When."""
        return self.visit.now_ms


def examine(visit: Visit) -> tuple[list[Check], Paths | None]:
    """Every check of an installation, and its places if it has any."""
    resolved: list[Paths] = []

    def resolve() -> list[Check]:
        try:
            resolved.append(visit.resolve())
        except MbxError as error:
            return [Check("places", "fail", error.message, error.next_step)]
        return []

    found = run_sections({"places": resolve}, PLACES_S, visit.clock)
    sections: dict[str, Section] = {
        "path": lambda: _commands(visit),
        "program": lambda: _program(visit),
    }
    if resolved:
        situation = Situation(resolved[0], visit)
        sections["disk"] = lambda: _places(situation)
        sections["files"] = lambda: _files(situation)
        sections["daemon"] = lambda: _daemon(situation)
        sections["service"] = lambda: _service(situation)
        sections["clients"] = lambda: _clients(situation)
    found += run_sections(sections, SECTION_S, visit.clock)
    return [*found, places.border()], resolved[0] if resolved else None


def run_sections(sections: Mapping[str, Section], wait_s: float, clock: Clock) -> list[Check]:
    """What the sections found, in their order. One that hangs or breaks is a fault by itself."""
    found: dict[str, list[Check]] = {}

    def look(name: str, section: Section) -> None:
        try:
            found[name] = section()
        except Exception as error:  # noqa: BLE001  a defect of one check must not hide the others
            found[name] = [_broken(name, type(error).__name__)]

    threads = {
        name: threading.Thread(target=look, args=(name, section), daemon=True)
        for name, section in sections.items()
    }
    for thread in threads.values():
        thread.start()
    deadline = clock.monotonic() + wait_s
    for thread in threads.values():
        thread.join(max(0.0, deadline - clock.monotonic()))
    return [check for name in sections for check in found.get(name, [_hangs(name, wait_s)])]


def _commands(visit: Visit) -> list[Check]:
    seen = looking.commands_on(visit.environ.get("PATH", os.defpath))
    return places.commands(seen, looking.running_command(visit.argument_zero))


def _program(visit: Visit) -> list[Check]:
    """What nobody but its user can guard: this program, and what others may do to its process."""
    program = looking.program(looking.running_command(visit.argument_zero))
    return [places.program(*program), places.terminal(*looking.openness())]


def _places(situation: Situation) -> list[Check]:
    home = situation.paths.home()
    return [
        places.space(looking.space_at(home), home),
        places.file_system(looking.mount_at(home), home),
    ]


def _files(situation: Situation) -> list[Check]:
    paths, user_id = situation.paths, situation.user_id
    home, store = looking.look_into(paths.home()), looking.look(paths.store_path())
    run = looking.look_into(paths.run_dir())
    is_ours = run.kind == "folder" and not run.is_of_others  # nothing is made in another's
    wal = looking.look(f"{paths.store_path()}-wal")
    log = [looking.look(path) for path in _log_paths(paths)]
    key = looking.look(paths.host_key_path())
    private = [looking.look(path) for path in _private_paths(paths)]
    has_store = store.kind == "file" and store.size_bytes > 0
    later = "the first command makes it"
    has_home = home.kind != "missing"
    return [
        files.folder("home", home, user_id, missing="info", needed=later),
        files.folder("run", run, user_id, missing="info", needed=later),
        files.folder(
            "sessions",
            looking.look(paths.sessions_dir()),
            user_id,
            missing="warn" if has_home and is_ours else "info",
            needed="no credential can be kept" if has_home else later,
        ),
        *files.modes([store, wal, *private], user_id),
        files.key(key, looking.first_bytes(key.path, 4_097), user_id, has_store=has_store),
        files.store(
            store,
            looking.first_bytes(store.path, files.STORE_HEADER_BYTES),
            wal,
            looking.newest_schema(),
        ),
        files.wal(wal),
        *files.log(log, user_id, looking.last_bytes(log[0].path, _LOG_TAIL_BYTES)),
        *files.leftovers(_new_files(paths), situation.now_ms),
        *hooks.misses(_counted(paths, DOWN), _counted(paths, SLOW), situation.now_ms),
    ]


def _counted(paths: Paths, kind: str) -> tuple[files.Entry, bytes | None]:
    """A count that hooks keep, and its file; a pipe in its place is not opened."""
    entry = looking.look(os.path.join(paths.snapshots_dir(), kind))
    return entry, looking.first_bytes(entry.path, 64) if entry.kind == "file" else None


def _private_paths(paths: Paths) -> Sequence[str]:
    kept = [path for path in looking.names_in(paths.sessions_dir()) if path.endswith(".json")]
    own = [
        paths.owner_key_path(),
        paths.tls_key_path(),
        paths.floor_path(),
        paths.lock_path(),
        paths.start_lock_path(),
    ]
    return own + kept[:_CREDENTIALS_MAX]


def _log_paths(paths: Paths) -> Sequence[str]:
    path = paths.log_path()
    return [path, *(f"{path}.{number}" for number in range(1, LOG_FILES_KEPT + 1))]


def _new_files(paths: Paths) -> list[files.Entry]:
    listed = [*looking.names_in(paths.home()), *looking.names_in(paths.sessions_dir())]
    return [looking.look(path) for path in listed if path.endswith(".new")]


def _daemon(situation: Situation) -> list[Check]:
    paths, user_id = situation.paths, situation.user_id
    probe, locks = looking.probe_patiently(paths, user_id, situation.visit.clock)
    has_store = looking.look(paths.store_path()).kind != "missing"
    versions = serving.versions(probe, __version__, PROTOCOL)
    verdict = serving.daemon(probe, locks, home=paths.home(), has_store=has_store, user_id=user_id)
    owners_files = _owners_files(situation, probe.health)
    found = [
        serving.socket(looking.look(paths.socket_path()), probe, locks),
        serving.store_lock(locks),
        verdict,
        *([versions] if versions else []),
        _clock(situation, probe.health),
        *owners_files,
    ]
    if verdict.level == "fail":
        return found  # what a daemon of another home says of itself is no business of this one
    if probe.health is not None:
        found += wellbeing.everything(probe.health, lambda *session: _missing(paths, *session))
    elif probe.outcome == "answered" and probe.hello is not None:
        found.append(wellbeing.refused(probe.health_refusal))
    return found


def _owners_files(situation: Situation, health: Mapping[str, Any] | None) -> list[Check]:
    """The keys of owner and TLS; the floor, where no daemon says how that is."""
    paths, user_id = situation.paths, situation.user_id
    known = (health or {}).get("owner") or {}
    tls = looking.look(paths.tls_key_path())
    is_known = bool((health or {}).get("peers"))
    certificate = looking.first_bytes(tls.path, peering.FILE_MAX_BYTES + 1)
    key = looking.look(paths.owner_key_path())
    content = looking.first_bytes(key.path, authority.FILE_MAX_BYTES + 1)
    found = [
        authority.key(key, content, user_id, known.get("key_id")),
        peering.tls_key(tls, certificate, user_id, has_peers=is_known),
    ]
    folder = authority.floor_folder(looking.look(os.path.dirname(paths.floor_path())))
    if folder is not None:
        return [*found, folder]
    if health is None:
        seen = looking.look(paths.floor_path())
        text = looking.first_bytes(seen.path, authority.FILE_MAX_BYTES + 1)
        floor = authority.floor_file(seen, text)
        found += [floor] if floor else []
    return found


def _missing(paths: Paths, cli: str, session_id: str) -> str | None:
    path = paths.session_file(cli, session_id)
    return path if looking.look(path).kind == "missing" else None


def _clock(situation: Situation, health: Mapping[str, Any] | None) -> Check:
    from datetime import datetime

    newest_at = (health or {}).get("newest_at")
    newest_ms = None
    if isinstance(newest_at, str):
        newest_ms = round(datetime.fromisoformat(newest_at).timestamp() * 1000)
    paths = situation.paths
    written = (paths.store_path(), f"{paths.store_path()}-wal", paths.log_path())
    return files.clock([looking.look(path) for path in written], newest_ms, situation.now_ms)


def _service(situation: Situation) -> list[Check]:
    """The file of the service of this home, if there is one; no service manager is asked."""
    from mbx.service.job import is_program
    from mbx.service.platforms import found, manager_of

    manager = manager_of(sys.platform, situation.user_id)
    there = found(situation.paths, situation.visit.environ, manager)
    around = service.Around(is_program, os.path.lexists, looking.daemons_groups(situation.paths))
    return service.checks(there, around)


def _clients(situation: Situation) -> list[Check]:
    """What setup would do now; it only reads."""
    from mbx.setup import installer, ledger, scripts

    visit, paths = situation.visit, situation.paths
    path = visit.environ.get("PATH", os.defpath)
    program = installer.program_of(visit.argument_zero, sys.executable, path)
    installation = installer.installation_of(paths, visit.environ, program)
    machine = installer.machine_of(visit.environ)
    wanted = scripts.scripts_for(installation)
    setting = installer.Setting(machine, installation, wanted, visit.user_id)
    return clients.checks(installer.plan(setting, ledger.Ledger(paths.home())))


def _hangs(name: str, wait_s: float) -> Check:
    detail = f"looking at this hangs (over {wait_s:g} s): a disk or a network does not answer"
    return Check(name, "fail", detail, "df")


def _broken(name: str, kind: str) -> Check:
    return Check(name, "fail", f"the check itself failed ({kind})", "mbx doctor --json")
