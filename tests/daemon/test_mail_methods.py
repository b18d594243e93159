"""The mail methods over the raw socket: every field at its limit, and what each call does."""

import pytest

from mbx.core.limits import BODY_MAX_BYTES
from tests.support.daemon import Daemon, Line, NewHolder, RefusedError, fresh_name


@pytest.fixture
def pair(new_holder: NewHolder) -> tuple[Line, str, Line, str]:
    """A sender and its name, a recipient and its name."""
    name, sender = new_holder()
    other, recipient = new_holder()
    return sender, name, recipient, other


def outcome(line: Line, method: str, **params: object) -> str:
    """`ok`, or the code of the refusal."""
    try:
        line.call(method, **params)
    except RefusedError as refused:
        return refused.code
    return "ok"


def whole_body(line: Line, message_id: str) -> str:
    """The body of a message, read to its end."""
    pieces: list[str] = []
    offset: int | None = 0
    total = 0
    while offset is not None:
        (message,) = line.call("mail.read", ids=[message_id], offset=offset)["messages"]
        assert message["body_offset"] == offset
        assert message["truncated"] == (message["next_offset"] is not None)
        pieces.append(message["body"])
        offset, total = message["next_offset"], message["body_total"]
    assert len("".join(pieces).encode()) == total
    return "".join(pieces)


# -- limits ---------------------------------------------------------------------------------------

SEND_LIMITS = [
    ("subject", "", "text-invalid"),
    ("subject", "s", "ok"),
    ("subject", "s" * 199, "ok"),
    ("subject", "😀" * 200, "ok"),
    ("subject", "s" * 201, "text-invalid"),
    ("subject", "a\nb", "text-invalid"),
    ("subject", "a\u2028b", "text-invalid"),
    ("subject", "a\0b", "text-invalid"),
    ("subject", None, "usage"),
    ("subject", 5, "usage"),
    ("subject", ["s"], "usage"),
    ("topic", "", "text-invalid"),
    ("topic", "t" * 199, "ok"),
    ("topic", "t" * 200, "ok"),
    ("topic", "t" * 201, "text-invalid"),
    ("topic", "a\rb", "text-invalid"),
    ("topic", 5, "usage"),
    ("refs", ["r" * 2_047], "ok"),
    ("refs", ["r" * 2_048] * 20, "ok"),
    ("refs", ["r" * 2_049], "text-invalid"),
    ("refs", ["r"] * 19, "ok"),
    ("refs", ["r"] * 21, "too-many"),
    ("refs", ["a\0b"], "text-invalid"),
    ("refs", [""], "text-invalid"),
    ("refs", [5], "usage"),
    ("refs", {"a": 1}, "usage"),
    ("key", "", "text-invalid"),
    ("key", "k" * 127, "ok"),
    ("key", "l" * 128, "ok"),
    ("key", "k" * 129, "text-invalid"),
    ("key", "ké", "text-invalid"),
    ("key", "k\n", "text-invalid"),
    ("key", 5, "usage"),
    ("kind", "request", "ok"),
    ("kind", "Request", "usage"),
    ("kind", "", "usage"),
    ("kind", ["request"], "usage"),
    ("needs_reply", True, "ok"),
    ("needs_reply", 1, "usage"),
    ("needs_reply", "yes", "usage"),
    ("origin", "external", "ok"),
    ("origin", "internal", "usage"),
    ("reply_to", "abcde", "not-found"),
    ("reply_to", "abcdef", "not-found"),
    ("reply_to", "z" * 27, "not-found"),
    ("reply_to", "../../..", "not-found"),
    ("body", "", "ok"),
    ("body", "a\0b", "text-invalid"),
    ("body", None, "usage"),
    ("body", {}, "usage"),
    ("surprise", 1, "usage"),
    ("to", [], "usage"),
    ("to", None, "usage"),
    ("to", 5, "usage"),
    ("to", [None], "usage"),
    ("to", {"a": "b"}, "usage"),
    ("to", ["nobody"], "unknown-recipient"),
    ("to", ["nobody"] * 19, "unknown-recipient"),
    ("to", ["nobody"] * 20, "unknown-recipient"),
    ("to", ["nobody"] * 21, "too-many"),
    ("to", ["owner"], "ok"),
    ("to", ["lead"], "unknown-recipient"),
    ("to", ["role:nobody"], "unknown-recipient"),
    ("to", ["nobody@elsewhere"], "unknown-recipient"),
    ("to", ["No-Body"], "name-invalid"),
    ("to", ["a@b@c"], "name-invalid"),
]


def of_case(value: object) -> str:
    text = repr(value)
    return text if len(text) < 30 else f"{text[:8]}~{len(text)}"


@pytest.mark.parametrize(("field", "value", "expected"), SEND_LIMITS, ids=of_case)
def test_a_send_takes_each_field_up_to_its_limit(
    field: str, value: object, expected: str, daemon: Daemon, holder: tuple[str, Line]
) -> None:
    name, line = holder
    before = daemon.state_hash()
    params = {"to": [name], "subject": "s", "body": "b", field: value}
    assert outcome(line, "mail.send", **params) == expected
    assert (daemon.state_hash() == before) == (expected != "ok")


def test_a_refused_text_names_field_limit_size_and_character(holder: tuple[str, Line]) -> None:
    name, line = holder
    long = line.refusal("mail.send", to=name, subject="s" * 201, body="")
    assert (long["field"], long["limit_chars"], long["size_chars"]) == ("subject", 200, 201)
    odd = line.refusal("mail.send", to=name, subject="s", body="ab\0c")
    assert (odd["field"], odd["character"], odd["position"]) == ("body", "U+0000", 3)
    many = line.refusal("mail.send", to=[name] * 21, subject="s", body="")
    assert (many["code"], many["limit"]) == ("too-many", 20)


BODIES = {
    "letters": "a",
    "control characters, sixfold as escapes": "\x01",
    "quotes": '"',
    "backslashes": "\\",
    "line feeds": "\n",
    "two bytes": "é",
    "three bytes": "€",
    "four bytes": "😀",
    "DEL": "\x7f",
    "odd mixture": 'a\x01é€😀"\\\n',
}


@pytest.mark.parametrize("unit", BODIES.values(), ids=BODIES.keys())
def test_the_largest_body_comes_back_byte_for_byte_and_one_byte_more_is_refused(
    unit: str, pair: tuple[Line, str, Line, str]
) -> None:
    sender, _, recipient, other = pair
    largest = unit * (BODY_MAX_BYTES // len(unit.encode()))
    largest += "." * (BODY_MAX_BYTES - len(largest.encode()))
    for body in (largest[:-1], largest):
        sent = sender.call("mail.send", to=[other], subject="s", body=body)
        assert whole_body(recipient, sent["id"]) == body
    refused = sender.refusal("mail.send", to=[other], subject="s", body=largest + ".")
    assert refused["code"] == "body-too-large"
    assert (refused["limit_bytes"], refused["size_bytes"]) == (BODY_MAX_BYTES, BODY_MAX_BYTES + 1)
    assert recipient.call("mail.inbox")["unread"] == 0


def test_pages_of_a_body_are_cut_at_characters_and_meet(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, _, recipient, other = pair
    body = "aé€😀" * 7
    sent = sender.call("mail.send", to=[other], subject="s", body=body)["id"]
    for size in (4, 5, 6, 7, 69, 70, 71):
        offset: int | None = 0
        text = ""
        while offset is not None:
            page = recipient.call("mail.read", ids=sent, offset=offset, max_bytes=size)
            (message,) = page["messages"]
            assert 0 < len(message["body"].encode()) <= size
            text, offset = text + message["body"], message["next_offset"]
        assert text == body


READ_LIMITS = [
    ({"max_bytes": 3}, "usage"),
    ({"max_bytes": 4}, "ok"),
    ({"max_bytes": BODY_MAX_BYTES}, "ok"),
    ({"max_bytes": BODY_MAX_BYTES + 1}, "usage"),
    ({"max_bytes": 4.0}, "usage"),
    ({"max_bytes": True}, "usage"),
    ({"offset": -1}, "usage"),
    ({"offset": 1}, "ok"),
    ({"offset": 2}, "usage"),  # inside a character
    ({"offset": 3}, "ok"),
    ({"offset": 4}, "usage"),
    ({"offset": BODY_MAX_BYTES + 1}, "usage"),
    ({"offset": "0"}, "usage"),
    ({"offset": None}, "ok"),
    ({"ids": []}, "usage"),
    ({"ids": None}, "usage"),
    ({"ids": 5}, "usage"),
    ({"ids": "abcde"}, "not-found"),
    ({"ids": "z" * 26}, "not-found"),
    ({"ids": "z" * 27}, "not-found"),
    ({"ids": "ABCDEF"}, "not-found"),
    ({"ids": "%00000"}, "not-found"),
    ({"ids": ["abcdef"] * 200}, "not-found"),
    ({"ids": ["abcdef"] * 201}, "too-many"),
    ({"ids": ["abcdef", "abcdeg"], "offset": 1}, "usage"),
    ({"id": "abcdef"}, "usage"),
]


@pytest.mark.parametrize(("given", "expected"), READ_LIMITS, ids=of_case)
def test_a_read_takes_each_parameter_up_to_its_limit(
    given: dict[str, object], expected: str, holder: tuple[str, Line]
) -> None:
    name, line = holder
    sent = line.call("mail.send", to=[name], subject="s", body="aé")["id"]
    assert outcome(line, "mail.read", **({"ids": [sent]} | given)) == expected


def test_ids_may_be_cut_to_six_characters(holder: tuple[str, Line]) -> None:
    name, line = holder
    sent = line.call("mail.send", to=[name], subject="s", body="b")["id"]
    for chars in (6, 7, 25, 26):
        assert line.call("mail.read", ids=sent[:chars])["messages"][0]["id"] == sent
        assert line.call("mail.sent", id=sent[:chars])["messages"][0]["id"] == sent
    assert line.refusal("mail.read", ids=sent[:5])["code"] == "not-found"
    assert line.call("mail.ack", ids=sent[:6])["acked"] == [sent]


ACK_LIMITS = [
    ({"note": "n" * 499}, "ok"),
    ({"note": "n" * 500}, "ok"),
    ({"note": "n" * 501}, "text-invalid"),
    ({"note": "two\nlines"}, "ok"),
    ({"note": "a\0b"}, "text-invalid"),
    ({"note": 5}, "usage"),
    ({"did": "d" * 199}, "ok"),
    ({"did": "d" * 200}, "ok"),
    ({"did": "d" * 201}, "ok"),
    ({"did": "d" * 100_000}, "ok"),
    ({"did": "two\nlines"}, "text-invalid"),
    ({"did": "a\0b"}, "text-invalid"),
    ({"did": []}, "usage"),
    ({"outcome": "declined"}, "ok"),
    ({"outcome": "done"}, "usage"),
    ({"ids": ["abcdef"] * 201}, "too-many"),
    ({"ids": []}, "usage"),
    ({"ids": "abcdef"}, "not-found"),
]


@pytest.mark.parametrize(("given", "expected"), ACK_LIMITS, ids=of_case)
def test_an_ack_takes_each_parameter_up_to_its_limit(
    given: dict[str, object], expected: str, holder: tuple[str, Line]
) -> None:
    name, line = holder
    sent = line.call("mail.send", to=[name], subject="s", body="b")["id"]
    assert outcome(line, "mail.ack", **({"ids": [sent]} | given)) == expected
    acked = line.call("mail.sent", id=sent)["messages"][0]["recipients"][0]["stage"] == "acked"
    assert acked == (expected == "ok")


@pytest.mark.parametrize(("size", "kept"), [(199, 199), (200, 200), (201, 200), (9_999, 200)])
def test_a_long_did_is_cut_and_marked_and_the_sender_sees_it(
    size: int, kept: int, holder: tuple[str, Line]
) -> None:
    name, line = holder
    sent = line.call("mail.send", to=[name], subject="s", body="b")["id"]
    answer = line.call("mail.ack", ids=[sent], did="d" * size)
    assert bool(answer["warnings"]) == (size > 200)
    told = line.call("mail.sent", id=sent)["messages"][0]["recipients"][0]
    assert told["outcome"] == "acted"
    assert len(told["did"]) == kept
    assert told["did"].endswith("…") == (size > 200)


LIST_LIMITS = [
    ({"limit": 0}, "usage"),
    ({"limit": 1}, "ok"),
    ({"limit": 199}, "ok"),
    ({"limit": 200}, "ok"),
    ({"limit": 201}, "usage"),
    ({"limit": -1}, "usage"),
    ({"limit": 1.0}, "usage"),
    ({"limit": "20"}, "usage"),
    ({"limit": 2**53}, "usage"),
    ({"cursor": ""}, "usage"),
    ({"cursor": "x" * 65}, "usage"),
    ({"cursor": "inbox.00000000.1"}, "conflict"),
    ({"cursor": "inbox.00000000.-1"}, "usage"),
    ({"cursor": "inbox.00000000.\u0661"}, "usage"),
    ({"cursor": 5}, "usage"),
    ({"cursor": None, "limit": None}, "ok"),
]


@pytest.mark.parametrize("method", ["mail.inbox", "mail.sent"])
@pytest.mark.parametrize(("given", "expected"), LIST_LIMITS, ids=of_case)
def test_a_list_takes_each_parameter_up_to_its_limit(
    method: str, given: dict[str, object], expected: str, holder: tuple[str, Line]
) -> None:
    _, line = holder
    assert outcome(line, method, **given) == expected


# -- what the calls do ----------------------------------------------------------------------------


def test_a_message_is_delivered_read_and_acked_and_its_sender_sees_each_stage(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, name, recipient, other = pair

    def stage() -> str:
        told = sender.call("mail.sent", id=sent["id"])["messages"][0]["recipients"][0]
        return str(told["stage"])

    sent = sender.call("mail.send", to=[other], subject="Port", body="8081", kind="request")
    assert sent["recipients"][0]["state"] == "live-next-prompt"
    assert (sent["thread"], sent["duplicate"], stage()) == (sent["id"], False, "delivered")
    (listed,) = recipient.call("mail.inbox")["messages"]
    assert listed["from"].split("@")[0] == name
    assert (listed["subject"], listed["kind"], listed["bytes"]) == ("Port", "request", 4)
    assert (listed["stage"], stage()) == ("delivered", "delivered"), "listing changes nothing"
    (read,) = recipient.call("mail.read", ids=[sent["id"]])["messages"]
    assert (read["body"], read["trust"], read["policy"]) == ("8081", "local", "ask")
    assert len(read["boundary"]) == 32
    assert stage() == "read"
    answer = recipient.call("mail.ack", ids=[sent["id"]], outcome="declined", note="no")
    assert (answer["acked"], answer["unread"], stage()) == ([sent["id"]], 0, "acked")
    assert recipient.call("mail.inbox")["messages"] == []
    assert len(recipient.call("mail.inbox", all=True)["messages"]) == 1
    recipient.call("mail.read", ids=[sent["id"]])
    assert stage() == "acked", "no stage ever goes back"


def test_a_sender_reads_its_own_text_in_pieces_and_changes_nothing(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, _, recipient, other = pair
    body = "\x01\u00fc\U0001f600" * (BODY_MAX_BYTES // 7)
    sent_id = sender.call("mail.send", to=[other], subject="s", body=body)["id"]
    pieces: list[str] = []
    offset: int | None = 0
    while offset is not None:
        (message,) = sender.call("mail.sent", id=sent_id[:8], offset=offset)["messages"]
        assert message["recipients"][0]["stage"] == "delivered"
        assert (message["body_offset"], message["body_total"]) == (offset, len(body.encode()))
        pieces.append(message["body"])
        offset = message["next_offset"]
    assert "".join(pieces) == body
    assert sender.call("mail.sent", id=sent_id, max_bytes=4)["messages"][0]["body"] == body[:2]
    assert "body" not in sender.call("mail.sent")["messages"][0]
    assert outcome(sender, "mail.sent", offset=1) == "usage"
    assert outcome(sender, "mail.sent", id=sent_id, offset=2) == "usage"
    assert outcome(sender, "mail.sent", id=sent_id, max_bytes=3) == "usage"
    assert outcome(recipient, "mail.sent", id=sent_id) == "not-found"


def test_a_reply_keeps_subject_and_thread_and_may_close_the_request(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, _, recipient, other = pair
    asked = sender.call("mail.send", to=[other], subject="Which port?", body="", kind="request")
    answer = recipient.call(
        "mail.reply", id=asked["id"][:8], body="8081", final="acted", did="looked it up"
    )
    assert answer["thread"] == asked["id"]
    (got,) = sender.call("mail.inbox")["messages"]
    assert (got["kind"], got["subject"], got["thread"]) == ("reply", "Which port?", asked["id"])
    told = sender.call("mail.sent", id=asked["id"])["messages"][0]["recipients"][0]
    assert (told["stage"], told["outcome"], told["did"]) == ("acked", "acted", "looked it up")
    assert recipient.call("mail.inbox")["messages"] == []
    assert recipient.refusal("mail.reply", id=asked["id"], body="", did="x")["code"] == "usage"
    again = recipient.call("mail.ack", ids=[asked["id"]], outcome="declined")
    assert again["warnings"] == [f"{asked['id']} was acked before: what was said then stays"]
    told = sender.call("mail.sent", id=asked["id"])["messages"][0]["recipients"][0]
    assert told["outcome"] == "acted"


def test_a_reply_to_a_message_of_ones_own_adds_to_it_for_everybody_who_got_it(
    pair: tuple[Line, str, Line, str], new_holder: NewHolder
) -> None:
    sender, _, recipient, other = pair
    third, reader = new_holder()
    first = sender.call("mail.send", to=[other, third], subject="Port", body="8080", topic="t")
    added = sender.call("mail.reply", id=first["id"], body="8081, that is")
    assert {one["address"].split("@")[0] for one in added["recipients"]} == {other, third}
    assert added["thread"] == first["id"]
    for line in (recipient, reader):
        got = line.call("mail.read", ids=[added["id"]])["messages"][0]
        assert (got["kind"], got["subject"]) == ("reply", "Port")
        assert (got["thread"], got["reply_to"]) == (first["id"], first["id"])
    answer = recipient.call("mail.reply", id=added["id"], body="fine")
    more = sender.call(
        "mail.send", to=third, subject="s", body="b", reply_to=added["id"].upper()[:9]
    )
    assert (answer["thread"], more["thread"]) == (first["id"], first["id"])


def test_who_closes_a_message_of_its_own_is_told_that_there_is_nothing_to_ack(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, name, _, other = pair
    sent = sender.call("mail.send", to=other, subject="s", body="b")["id"]
    refused = sender.refusal("mail.reply", id=sent, body="", final="acted")
    assert refused["code"] == "usage"
    assert "of your own" in refused["message"]
    noted = sender.call("mail.send", to=name, subject="s", body="to myself")["id"]
    answer = sender.call("mail.reply", id=noted, body="done", final="acted")
    assert [one["address"].split("@")[0] for one in answer["recipients"]] == [name]


def test_mail_of_others_cannot_be_told_from_mail_that_does_not_exist(
    pair: tuple[Line, str, Line, str], new_holder: NewHolder
) -> None:
    sender, _, recipient, other = pair
    sent = sender.call("mail.send", to=[other], subject="s", body="b")["id"]
    _, stranger = new_holder()
    of_a_mailbox: list[tuple[str, dict[str, object]]] = [
        ("mail.read", {"ids": [sent]}),
        ("mail.ack", {"ids": [sent]}),
    ]
    of_a_thread: list[tuple[str, dict[str, object]]] = [
        ("mail.reply", {"id": sent, "body": ""}),
        ("mail.send", {"to": other, "subject": "s", "body": "", "reply_to": sent}),
    ]
    for line, calls in ((stranger, [*of_a_mailbox, *of_a_thread]), (sender, of_a_mailbox)):
        for method, params in calls:
            refused = line.refusal(method, **params)
            assert (refused["code"], refused["message"]) == (
                "not-found",
                f"no message with id {sent}",
            )
    for line in (stranger, recipient):
        assert line.refusal("mail.sent", id=sent)["code"] == "not-found"


def test_the_same_key_gives_the_first_answer_and_another_request_is_refused(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, _, recipient, other = pair
    first = sender.call("mail.send", to=[other], subject="s", body="b", key="one")
    again = sender.call("mail.send", to=[other], subject="s", body="b", key="one")
    assert again == first | {"duplicate": True}
    for changed in ({"body": "c"}, {"subject": "t"}, {"kind": "task"}, {"needs_reply": True}):
        params = {"to": [other], "subject": "s", "body": "b", "key": "one"} | changed
        assert sender.refusal("mail.send", **params)["code"] == "idempotency-conflict"
    deliberate = sender.call("mail.send", to=[other], subject="s", body="b", key="two")
    assert deliberate["id"] != first["id"], "two deliberate messages are never merged"
    theirs = recipient.call("mail.send", to=[other], subject="s", body="b", key="one")
    assert theirs["duplicate"] is False, "keys are each identity's own"
    assert len(recipient.call("mail.inbox")["messages"]) == 3


def test_a_name_in_doubt_is_refused_with_suggestions_before_anything_is_stored(
    daemon: Daemon, pair: tuple[Line, str, Line, str]
) -> None:
    sender, _, _, other = pair
    wrong = other + "x"
    before = daemon.state_hash()
    refused = sender.refusal("mail.send", to=[other, wrong], subject="s", body="b")
    assert refused["code"] == "unknown-recipient"
    assert refused["unknown"] == [wrong]
    assert other in refused["suggestions"][wrong]
    assert daemon.state_hash() == before


def test_several_names_get_one_message_each_and_a_name_said_twice_gets_one(
    pair: tuple[Line, str, Line, str], new_holder: NewHolder
) -> None:
    sender, own, recipient, other = pair
    third, last = new_holder()
    host = str(sender.call("session.whoami")["host"])
    to = [other, third, f"{other}@{host}", own, other]
    sent = sender.call("mail.send", to=to, subject="s", body="b")
    assert [one["address"] for one in sent["recipients"]] == [
        f"{other}@{host}",
        f"{third}@{host}",
        f"{own}@{host}",
    ]
    for line in (recipient, last, sender):
        (message,) = line.call("mail.inbox")["messages"]
        assert message["id"] == sent["id"]


def test_pages_of_the_inbox_miss_nothing_and_repeat_nothing(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, name, recipient, other = pair
    ids = [
        sender.call("mail.send", to=[other], subject=f"{n}", body="", kind=kind)["id"]
        for n, kind in enumerate(["message", "request"] * 5)
    ]
    for kind, expected in ((None, ids), ("request", ids[1::2])):
        seen: list[str] = []
        cursor = None
        while True:
            page = recipient.call("mail.inbox", limit=2, cursor=cursor, kind=kind)
            seen += [message["id"] for message in page["messages"]]
            cursor = page["next_cursor"]
            assert page["has_more"] == (cursor is not None)
            if cursor is None:
                break
            late = sender.call("mail.send", to=[other], subject="late", body="", kind="status")
            recipient.call("mail.ack", ids=[late["id"]])
        assert seen == expected
    page = recipient.call("mail.inbox", limit=2)
    assert recipient.refusal("mail.inbox", cursor=page["next_cursor"], kind="task")["code"] == (
        "conflict"
    )
    assert sender.refusal("mail.inbox", cursor=page["next_cursor"])["code"] == "conflict"
    assert len(recipient.call("mail.inbox", **{"from": name})["messages"]) == 10
    assert recipient.call("mail.inbox", **{"from": other})["messages"] == []
    assert recipient.refusal("mail.inbox", **{"from": fresh_name()})["code"] == "unknown-identity"


def test_of_several_ids_the_good_ones_are_done_and_the_others_named(
    pair: tuple[Line, str, Line, str],
) -> None:
    sender, _, recipient, other = pair
    one, two = (sender.call("mail.send", to=[other], subject="s", body="b")["id"] for _ in range(2))
    read = recipient.call("mail.read", ids=[one, "zzzzzz", one[:8], "x", two])
    assert [message["id"] for message in read["messages"]] == [one, two]
    assert read["failed"] == [
        {"id": "zzzzzz", "code": "not-found"},
        {"id": "x", "code": "not-found"},
    ]
    acked = recipient.call("mail.ack", ids=["zzzzzz", two, two])
    assert (acked["acked"], acked["unread"]) == ([two], 0)
    assert acked["failed"] == [{"id": "zzzzzz", "code": "not-found"}]
