"""The invariants, as pure functions of a history and of the store that it left.

Each function returns sentences about what is wrong; `violations` asks them all. What they mean is
said in docs/proof.md; `test_checker.py` shows each of them bad histories before any is run.
"""

import base64
import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from mbx.core import record
from mbx.core.record import Record, RecordError
from tests.sim import authority
from tests.sim.case import SENDS, Case, deliveries_of, holder_at, op_of
from tests.sim.history import Call, Commit, Died, Event, Reopened, Return, Silent
from tests.sim.image import Delivery, Image, Message
from tests.sim.tenure import FREE, Lapse

READ, ACKED = 4, 5
MAILBOX: Final = SENDS | {"mail.inbox", "mail.read", "mail.ack", "mail.sent"}
"""The methods that need a lease."""
OWNERS: Final = frozenset({"owner.enroll", "owner.apply"})
"""The methods that take what the owner signed."""


# --- I1 to I5: mail -------------------------------------------------------------------------------


def missing(accepted: Iterable[tuple[Call, Return]], image: Image) -> list[str]:
    """What was answered ok and is not in the store."""
    by_id = {message.id: message for message in image.messages}
    copies, identity_of = deliveries_of(image), dict(image.identities)
    names: dict[str, set[str]] = defaultdict(set)  # all that an identity was ever called
    for row in image.audit:
        names[row.identity or ""].add(row.content.get("name", ""))
    granted = {
        (name, row.content["epoch"])
        for row in image.audit
        if row.act in {"claim", "takeover"}
        for name in names[row.identity or ""]
    }
    applied = {one.record_id for one in image.owner_records}
    released = {(r.content["name"], r.content["epoch"]) for r in image.audit if r.act == "release"}
    found = []
    for call, answer in accepted:
        result, who = answer.result, f"attempt {call.attempt} ({call.method})"
        if call.method in OWNERS and result.get("id") not in applied:
            found.append(f"{who}: the record is not there")
        if call.method in SENDS:
            message = by_id.get(result.get("id", ""))
            reached = (
                [identity_of.get(copy.recipient_no, "") for copy in copies[message.no]]
                if message
                else []
            )
            promised = [recipient["identity"] for recipient in result.get("recipients", ())]
            if sorted(reached) != sorted(promised):
                found.append(f"{who}: accepted for {promised}, delivered to {reached}")
        elif call.method in {"mail.ack", "mail.read"}:
            stage = ACKED if call.method == "mail.ack" else READ
            for message_id in _cleared(result):
                if not _has_stage(by_id.get(message_id), copies, stage):
                    found.append(f"{who}: {message_id} did not stay at stage {stage}")
        elif call.method in {"identity.register", "identity.claim"}:
            if (result.get("agent"), result.get("epoch")) not in granted:
                found.append(f"{who}: the grant that it was told of is not there: {result}")
        elif call.method == "identity.release" and (
            (result.get("released"), result.get("epoch")) not in released
        ):
            found.append(f"{who}: the release that it was told of is not there: {result}")
    return found


def _cleared(result: Any) -> list[str]:
    """The messages that the answer to an ack or a read names."""
    if "acked" in result:
        return list(result["acked"])
    shown = result.get("messages", ())
    return [one["id"] for one in shown if one.get("body") or not one.get("bytes")]


def _has_stage(message: Message | None, copies: dict[int, list[Delivery]], stage: int) -> bool:
    return message is not None and any(copy.stage >= stage for copy in copies[message.no])


def nothing_lost(case: Case) -> list[str]:
    """I1: what was answered ok is in the store, for each recipient once."""
    return missing(case.accepted, case.final)


def nothing_doubled(case: Case) -> list[str]:
    """I2: one row for each recipient and message; each operation has its effect once."""
    found = []
    places = [(copy.recipient_no, copy.message_no) for copy in case.final.deliveries]
    found += [f"delivery {place} is there twice" for place in _repeated(places)]
    ids = [message.id for message in case.final.messages]
    found += [f"message {one} is there twice" for one in _repeated(ids)]
    for op, messages in case.sent_by_op.items():
        if op >= 0 and _may_only_once(case.attempts[op]):
            # A key is good within one identity: who repeats as another one sends as another one.
            twice = _repeated(message.sender_no for message in messages)
            found += [f"operation {op} sent two messages as identity {no}" for no in twice]
    facts = [
        (fact["message"], fact["recipient"], fact["stage"])
        for receipt in case.final.receipts
        for fact in receipt.content["facts"]
    ]
    found += [f"two receipts for {fact}" for fact in _repeated(facts)]
    return found + _keys_for_two(case) + _too_many_grants(case)


def _may_only_once(attempts: Sequence[Call]) -> bool:
    return len(attempts) == 1 or all(call.key is not None for call in attempts)


def _repeated(items: Iterable[Any]) -> list[Any]:
    counts: dict[Any, int] = defaultdict(int)
    for item in items:
        counts[item] += 1
    return [item for item, count in counts.items() if count > 1]


def _keys_for_two(case: Case) -> list[str]:
    """A key of one identity that was good for two requests, or whose answers differ."""
    first: dict[tuple[str, str], tuple[Call, Any]] = {}
    found = []
    for call, answer in case.accepted:
        tenure = holder_at(case, call, answer)
        if call.key is None or call.method not in SENDS or tenure is None:
            continue
        earlier = first.setdefault((tenure.identity, call.key), (call, answer.result.get("id")))
        if (earlier[0].params, earlier[1]) != (call.params, answer.result.get("id")):
            found.append(f"key {call.key} served attempts {earlier[0].attempt}, {call.attempt}")
    return found


def _too_many_grants(case: Case) -> list[str]:
    """No session was granted more than it asked for."""
    asked: dict[str, set[int]] = defaultdict(set)
    for call in case.calls.values():
        if call.method in {"identity.claim", "identity.register"}:
            asked[call.session].add(call.op)
    granted: dict[str, int] = defaultdict(int)
    for tenure in case.timeline.tenures:
        granted[tenure.session] += not tenure.is_taken
    return [
        f"{session} asked {len(asked[session])} times and was granted {count} leases"
        for session, count in granted.items()
        if count > len(asked[session])
    ]


def nothing_invented(case: Case) -> list[str]:
    """I3: every record is signed by this host and says what somebody in the history said."""
    found = []
    for message in case.final.messages:
        found += _invented_message(case, message)
    for receipt in case.final.receipts:
        found += _unsigned(case, "receipt", receipt.payload, receipt.signature)
        found += _untrue_facts(case, receipt.content["facts"])
    for lease in case.final.leases:
        if lease.payload is not None:
            found += _unsigned(case, "lease", lease.payload, lease.signature or b"")
    return found


def _unsigned(
    case: Case, kind: str, payload: str, signature: bytes, owner_key: str | None = None
) -> list[str]:
    host = case.final
    signer, public = host.host_key_id, host.host_public
    if owner_key is not None:
        kind, signer = "owner-mail", owner_key
        public = case.ledger.states[-1].keys.get(owner_key, b"")
    one = Record(kind, payload, {signer: base64.b64encode(signature).decode()})
    signers = {signer: public}
    try:
        record.verify(one, kind=kind, signers=signers, audience=host.host_key_id)
    except RecordError as error:
        return [f"{kind} record {one.id}: {error}"]
    return []


def _invented_message(case: Case, message: Message) -> list[str]:
    who, content = f"message {message.no}", message.content
    found = _unsigned(case, "message", message.payload, message.signature, message.owner_key)
    kind = "owner-mail" if message.owner_key else "message"
    if record.Record(kind, message.payload, {}).digest != message.digest:
        found.append(f"{who}: its id is not the hash of its text")
    if content["from"]["identity"] != case.identity_of.get(message.sender_no):
        found.append(f"{who}: stored as another's than the one it names as sender")
    calls = case.attempts.get(op_of(content["body"]), [])
    if not any(
        _says(call, content) if call.method in SENDS else _brings(call, message) for call in calls
    ):
        found.append(f"{who}: nobody sent this")
    addressed = [party["identity"] for party in content["to"]]
    for copy in deliveries_of(case.final)[message.no]:
        if case.identity_of.get(copy.recipient_no, "") not in addressed:
            found.append(f"{who}: delivered to somebody it does not name")
    return found


def _brings(call: Call, message: Message) -> bool:
    """Does the call bring this letter of the owner's?"""
    return call.method == "owner.apply" and (
        call.params["record"]["payload"] == message.payload and message.owner_key is not None
    )


def _says(call: Call, content: Any) -> bool:
    """Does the message say what the call asked for?"""
    if content["body"] != call.params["body"]:
        return False
    if call.method == "mail.reply":
        return bool(content["reply_to"]) and content["reply_to"].startswith(call.params["id"])
    wanted = dict.fromkeys(address.partition("@")[0] for address in call.params["to"])
    reached = [party["name"] for party in content["to"]]
    broad = any(name == "*" or name.startswith("role:") for name in wanted)
    return (
        content["subject"] == call.params["subject"]
        and (broad or reached == list(wanted))
        and content["needs_reply"] == call.params.get("needs_reply", False)
    )


def _untrue_facts(case: Case, facts: Iterable[Any]) -> list[str]:
    copies = deliveries_of(case.final)
    found = []
    for fact in facts:
        message = case.by_id.get(fact["message"])
        stages = [
            copy.stage
            for copy in (copies[message.no] if message else [])
            if case.identity_of.get(copy.recipient_no, "") == fact["recipient"]
        ]
        if not stages or stages[0] < fact["stage"]:
            found.append(f"a receipt claims stage {fact['stage']} of {fact['message']}: {stages}")
    return found


def unknown_is_all_or_nothing(case: Case) -> list[str]:
    """I4: a message is there for all it names, or it is not; a refused one never is."""
    copies, found = deliveries_of(case.final), []
    for message in case.final.messages:
        reached = sorted(case.identity_of.get(copy.recipient_no, "") for copy in copies[message.no])
        named = sorted(party["identity"] for party in message.content["to"])
        if reached != named:
            found.append(f"message {message.no} names {named} and lies with {reached}")
    for op, calls in case.attempts.items():
        outcomes = [case.outcome_of.get(call.attempt) for call in calls]
        if op in case.sent_by_op and all(one and one.outcome == "refused" for one in outcomes):
            found.append(f"operation {op} was refused and left a message")
    return found


def order_is_commit_order(case: Case) -> list[str]:
    """I5: mailboxes are in the order of commits, lists in the order of mailboxes."""
    committed = []
    for op, messages in case.sent_by_op.items():
        seqs = [case.commit_of[a.attempt] for a in case.attempts[op] if a.attempt in case.commit_of]
        if seqs and len(messages) == 1:
            committed.append((messages[0].no, min(seqs), op))
    committed.sort()
    found = [
        f"operation {later[2]} (commit {later[1]}) lies behind {earlier[2]} (commit {earlier[1]})"
        for earlier, later in pairwise(committed)
        if earlier[1] > later[1]
    ]
    return found + _lists_out_of_order(case)


def _lists_out_of_order(case: Case) -> list[str]:
    found = []
    for call, answer in case.accepted:
        if call.method not in {"mail.inbox", "mail.sent"}:
            continue
        ids = [entry["id"] for entry in answer.result.get("messages", ())]
        places = [case.by_id[one].no if one in case.by_id else -1 for one in ids]
        if places != sorted(places, reverse=call.method == "mail.sent"):
            found.append(f"attempt {call.attempt}: {call.method} lists {places}")
    return found


# --- I6 to I8, I10, I11: leases -------------------------------------------------------------------


def one_holder(case: Case) -> list[str]:
    """I6: no two grants of an identity overlap, and the store says what the log says."""
    found = list(case.timeline.overlaps)
    for lease in case.final.leases:
        identity = case.identity_of.get(lease.identity_no, "")
        if lease.state != case.timeline.states.get(identity, FREE):
            found.append(f"lease of {identity}: state {lease.state} is not what the log says")
    return found


def epochs_grow(case: Case) -> list[str]:
    """I7: each grant has a higher epoch than all before it, in log, store and answers."""
    found = list(case.timeline.epochs)
    for lease in case.final.leases:
        newest = case.timeline.current.get(case.identity_of.get(lease.identity_no, ""))
        if lease.epoch != (newest.epoch if newest else 0):
            found.append(
                f"the store has epoch {lease.epoch} for {lease.identity_no}, the log {newest}"
            )
    answered: dict[tuple[str, int], str] = {}
    passed_on = {r.content["old_name"] for r in case.final.audit if r.act == "rename"}
    for call, answer in case.accepted:
        if call.method in {"identity.claim", "identity.register"}:
            if answer.result.get("agent") in passed_on:
                continue  # such a name may have been two identities'
            grant = (answer.result.get("agent", ""), answer.result.get("epoch", 0))
            if answered.setdefault(grant, call.session) != call.session:
                found.append(f"{grant} was answered to {call.session} and {answered[grant]}")
    return found


def no_stale_change(case: Case) -> list[str]:
    """I8: every accepted mailbox call, reads too, was made under the epoch current at its commit.

    A call that was taken up under one grant is never carried out under another.
    """
    found = []
    for call, answer in case.accepted:
        if call.method not in MAILBOX:
            continue
        tenure = holder_at(case, call, answer)
        if tenure is None:
            found.append(f"attempt {call.attempt}: {call.session} held nothing at its commit")
        elif call.under is not None and call.under != (tenure.identity, tenure.epoch):
            under = (tenure.identity, tenure.epoch)
            found.append(f"attempt {call.attempt}: made under {call.under}, done under {under}")
    return found + _stale_messages(case) + _stale_receipts(case)


def _stale_messages(case: Case) -> list[str]:
    found = []
    for op, messages in case.sent_by_op.items():
        seqs = [case.commit_of[a.attempt] for a in case.attempts[op] if a.attempt in case.commit_of]
        for message in messages:
            if message.owner_key is not None:
                continue  # nobody holds the mailbox of the owner
            sender, epoch = message.content["from"]["identity"], message.content["lease"]["epoch"]
            tenure = case.tenure(sender, epoch)
            if tenure is None or not any(tenure.covers_change(seq) for seq in seqs):
                found.append(f"message {message.no}: epoch {epoch} was not current at its commit")
    return found


def _stale_receipts(case: Case) -> list[str]:
    found = []
    for receipt in case.final.receipts:
        content = receipt.content
        for recipient in {fact["recipient"]: None for fact in content["facts"]}:
            tenure = case.tenure(recipient, content["epoch"])
            if tenure is None or not tenure.covers_change(content["seq"]):
                found.append(f"receipt {receipt.no}: epoch {content['epoch']} was not current")
    return found


def no_theft(case: Case) -> list[str]:
    """I10: nobody lost a lease but by its own release, its death or (unseen) its long silence.

    Or by a record that the owner's own key signed: whether it was the right one, I9 says.
    """
    lapses: dict[int, list[Lapse]] = defaultdict(list)
    for lapse in case.timeline.lapses:
        lapses[lapse.seq].append(lapse)
    gone: set[str] = set()
    found = []
    for event in case.events:
        if isinstance(event, Died | Silent):
            gone.add(event.session)
        elif isinstance(event, Commit):
            found += [
                f"commit {lapse.seq}: {lapse.session} lost its lease ({lapse.why}) and lives"
                for lapse in lapses[event.seq]
                if lapse.session not in gone
            ]
            found += authority.thefts(case, event, gone)
    return found


def nothing_stays_taken(case: Case) -> list[str]:
    """I11: when every holder has died and the machine was started again, each name is free."""
    closing = [call for call in case.calls.values() if call.closing]
    return [
        f"{call.params['name']} cannot be claimed after the death of all: {answer.code}"
        for call in closing
        if (answer := case.outcome_of[call.attempt]).outcome == "refused"
    ]


# --- I17, I18: the store --------------------------------------------------------------------------


def store_is_sound(case: Case) -> list[str]:
    """I17: the store is whole at the end and after every crash."""
    images = [event.image for event in case.events if isinstance(event, Reopened)]
    return [what for image in [*images, case.final] for what in unsound(image)]


def unsound(image: Image) -> list[str]:
    """What is wrong within one store."""
    found = list(image.complaints)
    known = {no for no, _ in image.identities}
    numbers = {message.no for message in image.messages}
    copies = deliveries_of(image)
    found += [f"message {no} lies in no mailbox" for no in numbers if not copies[no]]
    found += [f"a delivery of no message {no}" for no in copies if no not in numbers]
    for name, keys in (
        ("mailbox", [no for no, _ in image.unread]),
        ("lease", [lease.identity_no for lease in image.leases]),
    ):
        if sorted(keys) != sorted(known):
            found.append(f"identities {sorted(known)} have a {name} each, but {sorted(keys)}")
    for no, unread in image.unread:
        counted = sum(copy.recipient_no == no and copy.stage < READ for copy in image.deliveries)
        if unread != counted:
            found.append(f"mailbox {no} counts {unread} unread, there are {counted}")
    epoch_of = {lease.identity_no: lease.epoch for lease in image.leases}
    found += [f"a session is bound to {b}" for b in image.bound if b[1] > epoch_of.get(b[0], 0)]
    if image.indexed > max(numbers, default=0):
        found.append(f"the index has message {image.indexed}, which is not there")
    return found + _broken_chain(image)


def _broken_chain(image: Image) -> list[str]:
    """The audit log recomputed, by our own reading of its rule."""
    previous = bytes(32)
    for expected, row in enumerate(image.audit, 1):
        told = {"no": row.no, "at": row.at_ms, "act": row.act, "identity": row.identity}
        told["detail"] = row.detail
        text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(previous + text.encode()).digest()
        if row.no != expected or row.hash != digest:
            return [f"the audit log breaks at row {row.no}"]
        previous = row.hash
    return []


def crash_leaves_a_prefix(case: Case) -> list[str]:
    """I18: a crash leaves all that was answered, nothing uncommitted, and no file too many."""
    found = []
    for at, event in enumerate(case.events):
        if isinstance(event, Reopened):
            before = case.events[:at]
            answered = [
                (case.calls[one.attempt], one)
                for one in before
                if isinstance(one, Return) and one.outcome == "ok"
            ]
            told = [*missing(answered, event.image), *_not_a_prefix(event.image, case.final)]
            told += _wrong_sequence(before, [answer for _, answer in answered], event.image)
            epoch_of = {lease.identity_no: lease.epoch for lease in event.image.leases}
            epochs = {one: epoch_of.get(no, 0) for no, one in event.image.identities}
            told += [f"file {f}: never granted" for f in event.files if f[1] > epochs.get(f[0], 0)]
            found += [f"after {event.point} at event {at}: {what}" for what in told]
    return found


def _wrong_sequence(before: Sequence[Event], answered: Sequence[Return], image: Image) -> list[str]:
    """The store's counter is that of the last commit, and no answer named a later one."""
    last = max((event.seq for event in before if isinstance(event, Commit)), default=0)
    found = [
        f"attempt {answer.attempt} was answered as of commit {answer.commit_seq}"
        for answer in answered
        if answer.commit_seq > image.commit_seq
    ]
    if image.commit_seq != last:
        found.append(f"the store is at commit {image.commit_seq}, the last one was {last}")
    return found


def _not_a_prefix(early: Image, final: Image) -> list[str]:
    """Whatever a store once had, in the same order, it has for ever."""
    pairs: list[tuple[str, Sequence[Any], Sequence[Any]]] = [
        ("messages", [m.digest for m in early.messages], [m.digest for m in final.messages]),
        ("receipts", [r.record_id for r in early.receipts], [r.record_id for r in final.receipts]),
        ("audit rows", [row.hash for row in early.audit], [row.hash for row in final.audit]),
        ("identities", early.identities, final.identities),
        (
            "owner's records",
            [one.record_id for one in early.owner_records],
            [one.record_id for one in final.owner_records],
        ),
    ]
    found = [f"the {what} are no beginning" for what, a, b in pairs if a != b[: len(a)]]
    stages = {(copy.recipient_no, copy.message_no): copy.stage for copy in final.deliveries}
    for copy in early.deliveries:
        if copy.stage > stages.get((copy.recipient_no, copy.message_no), -1):
            found.append(f"delivery {copy} went back")
    if not set(early.answers) <= set(final.answers):
        found.append("answers to idempotency keys are gone")
    return found


INVARIANTS: Final[dict[str, Callable[[Case], list[str]]]] = {
    "I1": nothing_lost,
    "I2": nothing_doubled,
    "I3": nothing_invented,
    "I4": unknown_is_all_or_nothing,
    "I5": order_is_commit_order,
    "I6": one_holder,
    "I7": epochs_grow,
    "I8": no_stale_change,
    "I9": authority.takeovers_are_the_owners,
    "I10": no_theft,
    "I11": nothing_stays_taken,
    "I13": authority.policy_is_the_owners,
    "I14": authority.authority_never_grows,
    "I17": store_is_sound,
    "I18": crash_leaves_a_prefix,
}
"""Name -> check. I22 (the same seed gives the same trace) compares two runs, not one."""


def violations(case: Case) -> dict[str, list[str]]:
    """The invariants that do not hold, and why."""
    found = {name: check(case) for name, check in INVARIANTS.items()}
    return {name: sentences for name, sentences in found.items() if sentences}
