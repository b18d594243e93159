"""Names, look-alikes and addresses: one strict rule for each, applied to the whole value.

The rules are those of the contract's section "Names and addresses". Every refusal is an
`MbxError('name-invalid')` that says what is wrong and what is allowed; its facts are `field` (what
was checked) and `reason` (one of `empty length character hyphen reserved look-alike generated
address`).
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from mbx.core.errors import MbxError
from mbx.core.limits import NAME_MAX_CHARS, NAME_MIN_CHARS, SUGGESTIONS_MAX

RESERVED: Final = frozenset(
    "owner all everyone local host role lead none me you system mbx".split()
)
"""Words that are no identity name and no host label, nor is anything that looks like one."""

OWNER: Final = "owner"
"""The human's mailbox; reserved, so no session holds it."""

HOST_LABEL_FALLBACK: Final = "machine"
"""The host label where nothing usable is left of the hostname."""

_ALLOWED: Final = (
    f"{NAME_MIN_CHARS} to {NAME_MAX_CHARS} of a-z, 0-9 and hyphen, first and last a letter or digit"
)
_ADDRESSES: Final = "name, name@host, role:ROLE, *, owner, owner@host or lead"
_LABEL: Final = re.compile(
    f"[a-z0-9][a-z0-9-]{{{NAME_MIN_CHARS - 2},{NAME_MAX_CHARS - 2}}}[a-z0-9]"
)
_FOREIGN: Final = re.compile("[^a-z0-9-]")
_HEX_PART: Final = re.compile("(?=.*[0-9])[0-9a-f]{8,}")
_TRAILING_NUMBER: Final = re.compile(".*[0-9]{5}")

_RANK_OF_BEGINNING: Final = 4
"""A name that only begins alike is less near than one with three typing slips."""

AddressKind = Literal["name", "role", "everyone", "owner", "lead"]


@dataclass(frozen=True, slots=True)
class Address:
    """What a recipient was called: `name` is the name or the role, empty for the other kinds."""

    kind: AddressKind
    name: str = ""
    host: str | None = None

    def __str__(self) -> str:
        """The one spelling that `parse_address` reads back as this address."""
        head = {"name": self.name, "role": f"role:{self.name}", "everyone": "*"}.get(
            self.kind, self.kind
        )
        return head if self.host is None else f"{head}@{self.host}"


def check_name(name: str) -> None:
    """Refuse what cannot be an identity's name (look-alikes of existing names: see `skeleton`)."""
    _check_proper_label("name", name)


def check_host_label(label: str) -> None:
    """Refuse what cannot be a host's label: the rule is that of names."""
    _check_proper_label("host label", label)


def check_role(role: str) -> None:
    """Refuse what is not one label.

    Reserved words are free here: a role is always written as `role:<role>`, so `lead` as a role
    means nothing special.
    """
    _check_label("role", role)


def skeleton(name: str) -> str:
    """What is left of a name for a careless eye; two names with one skeleton look alike.

    Hyphens go first, so that names which differ in hyphens alone always meet.
    """
    return (
        name.replace("-", "")
        .replace("rn", "m")
        .replace("0", "o")
        .replace("1", "l")
        .replace("i", "l")
    )


_RESERVED_SKELETONS: Final = {skeleton(word): word for word in RESERVED}


_MEANT: Final = {
    "all": "write * for everyone",
    "everyone": "write * for everyone",
    "role": "write role:ROLE",
}
"""What is written in the place of an address, and how it is spelled."""


@lru_cache(maxsize=4_096)  # the same few correspondents, again and again
def parse_address(text: str) -> Address:
    """The address that the whole text spells; raises `name-invalid` for anything else."""
    if text == "*":
        return Address("everyone")
    if text == "lead":
        return Address("lead")
    try:
        return _spelled(text)
    except MbxError as error:
        if error.next_step is None or not error.next_step.startswith("choose"):
            raise
        # Whoever writes to somebody chooses no name: who there is helps.
        raise MbxError(error.code, error.message, "mbx agents", **error.facts) from None


def _spelled(text: str) -> Address:
    """A role, or a name alone or with its host. Raises MbxError name-invalid."""
    name, at, label = text.partition("@")
    if at and (name == "*" or name.startswith("role:")):
        raise _refusal(
            "address",
            "address",
            f"the address {_quoted(text)} names a host; roles and * reach all hosts",
            "leave the host out, or name each one there: mbx agents",
        )
    if text.startswith("role:"):
        role = text.removeprefix("role:")
        check_role(role)
        return Address("role", role)
    if "@" in label:
        raise _refusal(
            "address",
            "address",
            f"the address {_quoted(text)} has more than one @; allowed are {_ADDRESSES}",
            "address it as name@host with exactly one host",
        )
    if at:
        check_host_label(label)
    host = label if at else None
    if name == "owner":
        return Address("owner", host=host)
    try:
        check_name(name)
    except MbxError as refusal:
        if not str(refusal.next_step).startswith("use "):  # nobody is named here but looked for
            refusal.next_step = _MEANT.get(name.strip().lower(), "mbx agents")
        raise
    return Address("name", name, host)


def suggest(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that `name` may have meant, best first; the same for equal input.

    Only names of the grammar come out, whatever `known` holds. Nearness is the number of typing
    slips (a letter more, less, other, or two swapped); a name that begins like the wanted one, or
    the other way round, comes after those.
    """
    wanted = name.lower()
    slips_max = 1 if len(wanted) < 4 else 2 if len(wanted) < 8 else 3
    nearest: list[tuple[int, str]] = []
    for candidate in set(known) - {name}:
        if _LABEL.fullmatch(candidate) is None:
            continue
        # Only what can still be among the nearest is worth counting: this keeps 10,000 names cheap.
        worst = nearest[-1][0] if len(nearest) == SUGGESTIONS_MAX else _RANK_OF_BEGINNING
        rank = _rank(wanted, candidate, min(slips_max, worst))
        if rank is not None:
            nearest = sorted([*nearest, (rank, candidate)])[:SUGGESTIONS_MAX]
    return [candidate for _, candidate in nearest]


def fold_host_label(hostname: str) -> str:
    """The host label of a hostname: its first part folded to the grammar, else `machine`."""
    label = _fold(hostname.partition(".")[0])
    try:
        check_host_label(label)
    except MbxError:
        return HOST_LABEL_FALLBACK
    return label


# The same few names come again and again. A refusal raises and so is never kept.
@lru_cache(maxsize=4_096)
def _check_proper_label(field: str, value: str) -> None:
    """The rule of identity names and host labels."""
    _check_label(field, value)
    if value in RESERVED:
        message = f"the {field} {_quoted(value)} is a reserved word"
        raise _refusal(field, "reserved", message, f"choose another {field}")
    word = _RESERVED_SKELETONS.get(skeleton(value))
    if word is not None:
        message = f"the {field} {_quoted(value)} looks like the reserved word {word!r}"
        raise _refusal(field, "look-alike", message, f"choose another {field}")
    if _looks_generated(value):
        message = (
            f"the {field} {_quoted(value)} looks generated; digits only, 8 or more hex digits in a"
            " row with a number among them, and 5 or more digits at the end are refused"
        )
        raise _refusal(field, "generated", message, f"choose a {field} that says what it is for")


def _check_label(field: str, value: str) -> None:
    """The grammar alone, and which part of it a refused value breaks."""
    if _LABEL.fullmatch(value) is not None:
        return
    reason, fault = _label_fault(value)
    message = f"the {field} {_quoted(value)} {fault}; allowed are {_ALLOWED}"
    folded = _fold(value)
    usable = _LABEL.fullmatch(folded) is not None and skeleton(folded) not in _RESERVED_SKELETONS
    next_step = f"use {folded}" if usable else f"choose a {field} of {_ALLOWED}"
    raise _refusal(field, reason, message, next_step)


def _label_fault(value: str) -> tuple[str, str]:
    """(reason, words) for a value that the grammar refuses."""
    if not value:
        return "empty", "is empty"
    foreign = _FOREIGN.search(value)
    if foreign is not None:
        return "character", f"contains U+{ord(foreign.group()):04X}"
    if not NAME_MIN_CHARS <= len(value) <= NAME_MAX_CHARS:
        return "length", f"has a length of {len(value)}"
    return "hyphen", "begins or ends with a hyphen"


def _looks_generated(value: str) -> bool:
    """Whether a program rather than a person seems to have made the name."""
    return (
        value.replace("-", "").isdigit()
        or any(_HEX_PART.fullmatch(part) for part in value.split("-"))
        or _TRAILING_NUMBER.fullmatch(value) is not None
    )


def _refusal(field: str, reason: str, message: str, next_step: str) -> MbxError:
    return MbxError("name-invalid", message, next_step, field=field, reason=reason)


def _quoted(value: str) -> str:
    """A refused value inside our sentence: in ASCII, so that a look-alike letter shows; cut."""
    return ascii(value[:NAME_MAX_CHARS]) + ("..." if len(value) > NAME_MAX_CHARS else "")


def _fold(text: str) -> str:
    """The label nearest to a text: accents and case dropped, all else turned into hyphens."""
    plain = unicodedata.normalize("NFKD", text[:255]).encode("ascii", "ignore").decode("ascii")
    parts = re.findall("[a-z0-9]+", plain.lower())
    return "-".join(parts)[:NAME_MAX_CHARS].rstrip("-")


def _rank(wanted: str, candidate: str, slips_max: int) -> int | None:
    """How far a candidate is from the wanted name (0 is nearest), or None for too far."""
    if skeleton(wanted) == skeleton(candidate):
        return 0
    slips = _slips(wanted, candidate, slips_max)
    if slips is not None:
        return slips
    shorter, longer = sorted((wanted, candidate), key=len)
    if len(shorter) >= NAME_MIN_CHARS and longer.startswith(shorter):
        return _RANK_OF_BEGINNING
    return None


def _slips(wanted: str, candidate: str, slips_max: int) -> int | None:
    """Damerau's distance (optimal string alignment), or None when it exceeds `slips_max`."""
    if abs(len(wanted) - len(candidate)) > slips_max:
        return None
    wanted, candidate = _without_common_ends(wanted, candidate)
    earlier: list[int] = []
    above = list(range(len(candidate) + 1))
    for row, letter in enumerate(wanted, 1):
        current = [row]
        for column, other in enumerate(candidate, 1):
            cost = min(above[column] + 1, current[-1] + 1, above[column - 1] + (letter != other))
            if row > 1 and column > 1 and wanted[row - 2 : row] == other + candidate[column - 2]:
                cost = min(cost, earlier[column - 2] + 1)
            current.append(cost)
        # A swap reaches back two rows, hence the second condition.
        if min(current) > slips_max and min(above) >= slips_max:
            return None
        earlier, above = above, current
    return above[-1] if above[-1] <= slips_max else None


def _without_common_ends(left: str, right: str) -> tuple[str, str]:
    """What two texts do not share at their beginnings and ends: their distance is the same."""
    start = 0
    while left[start : start + 1] == right[start : start + 1] != "":
        start += 1
    left, right = left[start:], right[start:]
    end = 0
    while end < min(len(left), len(right)) and left[-1 - end] == right[-1 - end]:
        end += 1
    return left[: len(left) - end], right[: len(right) - end]
