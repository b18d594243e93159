"""The payload that is signed for a message."""

from mbx.core.canonical import encode, parse
from mbx.core.message import Draft, Envelope, Party, payload

ME = Party("a" * 26, "alice", "desk")
YOU = Party("b" * 26, "bob", "desk")


def envelope(**changed: object) -> Envelope:
    plain = Envelope(
        sender=ME,
        lease_epoch=3,
        lease_id="c" * 26,
        to=[YOU],
        thread=None,
        reply_to=None,
        hop=0,
        sent_at_ms=1_700_000_000_000,
        project=None,
        audience=("d" * 26,),
        nonce="0" * 32,
    )
    return plain._replace(**changed)  # type: ignore[arg-type]


def test_every_field_is_always_there_and_canonical() -> None:
    draft = Draft(subject="s", body="b", kind="message", needs_reply=False)
    made = payload(draft, envelope())
    assert set(made) == {
        *("v", "type", "iat", "nonce", "aud", "from", "lease", "to", "thread", "reply_to", "kind"),
        *(
            "subject",
            "body",
            "needs_reply",
            "refs",
            "attachments",
            "topic",
            "expected_output",
            "quiet",
        ),
        *("origin", "hop", "external_since", "project", "sent_at"),
    }
    text = encode(made)
    assert encode(parse(text.encode(), 10_000)) == text


def test_sender_recipients_and_lease_are_named_by_immutable_ids() -> None:
    made = payload(Draft("s", "b", "request", True), envelope())
    assert made["from"] == {"identity": "a" * 26, "name": "alice", "host": "desk"}
    assert made["to"] == [{"identity": "b" * 26, "name": "bob", "host": "desk"}]
    assert made["lease"] == {"epoch": 3, "id": "c" * 26}


def test_an_address_is_name_at_host() -> None:
    assert ME.address == "alice@desk"
