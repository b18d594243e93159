"""Setup as a whole: what is here, what would change, and the change itself."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mbx.core.errors import MbxError
from mbx.paths import Paths, home_of_user, make_folder, printable
from mbx.setup import files
from mbx.setup.client import Document, Machine, Scripts
from mbx.setup.clients import BY_NAME, CLIENTS, Trace, look_for
from mbx.setup.entries import Installation
from mbx.setup.ledger import Ledger, Record, digest
from mbx.setup.plan import Change, holds_server, is_anothers, planned
from mbx.setup.steps import Refused


class Setting(NamedTuple):
    """Whose machine, which installation, what its hooks run."""

    machine: Machine
    installation: Installation
    scripts: Scripts
    user_id: int


class ClientPlan(NamedTuple):
    """What is to happen to the files of one client."""

    trace: Trace
    changes: tuple[Change, ...]

    @property
    def is_refused(self) -> bool:
        """Whether a file of it has to be left alone."""
        return any(change.act == "refused" for change in self.changes)


class Plan(NamedTuple):
    """All that is to happen: mbx's own scripts (path -> text), then the clients found."""

    installing: bool
    scripts: Mapping[str, str]
    clients: tuple[ClientPlan, ...]
    absent: tuple[str, ...]
    lost: tuple[str, ...] = ()
    """Those of the scripts that are not there at all."""

    @property
    def changes_something(self) -> bool:
        """Whether anything would be written."""
        acts = {change.act for client in self.clients for change in client.changes}
        return bool(self.scripts) or bool(acts & {"write", "remove"})


def installation_of(
    paths: Paths, environ: Mapping[str, str], program: tuple[str, ...]
) -> Installation:
    """The installation that an environment leads to. Raises MbxError `usage`."""
    usual = Paths.from_environ({"HOME": home_of_user(environ)})
    given: dict[str, str] = {}
    if paths.home() != usual.home():
        given["MBX_HOME"] = paths.home()
    if environ.get("MBX_RUN") and paths != Paths.from_environ({"MBX_HOME": paths.home()}):
        given["MBX_RUN"] = os.path.realpath(environ["MBX_RUN"])
    for text in (*program, paths.home(), *given.values()):
        if printable(text) != text:
            raise MbxError(
                "usage",
                f"{printable(text)} is no UTF-8: settings of agent CLIs cannot hold it",
                "install mbx, and set MBX_HOME, below folders with plain names",
            )
    return Installation(program, paths.home(), given, usual.home())


def program_of(argument_zero: str, executable: str, path: str) -> tuple[str, ...]:
    """How this program is started again: `mbx` beside its interpreter, or the interpreter itself.

    With links resolved: shims and links of version managers come and go.
    """
    found = argument_zero
    if os.path.basename(found) == "mbx" and "/" not in found:
        folders = (folder for folder in path.split(os.pathsep) if os.path.isabs(folder))
        places = (os.path.join(folder, found) for folder in folders)
        found = next((place for place in places if os.access(place, os.X_OK)), found)
    for candidate in (found, os.path.join(os.path.dirname(executable), "mbx")):
        is_command = os.path.basename(candidate) == "mbx" and os.path.isfile(candidate)
        if is_command and os.access(candidate, os.X_OK):
            return (os.path.realpath(candidate),)
    return (os.path.abspath(executable), "-m", "mbx")


def machine_of(environ: Mapping[str, str]) -> Machine:
    """The machine as an environment shows it."""
    return Machine(environ, home_of_user(environ))


def traces_on(machine: Machine) -> list[Trace]:
    """Every client that setup knows, and what there is of it."""
    found = {client.name: look_for(client, machine) for client in CLIENTS}
    if found["kimi"].place is None and found["kimi-cli"].place is not None:
        found["kimi"] = found["kimi"]._replace(program=None)  # `kimi` is the older one here
    return list(found.values())


def plan(
    setting: Setting, ledger: Ledger, only: Sequence[str] = (), *, installing: bool = True
) -> Plan:
    """What is to happen, for the clients that are here (of those named in `only`, if any)."""
    wanted = [
        trace for trace in traces_on(setting.machine) if not only or trace.client.name in only
    ]
    found = [trace for trace in wanted if trace.is_found]
    clients = tuple(_client_plan(setting, trace, ledger, installing) for trace in found)
    absent = tuple(trace.client.name for trace in wanted if not trace.is_found)
    scripts = _scripts(setting, installing and found)
    lost = tuple(path for path in scripts if not os.path.exists(path))
    return Plan(installing, scripts, clients, absent, lost)


def _client_plan(setting: Setting, trace: Trace, ledger: Ledger, installing: bool) -> ClientPlan:
    documents = trace.client.documents(setting.machine, setting.installation, setting.scripts)
    is_of_other = any(is_anothers(document, setting.user_id) for document in documents)
    if is_of_other:
        # Hooks that call a tool do not say of which home: they are whose the server is.
        installation = setting.installation._replace(whose_tool="another's")
        documents = trace.client.documents(setting.machine, installation, setting.scripts)
    if is_of_other and not installing:
        documents = [document for document in documents if not document.is_shared]
    changes = _changes(setting, documents, ledger, installing)
    servers = {document.path for document in documents if holds_server(document)}
    if installing and any(one.act == "refused" and one.path in servers for one in changes):
        installation = setting.installation._replace(has_server=False)
        documents = trace.client.documents(setting.machine, installation, setting.scripts)
        changes = _changes(setting, documents, ledger, installing)
    return ClientPlan(trace, changes)


def _changes(
    setting: Setting, documents: Iterable[Document], ledger: Ledger, installing: bool
) -> tuple[Change, ...]:
    return tuple(
        planned(document, ledger, setting.user_id, installing=installing)
        for document in _each_once(documents)
    )


def _each_once(documents: Iterable[Document]) -> Iterable[Document]:
    """Two names of one file (by links) are edited one after the other, in two runs of setup."""
    seen: set[str] = set()
    for document in documents:
        target = os.path.realpath(document.path)
        if target not in seen:
            seen.add(target)
            yield document


def _scripts(setting: Setting, wanted: object) -> Mapping[str, str]:
    """The scripts that are missing or not as this version has them."""
    if not wanted:
        return {}
    return {path: text for path, text in setting.scripts.files.items() if _holds(path) != text}


def _holds(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def carry_out(plan: Plan, setting: Setting, ledger: Ledger) -> Plan:
    """Do it; the plan as it came out: what could not be written is refused in it.

    Scripts come first, so that no hook leads to nothing. Raises MbxError for our own folder.
    """
    for path, text in plan.scripts.items():
        make_folder(setting.installation.home)
        make_folder(os.path.dirname(path))
        files.replace(path, text.encode("utf-8"), 0o600)
    clients = tuple(
        client._replace(
            changes=tuple(_done(change, ledger, plan.installing) for change in client.changes)
        )
        for client in plan.clients
    )
    return plan._replace(clients=clients)


def _done(change: Change, ledger: Ledger, installing: bool) -> Change:
    if change.act not in ("write", "remove"):
        return change
    try:
        (_install if installing else _take_out)(change, ledger)
    except Refused as refusal:
        return change._replace(act="refused", why=str(refusal))
    except OSError as error:
        return change._replace(act="refused", why=f"cannot be written: {error.strerror}")
    return change


def _install(change: Change, ledger: Ledger) -> None:
    """Keep what was there, note what will be there, and only then write."""
    assert change.old is not None
    assert change.new is not None
    old, known = change.old, ledger.record(change.old.target)
    folder = os.path.dirname(old.target)
    folders = files.make_folders(folder)
    after = digest(change.new)
    if known is not None and old.content is not None and digest(old.content) == known.after:
        record = known._replace(
            after=after,
            made=tuple(dict.fromkeys((*known.made, *change.made))),
        )
    else:
        name = os.path.basename(old.target)
        before = None if old.content is None else ledger.keep(old.content, name)
        made = (*(known.made if known else ()), *change.made)
        record = Record(
            after,
            before,
            not change.had_entries,
            tuple(dict.fromkeys(made)),
            folders or (known.folders if known else ()),
        )
    ledger.write(old.target, record)
    files.write(change.path, old, change.new)


def _take_out(change: Change, ledger: Ledger) -> None:
    assert change.old is not None
    old, known = change.old, ledger.record(change.old.target)
    if known is None and old.content is not None:
        ledger.keep(old.content, os.path.basename(old.target))
    files.write(change.path, old, change.new)
    if known is not None:
        files.remove_folders(known.folders)
        ledger.write(old.target, None)


def known(names: Sequence[str]) -> None:
    """Raises MbxError `usage` for a name that is no client's."""
    for name in names:
        if name not in BY_NAME:
            raise MbxError(
                "usage",
                f"setup knows no client {name!r}",
                f"use one of: {' '.join(BY_NAME)}",
            )
