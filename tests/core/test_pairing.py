"""What is said at pairing: its limits, its strict forms, and that none of it holds a secret."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from mbx.core import limits, pairing
from mbx.core.canonical import encode
from mbx.core.pairing_run import Clock, Inviter, Joiner, Send
from tests.support.pairs import (
    BARE,
    CODE,
    DESK,
    LAPTOP,
    OWNER,
    invitation,
    inviter,
    joiner,
    meet,
    spoken_in_a_run,
)

SAID = spoken_in_a_run()

READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "join": lambda content: pairing.read_join(content, (1,)),
    "invite": lambda content: pairing.read_invite(content, (1,), b"certificate"),
    "prove": pairing.read_prove,
    "accept": pairing.read_accept,
    "finish": pairing.read_finish,
    "confirmed": pairing.read_confirmed,
    "no": pairing.read_no,
}
CONTENTS = {name: json.loads(text) for name, text in SAID.items()}
CONTENTS["no"] = pairing.no_message("busy", (1,))

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 2**53, 1.5, "", "x", "x\ny", "\0", "x" * 5_000, "é", "../../etc", "00"),
    *([], ["x"], [1, 1], [2, 1], [0], [True], list(range(1, 18)), [[]], {}, {"x": 1}),
    *("0" * 63, "0" * 64, "F" * 64, "0" * 66, "A" * 26, "AAAA=", "AA==\n", "AB=="),
]


def refuses(name: str, content: dict[str, Any]) -> bool:
    try:
        READERS[name](content)
    except pairing.Refused as refused:
        return refused.code in ("malformed", "version-mismatch")
    return False


@pytest.mark.parametrize("name", READERS)
def test_a_message_has_its_fields_and_no_others(name: str) -> None:
    whole = CONTENTS[name]
    assert not refuses(name, whole)
    assert refuses(name, {**whole, "why": 1})
    for field in whole:
        if field != "type":
            assert refuses(name, {key: one for key, one in whole.items() if key != field})


# What a field may be although it looks odd.
ODD = dict.fromkeys(("nonce", "commitment", "proof"), "0" * 64)
EMPTY = {"clock_ms": 0, "records": [], "addresses": []}


@pytest.mark.parametrize("name", READERS)
def test_no_field_of_a_message_takes_what_it_is_not(name: str) -> None:
    tried = 0
    for field, value in CONTENTS[name].items():
        for other in HOSTILE:
            is_base64 = field == "certificate" and str(other) in ("0" * 64, "F" * 64)
            is_odd = is_base64 or (other != "" and other == ODD.get(field))
            is_empty = type(EMPTY.get(field)) is type(other) and other == EMPTY.get(field)
            is_free = (field, other) == ("records", ["x"]) or field == "type" or value == other
            if is_odd or is_empty or is_free:
                continue
            assert refuses(name, {**CONTENTS[name], field: other}), (field, other)
            tried += 1
    assert tried >= 25 * (len(CONTENTS[name]) - 1)


def test_whoever_has_no_owner_adopts_one_and_nobody_else_does() -> None:
    whole = CONTENTS["prove"]
    assert not refuses("prove", {**whole, "owner": None, "adopt": True})
    assert refuses("prove", {**whole, "owner": None})
    assert refuses("prove", {**whole, "adopt": True})
    assert refuses("invite", {**CONTENTS["invite"], "owner": None})


@pytest.mark.parametrize("name", ["join", "invite", "no"])
def test_versions_are_a_short_list_that_grows(name: str) -> None:
    assert not refuses(name, {**CONTENTS[name], "protocols": [1, *range(3, 18)]})
    wrong: list[Any] = [[], [1, *range(3, 19)], [3, 1], [1, 1], [0, 1], [1, 1_001], ["1"], 1, None]
    for protocols in wrong:
        assert refuses(name, {**CONTENTS[name], "protocols": protocols})


@pytest.mark.parametrize("name", SAID)
def test_a_message_has_one_spelling(name: str) -> None:
    text = SAID[name]
    assert pairing.read(text) == CONTENTS[name]
    fields = list(CONTENTS[name].items())
    random.Random(3).shuffle(fields)
    spaced = json.dumps(CONTENTS[name], sort_keys=True)
    twice = text[:-1] + ',"type":"join"}'
    others = [
        spaced,
        " " + text,
        text + "\n",
        text[:-1],
        twice,
        "\ufeff" + text,
    ]
    if len(fields) > 1:
        others.append(json.dumps(dict(reversed(fields)), separators=(",", ":")))
    for other in others:
        if other != text:
            with pytest.raises(pairing.Refused):
                pairing.read(other)


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "5", '"join"', "{}", '{"type":5}', '{"type":null}', "\ud800"),
        *("{" * 4_000, '{"type":"' + "x" * 20_000 + '"}', '{"a":' * 9 + "1" + "}" * 9),
    ],
)
def test_what_is_no_message_at_all_is_refused(text: str) -> None:
    for proved in (False, True):
        with pytest.raises(pairing.Refused) as refused:
            pairing.read(text, proved=proved)
        assert refused.value.code == "malformed"


def test_a_thousand_damaged_messages_break_no_machine() -> None:
    chance = random.Random(11)
    ended = 0
    for _ in range(1_000):
        text = bytearray(SAID["join"].encode())
        for _ in range(chance.randint(1, 4)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        machine = inviter()
        machine.receive(text.decode("utf-8", "surrogateescape"), 5_000)
        ended += machine.state == "ended"
    assert ended > 500


# -- limits and own words -------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "fits"), [(-1, True), (0, True), (1, False)])
def test_a_first_frame_has_at_most_four_kibibytes(more: int, *, fits: bool) -> None:
    assert limits.HELLO_MAX_BYTES == 4_096
    said = json.loads(SAID["join"])
    room = limits.HELLO_MAX_BYTES - len(encode({**said, "x": ""}).encode()) + more
    text = encode({**said, "x": "é" * (room // 2) + "e" * (room % 2)})
    assert len(text.encode()) == limits.HELLO_MAX_BYTES + more
    if fits:
        assert pairing.read(text)["type"] == "join"
    else:
        with pytest.raises(pairing.Refused):
            pairing.read(text)


@pytest.mark.parametrize(("more", "fits"), [(-1, True), (0, True), (1, False)])
def test_after_the_proofs_a_frame_has_at_most_sixteen(more: int, *, fits: bool) -> None:
    assert limits.PAIRING_FRAME_MAX_BYTES == 16_384
    meeting = meet()
    room = limits.PAIRING_FRAME_MAX_BYTES - len(encode(pairing.confirmed_message([""]))) + more
    if fits:
        meeting.go_on([("joiner", meeting.joiner.confirm(["r" * room])[0].text)])  # type: ignore[union-attr]
        assert len(meeting.at_inviter.records[0][0]) == room
    else:
        with pytest.raises(ValueError, match="would refuse"):
            meeting.joiner.confirm(["r" * room])
        meeting.go_on([("joiner", encode(pairing.confirmed_message(["r" * room])))])
        assert meeting.at_inviter.code == "malformed"


@pytest.mark.parametrize(("count", "fits"), [(3, True), (4, True), (5, False)])
def test_at_most_four_records_are_handed_over(*, count: int, fits: bool) -> None:
    meeting = meet()
    if not fits:
        with pytest.raises(ValueError, match="would refuse"):
            meeting.joiner.confirm(["r"] * count)
    else:
        assert meeting.joiner.confirm(["r"] * count)


def test_the_longest_that_a_host_may_tell_of_itself_fits_into_a_frame() -> None:
    name = ".".join(["n" * 62, "n" * 63, "n" * 63, "n" * 61])
    longest = LAPTOP._replace(
        label="l" * 40,
        addresses=tuple(f"{number}{name}:24629" for number in range(8)),
        certificate=b"c" * limits.CERTIFICATE_MAX_BYTES,
    )
    assert meet(joiner(who=longest)).has_agreed
    inviting = longest._replace(owner=OWNER)
    assert meet(joiner(sees=longest.certificate), inviter(who=inviting)).at_joiner.code == "itself"


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "Desk"},
        {"label": ""},
        {"addresses": ("desk",)},
        {"addresses": ("[fe80::1%eth0]:1",)},
        {"addresses": tuple(f"d{number}:1" for number in range(9))},
        {"owner": b"\0" * 32},
    ],
)
def test_a_host_that_would_tell_nonsense_of_itself_is_stopped_before_it_does(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match="would refuse"):
        inviter(who=DESK._replace(**wrong))
    with pytest.raises(ValueError, match="would refuse"):
        joiner(who=LAPTOP._replace(**wrong))


def test_only_a_host_with_an_owner_invites_and_nonces_are_whole() -> None:
    with pytest.raises(ValueError, match="would refuse"):
        inviter(who=BARE)
    clock = Clock(0, 0)
    for nonce in (bytes(31), bytes(33)):
        with pytest.raises(ValueError, match="32 random bytes"):
            Inviter(invitation(), DESK, nonce, clock)
        with pytest.raises(ValueError, match="32 random bytes"):
            Joiner(CODE, LAPTOP, b"c", nonce, clock)
    with pytest.raises(ValueError, match="would refuse"):
        joiner(who=LAPTOP._replace(certificate=b"c" * (limits.CERTIFICATE_MAX_BYTES + 1)))


def test_nothing_that_is_sent_or_shown_of_a_run_holds_the_code_or_a_key() -> None:
    meeting = meet()
    code = CODE.shown().replace("-", "")
    assert meeting.joiner.match is not None
    key = pairing.key_of(CODE.secret(), meeting.joiner.match.transcript)
    texts = meeting.at_joiner.sent + meeting.at_inviter.sent
    texts += [repr(one) for one in (meeting, meeting.joiner.match, invitation(), meeting.at_joiner)]
    texts += [repr(Send(texts[0])), repr(vars(meeting.joiner)), repr(vars(meeting.inviter))]
    secrets = [code, code.lower(), code[:26].lower(), key.hex(), repr(key), str(CODE.secret())]
    assert [one for one in secrets if any(one in text for text in texts)] == []
