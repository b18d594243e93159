"""The invariants of the owner's authority: takeovers (I9), theft (I10), policy (I13), I14.

As those in `checker.py`: sentences about what is wrong, from a history and the store that it left.
"""

import base64
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from mbx.core import record
from mbx.core.record import Record, RecordError
from tests.sim import oracle
from tests.sim.case import Case, deliveries_of, holder_at
from tests.sim.history import Call, Commit, Return
from tests.sim.image import Message, OwnerRecord
from tests.sim.oracle import BACK_MAX_MS, HOUR_MS, MINUTE_MS, Act, Ledger, Question

_DAY_MS: Final = 24 * HOUR_MS
_TAKEOVER_MS: Final = 5 * MINUTE_MS
_CHAINED: Final = frozenset({"policy", "revoke"})

# --- I9, I10: takeovers ---------------------------------------------------------------------------


def takeovers_are_the_owners(case: Case) -> list[str]:
    """I9: each takeover has a valid record of the owner's for exactly the epoch that it ended.

    Each record acts once, and leaves one audit row and one acceptance that names the log's end.
    """
    book = case.ledger
    found = []
    acts = {act.seq: act for act in book.acts}
    for taking in case.timeline.takings:
        who, told = f"audit {taking.row.no}", taking.row.content
        act = acts.get(taking.seq)
        if act is None or act.id != told["record"] or act.kind != "takeover":
            found.append(f"{who}: a takeover without a record that was brought")
            continue
        content = act.content
        ended = taking.ended.epoch if taking.ended else 0
        if (content["identity"], content["epoch"]) != (taking.row.identity, ended):
            found.append(f"{who}: it ended epoch {ended}, the owner signed {content['epoch']}")
        if content["destination"] != told["to"] or told["epoch"] != ended + 1:
            found.append(f"{who}: {told['to']} got epoch {told['epoch']}: not as it was signed")
    for act in book.acts:
        if act.kind == "takeover":
            found += [f"takeover {act.id}: {what}" for what in _faults(case, act)]
    return found + _acted_twice(book) + _unaccounted(case, book)


def thefts(case: Case, commit: Commit, gone: Collection[str]) -> list[str]:
    """I10: a takeover of a living holder that no record by a key of the owner's stands for."""
    call = case.call_of.get(commit.seq)
    return [
        f"commit {commit.seq}: {taking.ended.session} lost its lease to a stranger and lives"
        for taking in case.timeline.takings
        if taking.seq == commit.seq
        and taking.was_held
        and taking.ended is not None
        and taking.ended.session not in gone
        and not _is_signed_by_the_owner(case, commit.seq, call)
    ]


def _is_signed_by_the_owner(case: Case, seq: int, call: Call | None) -> bool:
    if call is None or call.method != "owner.apply":
        return False
    state = case.ledger.at(seq - 1)
    one = Record(**call.params["record"])
    return one.kind == "takeover" and not _forged(case, one, state.keys, state.key)


def _acted_twice(book: Ledger) -> list[str]:
    seen: set[str] = set()
    found = []
    for act in book.acts:
        if act.id in seen:
            found.append(f"commit {act.seq}: record {act.id} acted again")
        seen.add(act.id)
    return found


def _unaccounted(case: Case, book: Ledger) -> list[str]:
    """Records in the store, in the audit log and in the host's word: each has all three."""
    stored = {one.record_id: one for one in case.final.owner_records}
    found = [f"record {act.id} acted and is not kept" for act in book.acts if act.id not in stored]
    brought = {act.id: act for act in book.acts}
    told: dict[str, list[int]] = defaultdict(list)
    for row in case.final.audit:
        if row.act in _AUDITED:
            told[row.content.get("record", "")].append(row.no)
    for one in case.final.owner_records:
        act = brought.get(one.record_id)
        if act is None:
            found.append(f"record {one.record_id} is kept, and nobody brought it")
        elif len(told[one.record_id]) != 1:
            found.append(f"record {one.record_id} is told in audit rows {told[one.record_id]}")
        else:
            found += _false_acceptance(case, one, act)
    found += [f"audit {told[one]}: no such record {one}" for one in told if one not in stored]
    return found


_AUDITED: Final = frozenset({"takeover", "policy", "revoke", "owner", "clock", "owner-mail"})
"""The acts of audit rows that tell of an applied record."""


def _false_acceptance(case: Case, one: OwnerRecord, act: Act) -> list[str]:
    host, who = case.final, f"the acceptance of {one.record_id}"
    signature = base64.b64encode(one.acceptance_signature).decode()
    signed = Record("acceptance", one.acceptance, {host.host_key_id: signature})
    owner = act.content["owner"]
    signers = {host.host_key_id: host.host_public}
    try:
        said = record.verify(signed, kind="acceptance", signers=signers, audience=owner)
    except RecordError as error:
        return [f"{who}: {error}"]
    no = said["audit_no"]
    row = host.audit[no - 1] if type(no) is int and 0 < no <= len(host.audit) else None
    if row is None or row.hash.hex() != said["audit_hash"]:
        return [f"{who} names an audit row that is not there"]
    if (said["record"], said["kind"], said["seq"]) != (act.id, act.kind, act.seq):
        return [f"{who} tells of something else"]
    if (row.content.get("record"), row.content["seq"]) != (act.id, act.seq):
        return [f"{who} names the audit row of something else"]
    return []


# --- whether the owner meant it -------------------------------------------------------------------


def _faults(case: Case, act: Act) -> list[str]:
    """Why this record could not act when it did."""
    content, before = act.content, act.before
    if act.kind == "rotate":
        return _false_rotation(case, act)
    found = _forged(case, act.record, before.keys, before.key)
    if act.kind == "directive" and content["act"] == "clock":
        return found
    return found + _untimely(act)


def _untimely(act: Act) -> list[str]:
    content, now_ms = act.content, act.call.at_ms
    found = ["the clock was behind"] if act.before.is_behind(now_ms) else []
    if now_ms >= content.get("exp", now_ms + 1) or now_ms - content["iat"] >= _DAY_MS:
        found.append(f"it was brought too late, at {now_ms}")
    if content["iat"] > now_ms + BACK_MAX_MS:
        found.append(f"it is of a time that had not come at {now_ms}")
    if act.kind == "takeover" and content["exp"] - content["iat"] > _TAKEOVER_MS:
        found.append("it asks for more than five minutes")
    return found


def _false_rotation(case: Case, act: Act) -> list[str]:
    content, before = act.content, act.before
    key, public = content["owner"], bytes.fromhex(content["public_key"])
    keys = {key: public}
    if before.key is not None:
        keys[before.key] = before.keys[before.key]
    found = _forged_by(case, act.record, keys)
    if content["previous"] != before.key or content["until_version"] != len(before.chain):
        found.append("it was made for another state of the chain")
    if key in before.keys:
        found.append("a key came back")
    if before.key is not None:
        found += _untimely(act)
    return found


def _forged(case: Case, one: Record, keys: Mapping[str, bytes], key: str | None) -> list[str]:
    if key is None:
        return ["there was no owner"]
    return _forged_by(case, one, {key: keys[key]}, key)


def _forged_by(
    case: Case, one: Record, signers: Mapping[str, bytes], owner: str | None = None
) -> list[str]:
    host = case.final.host_key_id
    try:
        content = record.verify(one, kind=one.kind, signers=signers, audience=host)
    except RecordError as error:
        return [str(error)]
    if owner is not None and content.get("owner") != owner:
        return ["it names another owner than its signer"]
    return []


# --- I13: policy ----------------------------------------------------------------------------------


def policy_is_the_owners(case: Case) -> list[str]:
    """I13: what readers are told equals a recomputation from the owner's records.

    And the records that count are the owner's, each the next of its chain; versions never fall.
    """
    book = case.ledger
    found = []
    for act in book.acts:
        if act.kind != "takeover":
            found += [f"{act.kind} {act.id}: {what}" for what in _faults(case, act)]
        if act.kind in _CHAINED:
            found += _out_of_chain(book, act)
    for call, answer in case.accepted:
        if call.method in {"mail.inbox", "mail.read"}:
            found += _wrong_words(case, book, call, answer)
    return found + _versions_fall(case, book)


def _out_of_chain(book: Ledger, act: Act) -> list[str]:
    content, chain = act.content, act.before.chain
    found = []
    if content["version"] != len(chain) + 1:
        found.append(f"commit {act.seq}: version {content['version']} after {len(chain)}")
    last = chain[-1] if chain else None
    is_whole = last is None or last.id not in book.damage[act.call.attempt]
    if is_whole and content["previous"] != (last.digest.hex() if last else None):
        found.append(f"commit {act.seq}: version {content['version']} follows another record")
    for earlier in chain:
        told = Act(0, act.call, earlier, act.before).content
        voids = earlier.kind == "revoke" and told["all"] and act.kind == "policy"
        is_whole = earlier.id not in book.damage[act.call.attempt]
        if voids and is_whole and content["iat"] <= told["iat"]:
            found.append(f"commit {act.seq}: a policy that {earlier.id} had revoked")
    return found


def _wrong_words(case: Case, book: Ledger, call: Call, answer: Return) -> list[str]:
    tenure = holder_at(case, call, answer)
    if tenure is None:
        return []
    state, damaged = book.at(answer.commit_seq), book.damage[call.attempt]
    found = []
    for entry in answer.result.get("messages", ()):
        message = case.by_id.get(entry["id"])
        if message is None or "policy" not in entry:
            continue
        asked = Question(
            message.source, tenure.identity, case.final.host_key_id, call.at_ms, damaged
        )
        due = oracle.words(state, asked, message)
        told = [(entry["trust"], due.trust), (entry["policy"], due.policy)]
        if "policy_line" in entry:
            told.append((entry["trust_line"], due.trust_line))
            line: str = entry["policy_line"]
            vague = due.policy_line is None and line.startswith("policy: ask (")
            told.append((line, line if vague else due.policy_line or ""))
        found += [
            f"attempt {call.attempt}: {message.id} is shown as {a!r}, it is {b!r}"
            for a, b in told
            if a != b
        ]
    return found


def _versions_fall(case: Case, book: Ledger) -> list[str]:
    found = []
    for call, answer in case.accepted:
        if call.method == "owner.show":
            state, result = book.at(answer.commit_seq), answer.result
            counted = oracle.in_effect(state, call.at_ms, book.damage[call.attempt])
            told = (result["policy_version"], result["policies_in_effect"])
            due = (len(state.chain), counted)
            if told != due:
                found.append(f"attempt {call.attempt}: version and count {told}, they are {due}")
    kept = [one.version for one in case.final.owner_records if one.version is not None]
    found += [f"version {b} stands behind {a}" for a, b in pairwise(kept) if b != a + 1]
    return found


# --- I14: authority never grows -------------------------------------------------------------------


@dataclass(frozen=True)
class _Reading:
    """A conversation saw a message: when, and as whom."""

    attempt: int
    seq: int
    at_ms: int
    message: Message
    reader: str
    listed_at: int | None = None
    """The place in the history where a listing showed it, which only a daemon remembers."""

    @property
    def root_ms(self) -> int | None:
        """When what was read first came from outside."""
        origin, since = self.message.content["origin"], self.message.content["external_since"]
        if origin is None and since is None:
            return None
        if origin is None and type(since) is int and 0 <= since <= self.at_ms:
            return since
        return self.at_ms


@dataclass(frozen=True)
class _Writing:
    """A message, and the conversation and call that wrote it."""

    call: Call
    seq: int
    message: Message
    conversation: str

    @property
    def sender(self) -> str:
        return self.message.source

    @property
    def reached(self) -> set[str]:
        """The identities that it names, without the human."""
        return {to["identity"] for to in self.message.content["to"] if to["name"] != "owner"}


def authority_never_grows(case: Case) -> list[str]:
    """I14: what came from outside sticks for an hour, hops never fall, limits hold.

    Along replies, relays and notes to oneself, whatever the conversation released or claimed.
    """
    book, readings = case.ledger, _readings(case)
    known = _may_have_read(case)
    found = []
    for writing in _writings(case):
        who = f"message {writing.message.no}"
        found += [f"{who}: {what}" for what in _less_than_answered(case, writing)]
        for reading in readings[writing.conversation]:
            if _counts(case, reading, writing):
                found += [f"{who}: {what}" for what in _washed(reading, writing)]
                step = _step(case, writing, reading, known[writing.conversation])
                found += [f"{who}: {w}" for w in _climbed(case, book, reading, writing, step)]
        for reading in _read_by_kin(case, writing, readings):
            found += [f"{who}, by kin: {what}" for what in _washed(reading, writing)]
            step = _step(case, writing, reading, _wrote_to(case, writing))
            found += [f"{who}, by kin: {w}" for w in _climbed(case, book, reading, writing, step)]
    return found


def _read_by_kin(
    case: Case, writing: _Writing, readings: Mapping[str, list[_Reading]]
) -> Iterator[_Reading]:
    """What sessions above, below and beside its writer read before it was written."""
    writer, told = writing.conversation, case.family.may_have_told
    for reader in case.family.sessions:
        for reading in readings.get(reader, ()) if reader != writer else ():
            if _counts(case, reading, writing) and told(reader, reading.seq, writer, writing.seq):
                yield reading


def _wrote_to(case: Case, writing: _Writing) -> set[str]:
    """Who ever wrote to the identity, or to anybody, by the conversation's own doing."""
    known = set(_may_have_read(case)[writing.conversation])
    for message in case.final.messages:
        if any(to["identity"] == writing.sender for to in message.content["to"]):
            known.add(message.source)
    return known


def _readings(case: Case) -> Mapping[str, list[_Reading]]:
    found: dict[str, list[_Reading]] = defaultdict(list)
    for call, answer in case.accepted:
        seq = case.commit_of.get(call.attempt)
        tenure = holder_at(case, call, answer) if call.method == "mail.read" and seq else None
        if tenure is None or seq is None:
            continue
        for entry in answer.result.get("messages", ()):
            message = case.by_id.get(entry["id"])
            if message is not None and (entry.get("body") or not entry.get("bytes")):
                found[tenure.session].append(
                    _Reading(call.attempt, seq, call.at_ms, message, tenure.identity)
                )
    for call, answer, at in case.listings:
        tenure = holder_at(case, call, answer)
        for entry in answer.result["messages"] if tenure is not None else ():
            message = case.by_id.get(entry["id"])
            if tenure is not None and message is not None:
                told = (call.attempt, answer.commit_seq, call.at_ms, message, tenure.identity, at)
                found[tenure.session].append(_Reading(*told))
    for writing in _writings(case):  # who answers something has it before its eyes
        answered = case.by_id.get(writing.message.content["reply_to"] or "")
        if answered is not None:
            call = writing.call
            one = _Reading(call.attempt, writing.seq, call.at_ms, answered, writing.sender)
            found[writing.conversation].append(one)
    return found


def _writings(case: Case) -> Iterator[_Writing]:
    for op, messages in case.sent_by_op.items():
        committed = [call for call in case.attempts[op] if call.attempt in case.commit_of]
        for message in messages:
            if message.owner_key is not None or len(committed) != 1:
                continue
            content = message.content
            tenure = case.tenure(content["from"]["identity"], content["lease"]["epoch"])
            if tenure is not None:
                call = committed[0]
                yield _Writing(call, case.commit_of[call.attempt], message, tenure.session)


def _may_have_read(case: Case) -> Mapping[str, set[str]]:
    """By conversation: the senders of whatever it ever asked to read, was shown, or answered.

    What a listing showed whose answer was lost, nobody can say: then it was everything.
    """
    found: dict[str, set[str]] = defaultdict(set)
    listed = {call.attempt: answer for call, answer, _ in case.listings}
    everybody = {message.source for message in case.final.messages}
    for call in case.calls.values():
        if call.method == "mail.inbox":
            answer = listed.get(call.attempt)
            shown = [entry["id"] for entry in answer.result["messages"]] if answer else []
            known = {case.by_id[one].source for one in shown if one in case.by_id}
            found[call.session] |= known if answer else everybody
    for call in case.calls.values():
        named = [*call.params.get("ids", ()), call.params.get("id"), call.params.get("reply_to")]
        ids = tuple(one for one in named if one)
        for message in case.final.messages if ids else ():
            if message.id.startswith(ids):
                found[call.session].add(message.source)
    return found


def _counts(case: Case, reading: _Reading, writing: _Writing) -> bool:
    """Read before it was written, within the hour, and no clock jumped over that hour meanwhile."""
    if reading.listed_at is not None and not case.was_kept(reading.listed_at, writing.seq):
        return False
    end_ms = reading.at_ms + HOUR_MS
    is_before = reading.seq < writing.seq or reading.attempt == writing.call.attempt
    if not is_before or not reading.at_ms <= writing.call.at_ms < end_ms:
        return False
    first, last = sorted((reading.attempt, writing.call.attempt))
    between = (case.calls[no].at_ms for no in range(first, last + 1) if no in case.calls)
    times = list(between)
    return reading.at_ms <= min(times) and max(times) < end_ms


def _less_than_answered(case: Case, writing: _Writing) -> list[str]:
    content = writing.message.content
    answered = case.by_id.get(content["reply_to"] or "")
    if answered is None:
        return []
    told, found = answered.content, []
    since, root_ms = content["external_since"], told["external_since"]
    if root_ms is None and told["origin"] is not None:
        root_ms = told["sent_at"]
    if root_ms is not None and not _carries(content, root_ms):
        found.append(f"what it answers came from outside at {root_ms}, it says {since}")
    if content["hop"] < told["hop"]:
        found.append(f"what it answers was passed on {told['hop']} times, it {content['hop']}")
    return found


def _carries(content: Any, root_ms: int) -> bool:
    """Does it say that it came from outside, at this time or later? First-hand is always now."""
    since = content["external_since"]
    return since is not None and (content["origin"] is not None or since >= root_ms)


def _washed(reading: _Reading, writing: _Writing) -> list[str]:
    since, root_ms = writing.message.content["external_since"], reading.root_ms
    if not _is_external(reading, writing) or root_ms is None:
        return []
    if not _carries(writing.message.content, root_ms):
        return [f"its writer read what came from outside at {root_ms}, it says {since}"]
    return []


def _is_external(reading: _Reading, writing: _Writing) -> bool:
    """Is what was read from outside, for the writing too?"""
    return reading.root_ms is not None and writing.call.at_ms - reading.root_ms < HOUR_MS


def _step(case: Case, writing: _Writing, reading: _Reading, known: set[str]) -> int:
    """A hop deeper, where it surely reaches somebody new to its writer and to its source."""
    source = reading.message.source
    strangers = writing.reached - known - {writing.sender}
    reached = {
        to["identity"]
        for message in case.final.messages
        if message.source == source
        for to in message.content["to"]
    }
    return int(source != writing.sender and not strangers <= reached)


def _climbed(
    case: Case, book: Ledger, reading: _Reading, writing: _Writing, step: int
) -> list[str]:
    content, source = reading.message.content, reading.message.source
    is_own = source == reading.reader
    goes_back = source != writing.sender and writing.reached <= {source}
    if reading.message.owner_key is not None or goes_back or (is_own and content["hop"] == 0):
        return []
    passed, said = content["hop"] + step, writing.message.content["hop"]
    if said < passed:
        return [f"it passes on what was passed on {content['hop']} times, and says {said}"]
    if is_own:
        return []  # in a note to oneself stands what others wrote: their limits count
    asked = Question(
        source,
        reading.reader,
        case.final.host_key_id,
        reading.at_ms,
        book.damage[reading.attempt],
    )
    limit = oracle.HOPS[oracle.granted(book.at(reading.seq), asked).level]
    if limit is None or passed <= limit:
        return []
    if writing.message.content["reply_to"] is not None:
        return [f"it was passed on {passed} times, {limit} are allowed"]
    if any(copy.wakes for copy in deliveries_of(case.final)[writing.message.no]):
        return [f"it was passed on {passed} times, {limit} are allowed, and wakes somebody"]
    return []  # a letter of its own is delivered: its depth says what it is worth


# --- what was met -------------------------------------------------------------------------------


def met(case: Case) -> Iterator[str]:
    """For the totals: what readers were told, and what was read from outside or passed on."""
    for call, answer in case.accepted:
        for entry in answer.result.get("messages", ()) if call.method == "mail.read" else ():
            line = entry["policy_line"]
            yield f"told {next((name for part, name in _TOLD if part in line), 'nothing but ask')}"
    readings = _readings(case)
    for many in readings.values():
        yield from ("read from outside" for one in many if one.root_ms is not None)
    for writing in _writings(case):
        by_kin = [*_read_by_kin(case, writing, readings)]
        yield from ("written under what kin read",) * bool(by_kin)
        if any(_is_external(one, writing) for one in by_kin):
            yield "written under what kin read from outside"
    for message in case.final.messages:
        if message.content["external_since"] is not None:
            yield "written under what came from outside"
        if message.content["hop"] > 0:
            yield "passed on"


_TOLD: Final = (
    ("came from outside", "less: it came from outside"),
    ("content from outside", "less: it came from outside"),
    ("times,", "ask: passed on too often"),
    ("has expired", "ask: expired"),
    ("revoked by", "ask: revoked"),
    ("of the owner's chain", "ask: a damaged record"),
    ("clock is behind", "ask: the clock is behind"),
    ("not come", "ask: the policy is of the future"),
    ("policy: collaborate", "a grant"),
    ("policy: autonomous", "a grant"),
    ("policy: yolo", "a grant"),
)
"""What stands in a policy line, and how that is counted; the first one counts."""
