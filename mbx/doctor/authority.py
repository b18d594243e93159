"""Checks of the owner's authority: the key file, what is delegated, the chain, the second place.

The key file is read as text: nothing here opens it, and what is in it is never told.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from mbx.core.canonical import CanonicalError, parse
from mbx.core.ids import is_id
from mbx.doctor.files import Entry
from mbx.doctor.verdict import Check, Remedy, few, span
from mbx.paths import quoted

Told = Mapping[str, Any]
"""The result of `daemon.health`."""

EXPIRY_S: Final = 24 * 3_600
"""A policy that ends within a day is worth a word while the owner can still sign another."""

FILE_MAX_BYTES: Final = 65_536
"""Of the key file, and of the floor, which tells of each host of the same owner."""

_INIT: Final = "mbx owner init"
_RESTORE_KEY: Final = "put back, mode 600, a copy that `mbx owner export` wrote"
_RESTORE: Final = "keep the home folder aside, then restore a backup"
_HEX: Final = re.compile("[0-9a-f]+")
_KEY_FIELDS: Final = frozenset("v type key_id public_key kdf cipher nonce sealed".split())
_KDF_FIELDS: Final = frozenset("name n r p salt".split())
_HEX_CHARS: Final = {"public_key": 64, "nonce": 24, "sealed": 96}
_SIGNATURE_BYTES: Final = 64


def everything(told: Told) -> list[Check]:
    """All checks of one answer; none for a daemon that says nothing of an owner."""
    if "owner" not in told:
        return []
    return [
        owner(told),
        *policies(told),
        *yolo(told),
        *chain(told),
        clock(told),
        floor(told),
    ]


# -- the key file ---------------------------------------------------------------------------------


def key(seen: Entry, content: bytes | None, user_id: int, owner_id: str | None) -> Check:
    """The owner's key file; `owner_id` is the key id that the daemon knows, None where none told.

    Modes are told by the check `modes`.
    """
    path = quoted(seen.path)
    if seen.kind == "missing":
        where = "not on this machine" if owner_id else "there is none yet"
        return Check("owner key", "info", f"{where}: {seen.path} is missing")
    if seen.kind != "file":
        detail = f"{seen.path} is no regular file"
        return Check("owner key", "fail", detail, f"mv {path} {path}.aside, then {_RESTORE_KEY}")
    if seen.user_id != user_id:
        detail = f"{seen.path} belongs to user {seen.user_id}, not to user {user_id}"
        return Check("owner key", "fail", detail, f"sudo chown {user_id} {path}")
    if content is None:
        detail, remedy = f"{seen.path} cannot be read", Remedy("close-file", seen.path)
        return Check("owner key", "fail", detail, f"chmod 600 {path}", remedy)
    key_id = key_id_in(content)
    if key_id is None:
        return Check("owner key", "fail", f"{seen.path} is damaged", _RESTORE_KEY)
    if owner_id is not None and key_id != owner_id:
        detail = f"{seen.path} is the key {key_id}; the owner of this host is {owner_id}"
        return Check("owner key", "warn", detail, "mbx owner show")
    return Check("owner key", "ok", f"{key_id}, under its passphrase")


def key_id_in(content: bytes) -> str | None:
    """The id that a key file names; None for what has not the form of one (`mbx.owner.keyfile`).

    Whether key and id belong together takes cryptography: `mbx owner show` tells.
    """
    try:
        told = parse(content.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n"), FILE_MAX_BYTES)
    except CanonicalError:
        return None
    if not isinstance(told, dict) or told.keys() != _KEY_FIELDS or told["type"] != "owner-key":
        return None
    key_id, kdf = told["key_id"], told["kdf"]
    if told["v"] != 1 or not is_id(key_id):
        return None
    texts = [(told[name], chars) for name, chars in _HEX_CHARS.items()]
    if not isinstance(kdf, dict) or kdf.keys() != _KDF_FIELDS:
        return None
    for text, chars in [*texts, (kdf["salt"], 32)]:
        if not isinstance(text, str) or len(text) != chars or _HEX.fullmatch(text) is None:
            return None
    return key_id


# -- the floor, where no daemon says how it is ----------------------------------------------------


def floor_folder(seen: Entry) -> Check | None:
    """The folder that keeps the floor apart from the store; None when nothing is wrong with it."""
    if seen.kind in ("folder", "missing"):
        return None
    path = quoted(seen.path)
    what = "cannot be looked at" if seen.kind == "hidden" else "is no folder"
    detail = f"{seen.path} {what}: the floor cannot be kept there"
    return Check("floor", "fail", detail, f"mv {path} {path}.aside")


def floor_file(seen: Entry, content: bytes | None) -> Check | None:
    """The floor's file by its form alone: only the daemon knows the signature. None: none yet."""
    if seen.kind == "missing":
        return None
    if seen.kind == "file" and content is not None and _is_floor(content):
        return Check("floor", "ok", "there, signed by the host")
    return _damaged_floor(seen.path)


def _is_floor(content: bytes) -> bool:
    try:
        told = parse(content.rstrip(b"\n"), FILE_MAX_BYTES)
        if not isinstance(told, dict) or told.keys() != {"payload", "signature"}:
            return False
        payload = parse(str(told["payload"]).encode(), FILE_MAX_BYTES)
        signature = base64.b64decode(str(told["signature"]), validate=True)
    except (CanonicalError, ValueError):
        return False
    is_one = isinstance(payload, dict) and payload.get("type") == "floor"
    return is_one and len(signature) == _SIGNATURE_BYTES


def _damaged_floor(path: str) -> Check:
    detail = f"{path} is not what this host wrote: the daemon does not start with it"
    fix = "put it back from a backup; without one, move it aside: then every policy is void"
    return Check("floor", "fail", detail, fix)


def floor(told: Told) -> Check:
    """The second place: how far the owner's chain and the audit log ever went."""
    state = told["floor"]
    if state == "ok":
        return Check("floor", "ok", "as far as the store")
    if state == "missing" and told["owner"] is None:
        return Check("floor", "info", "not made yet: an orderly stop makes it")
    if state == "missing":
        detail = "the floor is missing: a store that was put back could not be told"
        return Check("floor", "fail", detail, "sign a policy or a revocation: that makes it anew")
    if state == "unwritten":
        detail = (
            f"the floor cannot be written ({told['floor_fault']}): if the store is put back, nobody"
            " sees that what was signed meanwhile is gone"
        )
        return Check("floor", "fail", detail, "mend that; the daemon tries again each minute")
    if state == "another":
        detail = "the floor is not the one that this daemon wrote last: somebody has put it there"
        return Check("floor", "fail", detail, "mbx audit --verify; then mbx daemon restart")
    return _damaged_floor("the floor")


# -- what the owner signed ------------------------------------------------------------------------


def owner(told: Told) -> Check:
    """Whether this host has an owner."""
    known = told["owner"]
    if known is None:
        return Check("owner", "info", "this host has no owner yet: every policy is ask", _INIT)
    return Check("owner", "ok", f"{known['key_id']} since {str(known['since'])[:10]}")


def policies(told: Told) -> list[Check]:
    """What ends soon."""
    found = [
        Check(
            "policies",
            "warn",
            f"{_policy(one)} ends in {span(max(one['left_s'], 0))}",
            f"mbx policy show {one['id']}",
        )
        for one in sorted(told["policies"], key=lambda one: int(one["left_s"]))
        if one["level"] != "yolo" and one["left_s"] < EXPIRY_S
    ]
    return few(found) or [Check("policies", "ok", f"{len(told['policies'])} in effect")]


def yolo(told: Told) -> list[Check]:
    """What delegates everything."""
    found = [
        Check(
            "yolo",
            "warn",
            f"{_policy(one)} holds until {_until(one)}: everything is allowed",
            f"mbx policy revoke {one['id']}",
        )
        for one in told["policies"]
        if one["level"] == "yolo"
    ]
    return few(found) or [Check("yolo", "ok", "no policy of that level is in effect")]


def chain(told: Told) -> list[Check]:
    """Places of the owner's chain that cannot be verified: older policies grant nothing."""
    found = [
        Check(
            "owner's chain",
            "fail",
            f"record {one['version']} of the chain of {one['host']} {one['reason']}: the policies"
            " before it are void",
            f"{_RESTORE}; or sign anew what shall hold",
        )
        for one in told["chain_damage"]
    ]
    if told.get("void_until") is not None:
        detail = (
            "the store was put back from a copy: what was signed up to record"
            f" {told['void_until']} is void"
        )
        found.insert(0, Check("owner's chain", "fail", detail, f"{_RESTORE}; or sign anew"))
    return few(found) or [Check("owner's chain", "ok", "every record is verified")]


def clock(told: Told) -> Check:
    """The clock that terms are proved by."""
    behind_s = told["clock_behind_s"]
    if behind_s:
        detail = f"the clock is {span(behind_s)} behind what it was: every policy is ask"
        fix = "set the clock right; if it is right now, mbx owner clock"
        return Check("owner's clock", "fail", detail, fix)
    return Check("owner's clock", "ok", "not behind what it was")


def _policy(one: Told) -> str:
    to, sources = ", ".join(one["to"]), ", ".join(one["from"])
    return f"policy {one['id'][:12]} ({one['level']}) of {to} for mail from {sources}"


def _until(one: Told) -> str:
    return f"{str(one['until'])[:16].replace('T', ' ')} UTC"
