"""Checks of what we stand on: the disk, its file system, the commands on the PATH, the border."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from mbx.doctor.verdict import Check, size
from mbx.paths import quoted

SPACE_FULL_BYTES: Final = 4 * 1024 * 1024
"""With less than this left the next group of sends, or the log, may not fit."""

SPACE_LOW_BYTES: Final = 100 * 1024 * 1024
"""Some days of mail; worth a word before it is too late."""

INODES_LOW: Final = 1_000
"""Credentials and sockets need one each; a disk can be full of names alone."""

NETWORK_TYPES: Final = frozenset(
    "9p afs beegfs ceph cifs coda davfs fuse.sshfs glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2"
    " smb3 smbfs fuse.rclone fuse.s3fs fuse.gcsfuse fuse.glusterfs fuse.curlftpfs".split()
)
"""File systems whose locks and syncs another machine may answer for."""

MEMORY_TYPES: Final = frozenset({"ramfs", "tmpfs"})
"""File systems that are empty again after a reboot."""

BORDER: Final = (
    "the border is the OS user: a hostile process of the same user can read the store and the host"
    " key; mbx protects what the passphrase protects, prevents accidents and quiet impersonation"
    " among agents, and keeps evidence (a hash-chained audit log)"
)
"""The words of docs/threat-model.md; a test holds them equal."""


class Space(NamedTuple):
    """What this user may still use of a file system; `inodes` None where they have no number."""

    free_bytes: int
    free_inodes: int | None


class Mount(NamedTuple):
    """The mounted file system that a path is on."""

    point: str
    type: str
    is_read_only: bool


class Command(NamedTuple):
    """An executable called mbx in a folder of the PATH, and what it is with links resolved."""

    path: str
    real: str


def border() -> Check:
    """What mbx can and cannot protect."""
    return Check("border", "info", BORDER)


def program(path: str | None, digest: str | None, package: str | None) -> Check:
    """Where this program is, and the SHA-256 of it: a replaced one can be told, if one looks."""
    command = f"{path} {digest}" if path and digest else "started otherwise than as mbx"
    return Check("program", "info", f"{command}; its package {package or 'cannot be read'}")


def terminal(legacy_tiocsti: str | None, ptrace_scope: str | None) -> Check:
    """What the kernel lets a process of the same user do to others and to their terminals."""
    # A kernel without these settings forbids nothing.
    typing = "root alone" if legacy_tiocsti == "0" else "any process of yours"
    tracing = {"1": "its ancestors", "2": "root alone", "3": "nobody"}
    return Check(
        "terminal",
        "info",
        f"who may type into its own terminal in your place: {typing} (legacy_tiocsti"
        f" {legacy_tiocsti or 'unset'}); who may look into a process of yours:"
        f" {tracing.get(ptrace_scope or '', 'any process of yours')}"
        f" (ptrace_scope {ptrace_scope or 'unset'})",
    )


def space(seen: Space, path: str) -> Check:
    """Whether there is room to write."""
    if seen.free_bytes < SPACE_FULL_BYTES:
        left = size(seen.free_bytes)
        detail = f"the disk of {path} is full but for {left}: sends are, or may be, refused"
        return Check("disk", "fail", detail, f"free some space: df -h {quoted(path)}")
    if seen.free_inodes is not None and seen.free_inodes < INODES_LOW:
        detail = f"the disk of {path} has room for {seen.free_inodes} more files only"
        return Check("disk", "warn", detail, f"remove some files: df -i {quoted(path)}")
    if seen.free_bytes < SPACE_LOW_BYTES:
        detail = f"the disk of {path} is nearly full: {size(seen.free_bytes)} left"
        return Check("disk", "warn", detail, f"free some space: df -h {quoted(path)}")
    return Check("disk", "ok", f"{size(seen.free_bytes)} free")


def file_system(seen: Mount | None, path: str) -> Check:
    """Whether locks, syncs and writes can be relied upon there."""
    if seen is None:
        return Check("file system", "info", f"nothing is known of what {path} is on")
    if seen.is_read_only:
        return Check(
            "file system",
            "fail",
            f"{path} is on a read-only file system ({seen.type} at {seen.point})",
            f"sudo mount -o remount,rw {quoted(seen.point)}",
        )
    if seen.type in NETWORK_TYPES:
        return Check(
            "file system",
            "warn",
            f"{path} is on {seen.type}: locks and syncs may not hold there",
            "set MBX_HOME to a folder of a local disk",
        )
    if seen.type in MEMORY_TYPES:
        return Check("file system", "info", f"{path} is on {seen.type}: gone after a reboot")
    return Check("file system", "ok", f"{seen.type} at {seen.point}")


def mount_of(mountinfo: str, path: str) -> Mount | None:
    """The mount that `path` (absolute, no links) is on, from `/proc/self/mountinfo` (proc(5))."""
    found: Mount | None = None
    for line in mountinfo.splitlines():
        own, _, rest = line.partition(" - ")
        fields, more = own.split(" "), rest.split(" ")
        if len(fields) < 6 or len(more) < 3:
            continue
        point = _unescaped(fields[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        if is_above and (found is None or len(point) >= len(found.point)):  # the last one hides
            options = {*fields[5].split(","), *more[2].split(",")}
            found = Mount(point, more[0], "ro" in options)
    return found


def commands(seen: Sequence[Command], running: str | None) -> list[Check]:
    """The commands called mbx on the PATH; `running` is this one, with links resolved."""
    if not seen:
        detail = "no mbx is on the PATH: agents will not find it"
        return [Check("path", "warn", detail, _add_to_path(running))]
    others = [one for one in seen[1:] if one.real != seen[0].real]
    found = [
        Check(
            "path",
            "warn",
            f"two different mbx on the PATH: {seen[0].path} is used, {one.path} is hidden by it",
            f"mv {quoted(one.path)} {quoted(one.path)}.aside",
        )
        for one in others
    ]
    if running is not None and running != seen[0].real:
        detail = f"this is {running}, but the PATH leads to {seen[0].path}"
        found.append(Check("path", "warn", detail, _add_to_path(running)))
    return found or [Check("path", "ok", seen[0].path)]


def _add_to_path(running: str | None) -> str:
    folder = running.rpartition("/")[0] if running else "FOLDER"
    return f"export PATH={quoted(folder)}:$PATH"


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
