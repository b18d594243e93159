"""Do the answers that callers got agree with the audit log, row for row, in the order of commits?

`tests.sim.linear` asks without the log whether there is an order at all; here the log says which it
was. Pure functions.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.sim.image import Audit
from tests.sim.linear import Kind, Outcome, Step
from tests.sim.tenure import Taking, Tenure, timeline

_CLAIMS: Final = frozenset[Kind]({"claim", "register", "arrive"})
"""What a session does to be granted something."""
_ASKS: Final = frozenset[Kind]({"claim", "register"})
"""What it does for that by its own will."""
_CALLS: Final = frozenset[Kind]({"use", "read", "release"})
"""What needs a lease."""
_ANSWERED: Final = frozenset[Outcome]({"ok", "unknown"})


@dataclass(frozen=True)
class _Event:
    """A grant or a release as the log has it."""

    seq: int
    session: str
    epoch: int
    is_taken: bool = False
    """Granted by the owner's takeover."""


def by_sequence(
    steps: Mapping[str, Sequence[Step]], audit: Sequence[Audit], names: Mapping[int, str]
) -> list[str]:
    """What is wrong with the answers, given the log: `steps` by identity id, `names` of sessions.

    Epochs grow, tenures do not overlap, each accepted claim or takeover has its own grant and each
    accepted release ends exactly its epoch, nothing is there that nobody asked for, what had
    returned before another was called was committed before it, and who was displaced is told so.
    """
    line = timeline(audit)
    found = [*line.overlaps, *line.epochs]
    for identity, some in steps.items():
        tenures = [tenure for tenure in line.tenures if tenure.identity == identity]
        grants = {t.epoch: _Event(t.start_seq, t.session, t.epoch, t.is_taken) for t in tenures}
        if len(grants) != len(tenures):
            found.append(f"{identity}: two grants have one epoch")
        rows = [row for row in audit if row.identity == identity]
        releases = {
            row.content["epoch"]: _Event(row.content["seq"], _session(row.content), 0)
            for row in rows
            if row.act == "release"
        }
        found += [
            f"{identity}: {row.session} released epoch {epoch}, which was not its own"
            for epoch, row in releases.items()
            if epoch in grants and grants[epoch].session != row.session
        ]
        takings = [taking for taking in line.takings if taking.row.identity == identity]
        told = [
            *_answers(some, grants, releases, names),
            *_takeovers(some, takings, names),
            *_uses(some, tenures, names),
            *_late_uses(some),
            *_unasked(some, grants, releases, names),
        ]
        found += [f"{identity}: {what}" for what in told]
    found += [f"{step} of a session that was displaced" for step in _untold(steps)]
    return [*found, *_came_back(steps, audit, names)]


def _session(told: Mapping[str, str]) -> str:
    return f"{told['cli']}/{told['session']}"


# --- claims and releases --------------------------------------------------------------------------


def _answers(
    steps: Iterable[Step],
    grants: Mapping[int, _Event],
    releases: Mapping[int, _Event],
    names: Mapping[int, str],
) -> list[str]:
    """Each accepted answer has its row, and rows are in the order of real time."""
    found, placed, ended = [], list[tuple[Step, int]](), set[int]()
    first: dict[int, Step] = {}
    for step in sorted((s for s in steps if s.outcome == "ok"), key=lambda step: step.returned):
        if step.kind in _CLAIMS or step.kind == "takeover":
            row = grants.get(step.epoch)
            is_taken = step.kind == "takeover"
            if row is None or row.session != names[step.session]:
                found.append(f"{step} was granted {row}")
            elif is_taken and not row.is_taken:
                found.append(f"{step} was granted {row}, by a claim")
            elif is_taken == row.is_taken and first.setdefault(step.epoch, step) is step:
                placed.append((step, row.seq))  # later ones got their own lease back
        elif step.kind == "release":
            row = releases.get(step.epoch)
            if row is None or row.session != names[step.session] or step.epoch in ended:
                found.append(f"{step} was released as {row}")
            else:
                placed.append((step, row.seq))
            ended.add(step.epoch)
    return found + _out_of_order(placed)


def _out_of_order(placed: list[tuple[Step, int]]) -> list[str]:
    """Steps that had returned before another was called, and were committed after it."""
    by_seq = sorted(placed, key=lambda one: one[1], reverse=True)
    found, earliest = [], (math.inf, 0)
    for step, seq in by_seq:
        if earliest[0] < step.called:
            found.append(f"{step} was committed as {seq}, before {earliest[1]}, and called after")
        earliest = min(earliest, (step.returned, seq))
    return found


def _uses(steps: Iterable[Step], tenures: Iterable[Tenure], names: Mapping[int, str]) -> list[str]:
    """A mailbox call is under a grant of its own session, and so was one that is lost."""
    held = {(tenure.epoch, tenure.session) for tenure in tenures}
    return [
        f"{step} was carried out under a lease that its session never had"
        for step in steps
        if (step.kind == "use" and step.outcome == "ok") or step.outcome == "lost"
        if step.epoch > 0 and (step.epoch, names[step.session]) not in held
    ]


def _late_uses(steps: Sequence[Step]) -> list[str]:
    """Nothing is carried out under an epoch after an answer told of its end, or of a later one."""
    ends = [
        (step.returned, step.epoch if step.kind == "release" else step.epoch - 1)
        for step in steps
        if step.outcome == "ok" and step.kind in {*_CLAIMS, "release", "takeover"}
    ]
    ends.sort()
    found, at, newest = [], 0, 0
    for step in sorted(steps, key=lambda step: step.called):
        while at < len(ends) and ends[at][0] < step.called:
            newest, at = max(newest, ends[at][1]), at + 1
        if (step.kind, step.outcome) == ("use", "ok") and 0 < step.epoch <= newest:
            found.append(f"{step} was called after the end of epoch {newest}")
    return found


def _unasked(
    steps: Iterable[Step],
    grants: Mapping[int, _Event],
    releases: Mapping[int, _Event],
    names: Mapping[int, str],
) -> list[str]:
    """No session was granted, and none gave back, more than it may have asked for."""
    asked: dict[tuple[str, str], int] = defaultdict(int)
    got: dict[int, set[str]] = defaultdict(set)
    for step in steps:
        kind = "release" if step.kind == "release" else "claim"
        if step.kind not in {*_CLAIMS, "release"}:
            continue
        if step.outcome == "unknown":
            asked[kind, names[step.session]] += 1
        elif step.outcome == "ok":
            got[step.epoch].add(kind)
    found = []
    for kind, rows in (("claim", grants), ("release", releases)):
        for epoch, row in rows.items():
            if kind not in got[epoch] and not row.is_taken:
                asked[kind, row.session] -= 1
                if asked[kind, row.session] < 0:
                    found.append(f"nobody asked for the {kind} of epoch {epoch} by {row.session}")
    return found


# --- takeovers ------------------------------------------------------------------------------------


def _takeovers(
    steps: Iterable[Step], takings: Sequence[Taking], names: Mapping[int, str]
) -> Iterator[str]:
    """Each record acts once, on the epoch that it names, for the one that it names."""
    brought: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        if step.kind == "takeover":
            brought[step.record].append(step)
    acted: dict[str, list[Taking]] = defaultdict(list)
    for taking in takings:
        told = taking.row.content
        acted[told["record"]].append(taking)
        ended = taking.ended.epoch if taking.ended else 0
        meant = {(step.expects, names[step.session]) for step in brought[told["record"]]}
        if (ended, _session(told["to"])) not in meant or told["epoch"] != ended + 1:
            yield f"audit {taking.row.no} ended epoch {ended}, which {meant} does not ask for"
    for record, some in brought.items():
        counts = Counter(step.outcome for step in some)
        if len(acted[record]) > 1 or counts["ok"] > 1:
            yield f"record {record} acted {len(acted[record])} times, and was told so: {counts}"
        if not acted[record] and counts["ok"] + counts["again"]:
            yield f"record {record} never acted, and was told so: {counts}"
        if acted[record] and not counts["ok"] + counts["unknown"]:
            yield f"record {record} acted, and nobody brought it before it had"
        yield from _false_words(some, acted[record])
        yield from _refused_after(some)


def _false_words(steps: Iterable[Step], acted: Sequence[Taking]) -> Iterator[str]:
    """The answer of a record that acted tells the epoch that it ended, and the one it granted."""
    for step in steps:
        for taking in acted[:1] if step.outcome == "ok" else ():
            ended = taking.ended.epoch if taking.ended else 0
            if step.seen.epoch not in (None, ended) or step.epoch != taking.row.content["epoch"]:
                yield f"{step} was told another epoch than that of audit {taking.row.no}"


def _refused_after(steps: Sequence[Step]) -> Iterator[str]:
    """Whoever brings a record that has acted gets its first answer."""
    applied = min((s.returned for s in steps if s.outcome in {"ok", "again"}), default=math.inf)
    for step in steps:
        if step.called > applied and step.outcome not in {"again", "unknown"}:
            yield f"{step} was brought after the record had acted"


# --- who was displaced ----------------------------------------------------------------------------


def displaced_calls(steps: Mapping[str, Sequence[Step]]) -> list[tuple[Step, int]]:
    """Calls of a session that was surely displaced before, and the epoch that it had had.

    Surely: a takeover of the epoch that it was granted last had returned, and nothing that it asked
    for since, or that the owner gave it, may have given it another.
    """
    ended = {
        (identity, step.expects): step.returned
        for identity, some in steps.items()
        for step in some
        if (step.kind, step.outcome) == ("takeover", "ok")
    }
    lives: dict[int, list[tuple[str, Step]]] = defaultdict(list)
    for identity, some in steps.items():
        for step in some:
            lives[step.session].append((identity, step))
    found = []
    for life in lives.values():
        changes = [one for one in life if _may_change(one[1])]
        for _, step in life:
            had = _had(changes, step) if step.kind in _CALLS else None
            if had is not None and ended.get(had, math.inf) < step.called:
                found.append((step, had[1]))
    return found


def _had(changes: Sequence[tuple[str, Step]], step: Step) -> tuple[str, int] | None:
    """What a session surely had been granted last when it called; None: that is not sure."""
    before = [one for one in changes if one[1].called < step.returned and one[1] is not step]
    if not before:
        return None
    identity, last = max(before, key=lambda one: one[1].returned)
    for other, one in before:
        same = (other, one.epoch) == (identity, last.epoch)
        if one.returned >= last.called and not same and one is not last:
            return None  # two at a time
    if last.returned > step.called or last.kind == "release" or last.outcome != "ok":
        return None
    return identity, last.epoch


def _may_change(step: Step) -> bool:
    """May it have changed what its session holds?"""
    kinds = {*_CLAIMS, "release", "takeover"}
    return step.kind in kinds and step.outcome in _ANSWERED


def _untold(steps: Mapping[str, Sequence[Step]]) -> list[Step]:
    """Calls of displaced sessions that were carried out, or refused as if they had never held."""
    lost = {
        (step.session, step.called)
        for some in steps.values()
        for step in some
        if step.outcome == "lost"
    }
    return [
        step
        for step, _ in displaced_calls(steps)
        if step.outcome != "unknown" and (step.session, step.called) not in lost
    ]


# --- what comes back by itself --------------------------------------------------------------------


def _came_back(
    steps: Mapping[str, Sequence[Step]], audit: Sequence[Audit], names: Mapping[int, str]
) -> Iterator[str]:
    """A conversation has, or waits for, without a claim of its own, only what it held last.

    Not what it was displaced from, and not what it released.
    """
    bidden = {
        (names[step.session], identity, step.epoch)
        for identity, some in steps.items()
        for step in some
        if step.kind in _ASKS and step.outcome == "ok"
    }
    unknown = Counter(
        (names[step.session], identity)
        for identity, some in steps.items()
        for step in some
        if step.kind in _ASKS and step.outcome == "unknown"
    )
    held: dict[str, list[tuple[int, str | None]]] = defaultdict(lambda: [(0, None)])
    for row in audit:
        told, identity = row.content, row.identity or ""
        if row.act == "takeover":
            if told["before"] is not None:
                _forget(held[_session(told["before"])], told["seq"], identity)
            held[_session(told["to"])].append((told["seq"], identity))
        elif row.act == "release":
            _forget(held[_session(told)], told["seq"], identity)
        elif row.act == "claim":
            who = _session(told)
            if (who, identity, told["epoch"]) not in bidden and held[who][-1][1] != identity:
                unknown[who, identity] -= 1
                if unknown[who, identity] < 0:
                    yield f"audit {row.no}: epoch {told['epoch']} came to {who} by itself"
            held[who].append((told["seq"], identity))
    seqs = _seqs(steps, audit)
    for identity, some in steps.items():
        for step in some:
            if step.kind == "wait":
                first = max((seq for _, back, seq in seqs if back < step.called), default=0)
                last = min((seq for call, _, seq in seqs if call > step.returned), default=math.inf)
                if identity not in _between(held[names[step.session]], first, last):
                    yield f"{step}: it waits by itself for what it lost"


def _forget(held: list[tuple[int, str | None]], seq: int, identity: str) -> None:
    if held[-1][1] == identity:
        held.append((seq, None))


def _between(
    held: Sequence[tuple[int, str | None]], first: float, last: float
) -> Iterator[str | None]:
    """All that was held last at some time after the commit `first` and before `last`."""
    for (seq, identity), (until, _) in pairwise([*held, (math.inf, None)]):
        if seq < last and until > first:
            yield identity


def _seqs(
    steps: Mapping[str, Sequence[Step]], audit: Iterable[Audit]
) -> list[tuple[float, float, int]]:
    """Call, return and commit of each takeover and release that was answered ok."""
    seq_of = {
        (row.act, row.identity, row.content["epoch"]): row.content["seq"]
        for row in audit
        if row.act in {"takeover", "release"}
    }
    return [
        (step.called, step.returned, seq_of[step.kind, identity, step.epoch])
        for identity, some in steps.items()
        for step in some
        if step.outcome == "ok" and (step.kind, identity, step.epoch) in seq_of
    ]
