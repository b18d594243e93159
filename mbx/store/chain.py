"""What is wrong with the chain of the audit log, and where: each fault is named by its rows.

A row's hash covers the row before it, its own number, and what it tells. So a row whose content was
changed does not follow from the one before; one that was removed leaves a gap; one that was put in
another's place still tells whose place it had. Somebody who writes all rows up to the newest anew
leaves no fault *in* the chain: that is found where the host has signed what a row was
(`mbx.daemon.auditing`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal, NamedTuple

from mbx.store import audit
from mbx.store.audit import GENESIS, AuditRow, row_hash
from mbx.store.database import Tx

FaultKind = Literal["changed", "missing", "moved", "added", "rewritten", "record", "acceptance"]
"""`rewritten`: not the row that the host signed for; `record`, `acceptance`: what a row speaks of
is gone, or is not the host's."""

FEW_ROWS: Final = 8
"""Up to so many broken rows are tried in each other's places; more only beside where they stand."""

_CONTEXT_ROWS: Final = 2
"""What stands before a piece: the row it follows from, and the one which that follows from."""


class Fault(NamedTuple):
    """What is wrong with the rows `row` to `last`, in words for people."""

    kind: FaultKind
    row: int
    last: int
    words: str


@dataclass(slots=True)
class _Walk:
    """A piece of the chain: `rows`, what stands `before` them, and what was found."""

    rows: Sequence[AuditRow]
    before: Sequence[AuditRow]
    broken: list[AuditRow] = field(default_factory=list)
    doubtful: set[int] = field(default_factory=set)
    """Broken rows of which the chain alone cannot say whether the one before was replaced."""
    faults: list[Fault] = field(default_factory=list)


def examine_after(tx: Tx, no: int, count: int) -> tuple[list[AuditRow], list[Fault]]:
    """The next `count` rows behind row `no`, and what is wrong with them."""
    found = audit.after(tx, max(no - _CONTEXT_ROWS, 0), count + _CONTEXT_ROWS)
    before = [row for row in found if row.no <= no]
    rows = [row for row in found if row.no > no][:count]
    return rows, examine(rows, before, no)


def examine_last(tx: Tx, count: int) -> tuple[int, list[Fault]]:
    """(how many of the newest rows were looked at, what is wrong with them)."""
    found = audit.last(tx, count + _CONTEXT_ROWS)
    first = max(len(found) - count, 0)
    if not found:
        return 0, []
    before = found[first - 1].no if first else 0
    return len(found) - first, examine(found[first:], found[:first], before)


def examine(rows: Sequence[AuditRow], before: Sequence[AuditRow], after: int) -> list[Fault]:
    """What is wrong with `rows`, which should go on behind row number `after`.

    `before` are the one or two rows that stand there now, if any.
    """
    walk = _Walk(rows, before)
    _follow(walk, after)
    walk.faults += _told(walk, _moved(walk))
    return sorted(walk.faults, key=lambda fault: (fault.row, fault.last))


def _follow(walk: _Walk, after: int) -> None:
    """Go from row to row; gaps are faults, rows that do not follow are broken.

    `computed` is the hash that a broken row should bear: where the next row follows from it, that
    hash alone was changed.
    """
    stored, computed = _at(walk.before, after)
    expected = after + 1
    for row in walk.rows:
        if row.no != expected:
            walk.faults.append(_missing(expected, row.no - 1))
            stored = computed = None
        expected = row.no + 1
        # Where what it follows from is gone, only the rows behind it can vouch for a row.
        digest = None if stored is None else _digest(stored, row)
        stored = row.hash
        if digest is None or digest == row.hash:
            computed = None
        elif computed is not None and _digest(computed, row) == row.hash:
            walk.doubtful.discard(row.no - 1)
            computed = None
        else:
            _note_broken(walk, row)
            computed = digest


def _note_broken(walk: _Walk, row: AuditRow) -> None:
    if row.no > 1 and not (walk.broken and walk.broken[-1].no == row.no - 1):
        walk.doubtful.add(row.no)
    walk.broken.append(row)


def _at(before: Sequence[AuditRow], after: int) -> tuple[bytes | None, bytes | None]:
    """(the hash that row `after` bears, the one it should bear) where they can be told."""
    if after == 0:
        return GENESIS, None
    by_no = {row.no: row for row in before}
    here, earlier = by_no.get(after), by_no.get(after - 1)
    if here is None:
        return None, None
    previous = GENESIS if after == 1 else earlier.hash if earlier is not None else None
    computed = None if previous is None else _digest(previous, here)
    return here.hash, computed


def _moved(walk: _Walk) -> dict[int, int]:
    """Broken rows that are another row in its place: where each stands -> where it was.

    Rows that only seemed broken because of what stands before them are taken off the list.
    """
    is_few = len(walk.broken) <= FEW_ROWS
    around = {row.no: row for row in (*walk.before, *walk.rows)}
    beside = _Beside(around)
    hashes = {row.hash for row in walk.broken}
    previous = hashes | {one for row in walk.broken for one in beside.hashes(row)}
    places = {row.no for row in walk.broken}
    found: dict[int, int] = {}
    by_origin: dict[int, bytes] = {}
    for row in walk.broken:
        candidates = previous if is_few else beside.hashes(row)
        numbers = {row.no - 1, row.no + 1} | (places if is_few else set())
        for number in sorted(numbers - {row.no}):
            digests = {_digest(one, row, number) for one in candidates}
            original = digests & ({row.hash} | (hashes if is_few else set()))
            if original:
                found[row.no], by_origin[number] = number, original.pop()
                break
    walk.broken = [
        row
        for row in walk.broken
        if row.no in found
        or row.no - 1 not in by_origin
        or _digest(by_origin[row.no - 1], row) != row.hash
    ]
    return found


class _Beside(NamedTuple):
    """The rows of a piece by number."""

    around: dict[int, AuditRow]

    def hashes(self, row: AuditRow) -> set[bytes]:
        """What a row can have followed from, if it was moved by one place."""
        near = (self.around.get(row.no - 1), self.around.get(row.no - 2))
        found = {one.hash for one in near if one is not None}
        return found | {GENESIS} if row.no <= _CONTEXT_ROWS else found


def _told(walk: _Walk, moved: dict[int, int]) -> Iterator[Fault]:
    """The broken rows as faults; neighbours with the same fault are one."""
    changed = [row.no for row in walk.broken if row.no not in moved]
    for run in _runs(changed, lambda no: 0):
        yield _changed(run, walk.doubtful)
    first = walk.rows[0].no if walk.rows else 0
    stands, origins = set(moved), set(moved.values())
    here = {row.no for row in walk.rows}
    for run in _runs(sorted(moved), lambda no: moved[no] - no):
        shift = moved[run[0]] - run[0]
        was = _rows(run[0] + shift, run[-1] + shift)
        words = f"{_rows(run[0], run[-1])} {_was(run)} {was}"
        yield Fault("moved", run[0], run[-1], words)
        if shift < 0 and run[0] + shift in here - stands:
            no = run[0] + shift
            yield Fault("added", no, no, f"row {no} was put in")
        if shift > 0 and run[0] not in origins and run[0] != first:
            # Which one cannot be said: the row behind it followed from what is gone.
            yield Fault("missing", run[0] - 1, run[0], f"a row before row {run[0]} is missing")


def _changed(run: Sequence[int], doubtful: set[int]) -> Fault:
    words = f"{_rows(run[0], run[-1])} {_was(run)} changed"
    if len(run) == 1 and run[0] in doubtful:
        words += f" (or row {run[0] - 1} was, and its hash made anew)"
    return Fault("changed", run[0], run[-1], words)


def _missing(first: int, last: int) -> Fault:
    return Fault("missing", first, last, missing_words(first, last))


def missing_words(first: int, last: int) -> str:
    """``rows 4 to 6 are missing``."""
    return f"{_rows(first, last)} {'is' if first == last else 'are'} missing"


def _runs(numbers: Sequence[int], key: Callable[[int], int]) -> Iterator[list[int]]:
    """Numbers that follow each other and have the same `key`, together."""
    for _, run in groupby(enumerate(numbers), lambda pair: (pair[1] - pair[0], key(pair[1]))):
        yield [number for _, number in run]


def _rows(first: int, last: int) -> str:
    return f"row {first}" if first == last else f"rows {first} to {last}"


def _was(run: Sequence[int]) -> str:
    return "was" if len(run) == 1 else "were"


def _digest(previous: bytes, row: AuditRow, no: int | None = None) -> bytes:
    """The hash of a row behind `previous`, as if it stood at `no`."""
    number = row.no if no is None else no
    return row_hash(previous, number, row.at_ms, row.act, row.identity, row.detail)
