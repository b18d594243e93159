"""The records of paired hosts say exactly what they say, within their limits, or they are none."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import limits, peer
from mbx.core.canonical import JsonValue, encode
from mbx.core.keys import SigningKey, key_id
from mbx.core.peer import Certification, Entry, Nack, Onward, Peer, Pin, Unpairing
from mbx.core.record import RecordError, sign, verify

HOST_KEY, OWNER_KEY = (SigningKey.from_seed(bytes([number]) * 32) for number in (1, 2))
THEIR_KEY = SigningKey.from_seed(b"\3" * 32)
HOST, OWNER = key_id("host", HOST_KEY.public), key_id("owner", OWNER_KEY.public)
THEIRS = key_id("host", THEIR_KEY.public)
FROM_HOST: dict[str, JsonValue] = {"iat": 5, "nonce": "0" * 32, "aud": HOST}
FROM_OWNER: dict[str, JsonValue] = {**FROM_HOST, "owner": OWNER}

PIN = Pin(THEIRS, THEIR_KEY.public, b"\4" * 32, "their-box", None, b"\5" * 32)
PEER = Peer(1, PIN, "laptop", ("laptop.local:24629", "[2001:db8::1]:24629", "10.0.0.7:5000"))
UNPAIRING = Unpairing(2, THEIRS, "laptop", "lost\non the train")
CERTIFICATION = Certification(HOST, key_id("tls", HOST_KEY.public), b"\6" * 32)
ANA = Entry("a" * 26, "ana", "builder", "Builds it", "live", "claude", retired=False)
HUMAN = Entry("0" * 26, "owner", "owner", "", "unknown", None, retired=False)
TOLD = (ANA, HUMAN)
ONWARD = (Onward("a" * 26, "b" * 26), Onward("0" * 26, None))
NACK = Nack("m" * 26, "b" * 26, "retired", "ben has retired")


class Kind(NamedTuple):
    kind: str
    value: Any
    write: Callable[[Any, Mapping[str, JsonValue]], dict[str, JsonValue]]
    read: Callable[[Mapping[str, JsonValue]], Any]
    envelope: dict[str, JsonValue]
    signer: SigningKey

    def content(self, value: Any = None, **changes: Any) -> dict[str, Any]:
        return {**self.write(value or self.value, self.envelope), **changes}

    def refuses(self, content: Mapping[str, Any]) -> bool:
        try:
            self.read(content)
        except RecordError as error:
            return error.step == 6
        return False


OF_PEER = Kind("peer", PEER, peer.peer_payload, peer.read_peer, FROM_OWNER, OWNER_KEY)
OF_UNPAIR = Kind("unpair", UNPAIRING, peer.unpair_payload, peer.read_unpair, FROM_OWNER, OWNER_KEY)
OF_CERTIFICATE = Kind(
    "tls-cert",
    CERTIFICATION,
    peer.certificate_payload,
    peer.read_certificate,
    {"iat": 5, "nonce": "0" * 32},
    HOST_KEY,
)
OF_DIRECTORY = Kind(
    "directory", TOLD, peer.directory_payload, peer.read_directory, FROM_HOST, THEIR_KEY
)
OF_NACK = Kind("nack", NACK, peer.nack_payload, peer.read_nack, FROM_HOST, THEIR_KEY)
OF_FORWARDS = Kind(
    "forwards", ONWARD, peer.forwards_payload, peer.read_forwards, FROM_HOST, THEIR_KEY
)
KINDS = [OF_PEER, OF_UNPAIR, OF_CERTIFICATE, OF_DIRECTORY, OF_FORWARDS, OF_NACK]

# What no field of any record may be, whatever its type.
HOSTILE: list[Any] = [
    *(None, True, -1, 2**53, 1.5, "", "x\ny", "\0", "x" * 5_000, "../../etc", "owner@host"),
    *([], ["x"], [[]], {}, {"x": 1}, "A" * 26, "\u202eabc", "mbx", "lead", "DESK", "00"),
]


def hostile_to(value: Any) -> Iterator[Any]:
    """What differs from `value` in type or grammar."""
    for other in HOSTILE:
        if type(other) is not type(value) or other != value:
            yield other


# -- all of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_what_is_written_is_read_back_from_a_signed_record(kind: Kind) -> None:
    signer_id = "s" * 26
    record = sign(kind.kind, kind.content(), kind.signer, signer_id)
    audience = HOST if "aud" in kind.envelope else None
    payload = verify(
        record, kind=kind.kind, signers={signer_id: kind.signer.public}, audience=audience
    )
    assert kind.read(payload) == kind.value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_field_too_many_or_too_few_makes_it_none(kind: Kind) -> None:
    whole = kind.content()
    assert not kind.refuses(whole)
    assert kind.refuses({**whole, "why": None})
    for name in whole:
        assert kind.refuses({key: value for key, value in whole.items() if key != name})


# Fields that may be any text within their length, and what they let pass of the list above.
FREE = {"reason", "words", "description", "cli", "recipient", "owner"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_no_field_takes_what_it_is_not(kind: Kind) -> None:
    tried = 0
    for name, value in kind.content().items():
        if name in {"v", "type", "iat", "nonce", *FREE}:
            continue
        for other in hostile_to(value):
            if name == "addresses" and other == []:
                continue
            assert kind.refuses(kind.content(**{name: other})), (name, other)
            tried += 1
    assert tried >= 20 * (len(kind.content()) - 7)


@pytest.mark.parametrize("kind", [OF_PEER, OF_UNPAIR, OF_NACK], ids=lambda kind: kind.kind)
def test_free_texts_and_ids_that_may_be_missing_are_still_bounded(kind: Kind) -> None:
    wrong: list[Any] = [True, 5, [], {}, "\0", "x" * 501]
    for name in FREE & kind.content().keys():
        for other in wrong:
            assert kind.refuses(kind.content(**{name: other})), (name, other)


# -- forwards -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "is_none"),
    [(0, True), (1, False), (limits.DIRECTORY_ENTRIES_MAX, False), (201, True)],
)
def test_a_record_holds_so_many_forwards(count: int, is_none: bool) -> None:
    listed = [{"identity": f"{number:026}", "to": None} for number in range(count)]
    assert OF_FORWARDS.refuses(OF_FORWARDS.content(forwards=listed)) is is_none


@pytest.mark.parametrize(
    "forward",
    [
        *({"identity": "a" * 26}, {"to": None}, {"identity": "A" * 26, "to": None}, "a" * 26),
        *({"identity": "a" * 26, "to": wrong} for wrong in ("", "b" * 25, "a" * 26, 1, False)),
        {"identity": "a" * 26, "to": None, "why": None},
    ],
)
def test_what_is_no_forward_makes_the_record_none(forward: Any) -> None:
    assert OF_FORWARDS.refuses(OF_FORWARDS.content(forwards=[forward]))


def test_no_identity_is_forwarded_twice_in_one_record() -> None:
    twice = [{"identity": "a" * 26, "to": to} for to in (None, "b" * 26)]
    assert OF_FORWARDS.refuses(OF_FORWARDS.content(forwards=twice))


# -- peer -----------------------------------------------------------------------------------------


def pinned(**changes: Any) -> dict[str, Any]:
    content = OF_PEER.content()
    return {**content, "peer": {**content["peer"], **changes}}


def test_a_peer_of_the_same_owner_and_one_that_moved_are_read_back() -> None:
    shared = PEER._replace(version=2, pin=PIN._replace(owner=OWNER), addresses=("desk:1",))
    link_local = shared._replace(version=3, addresses=("[fe80::1%eth0]:24629",))
    for one in (shared, link_local, shared._replace(addresses=())):
        assert peer.read_peer(OF_PEER.content(one)) == one


def test_a_pinned_key_is_what_its_id_was_derived_from() -> None:
    other = SigningKey.from_seed(b"\7" * 32).public
    assert OF_PEER.refuses(pinned(key=other.hex()))
    assert OF_PEER.refuses(pinned(host=key_id("host", other)))
    assert OF_PEER.refuses(pinned(host=key_id("owner", THEIR_KEY.public)))
    assert not OF_PEER.refuses(pinned(key=other.hex(), host=key_id("host", other)))


@pytest.mark.parametrize("weak", [0, 1, 2**255 - 19, 2**255 - 18, 2**256 - 1])
def test_a_weak_key_is_never_pinned(weak: int) -> None:
    public = weak.to_bytes(32, "little")
    assert OF_PEER.refuses(pinned(key=public.hex(), host=key_id("host", public)))


def test_no_host_is_its_own_peer() -> None:
    own = pinned(key=HOST_KEY.public.hex(), host=HOST)
    assert OF_PEER.refuses(own)
    assert not OF_PEER.refuses({**own, "aud": THEIRS})


def test_each_part_of_a_pin_is_checked() -> None:
    whole = OF_PEER.content()["peer"]
    assert OF_PEER.refuses(pinned(why=None))
    for name, value in whole.items():
        assert OF_PEER.refuses(
            OF_PEER.content(peer={key: one for key, one in whole.items() if key != name})
        )
        for other in hostile_to(value):
            if (name, other) != ("owner", None):
                assert OF_PEER.refuses(pinned(**{name: other})), (name, other)
    for name in ("key", "certificate", "transcript"):
        for other in (whole[name].upper(), whole[name][:-2], whole[name] + "00", whole[name] + " "):
            if other != whole[name]:
                assert OF_PEER.refuses(pinned(**{name: other}))


@pytest.mark.parametrize("label", ["a", "x" * 41, "-desk", "owner", "lead", "12345", "desk.lan"])
def test_both_labels_keep_the_grammar_of_labels(label: str) -> None:
    assert OF_PEER.refuses(OF_PEER.content(label=label))
    assert OF_PEER.refuses(pinned(label=label))


@pytest.mark.parametrize(("count", "fits"), [(0, True), (7, True), (8, True), (9, False)])
def test_a_peer_has_at_most_eight_addresses(*, count: int, fits: bool) -> None:
    some = [f"10.0.0.{number}:24629" for number in range(count)]
    assert OF_PEER.refuses(OF_PEER.content(addresses=some)) != fits
    assert limits.PEER_ADDRESSES_MAX == 8


@pytest.mark.parametrize(
    "address",
    ["desk", "DESK:1", "desk:0", "desk:65536", "::1", "[::1]", "10.0.0.01:1", "0.0.0.0:1", "a b:1"],
)
def test_an_address_is_in_its_one_spelling_and_named_once(address: str) -> None:
    assert OF_PEER.refuses(OF_PEER.content(addresses=[address]))
    assert OF_PEER.refuses(OF_PEER.content(addresses=["desk:1", "desk:1"]))


def test_what_others_tell_of_their_addresses_has_no_zone() -> None:
    assert peer.addresses(["desk:1", "[fe80::1]:1"]) == ("desk:1", "[fe80::1]:1")
    with pytest.raises(RecordError):
        peer.addresses(["[fe80::1%eth0]:1"])


# -- directory ------------------------------------------------------------------------------------


def entries(count: int) -> tuple[Entry, ...]:
    return tuple(
        ANA._replace(identity=f"{number:026d}", name=f"ana-{number}x") for number in range(count)
    )


@pytest.mark.parametrize(("count", "fits"), [(199, True), (200, True), (201, False)])
def test_a_directory_record_lists_at_most_two_hundred(*, count: int, fits: bool) -> None:
    assert limits.DIRECTORY_ENTRIES_MAX == 200
    content = OF_DIRECTORY.content(entries(count))
    assert OF_DIRECTORY.refuses(content) != fits


def test_the_largest_directory_record_fits_into_a_record_whatever_its_words() -> None:
    widest = "\x01" * limits.DESCRIPTION_MAX_CHARS
    most = tuple(
        Entry(
            f"{number:026d}", f"{'x' * 36}{number}", "r" * 40, widest, "offline", "\x02" * 40, True
        )
        for number in range(limits.DIRECTORY_ENTRIES_MAX)
    )
    text = encode(OF_DIRECTORY.content(most))
    assert len(text.encode()) < limits.RECORD_MAX_BYTES // 4
    assert not OF_DIRECTORY.refuses(OF_DIRECTORY.content(most))


def test_a_directory_tells_of_one_identity_at_least() -> None:
    assert OF_DIRECTORY.refuses(OF_DIRECTORY.content(identities=[]))


def test_an_identity_and_a_name_are_listed_once() -> None:
    twin = ANA._replace(identity="b" * 26)
    assert OF_DIRECTORY.refuses(OF_DIRECTORY.content((ANA, ANA)))
    assert OF_DIRECTORY.refuses(OF_DIRECTORY.content((ANA, twin)))


def test_each_field_of_an_entry_is_checked() -> None:
    whole = ANA._asdict()

    def is_refused(**changes: Any) -> bool:
        return OF_DIRECTORY.refuses(OF_DIRECTORY.content(identities=[{**whole, **changes}]))

    assert not is_refused()
    assert is_refused(why=None)
    tried = 0
    for name, value in whole.items():
        without = {key: one for key, one in whole.items() if key != name}
        refused = OF_DIRECTORY.refuses(OF_DIRECTORY.content(identities=[without]))
        assert refused == (name != "reach")
        for other in hostile_to(value):
            free = name in {"description", "cli"} and isinstance(other, str | None)
            if free or (name == "role" and other in ("mbx", "lead", "00")):
                continue
            if name == "retired" and isinstance(other, bool):
                continue
            assert is_refused(**{name: other}), (name, other)
            tried += 1
    assert tried > 100
    assert is_refused(description=None)
    for text in ("x" * 201, "x\ny", "\0", "\ud800"):
        assert is_refused(description=text)
    for text in ("x" * 41, "", "x\ny", "\0"):
        assert is_refused(cli=text)


@pytest.mark.parametrize("reach", [None, "live-wake", "live-next-prompt"])
def test_how_somebody_is_reached_is_told_by_those_who_know(reach: str | None) -> None:
    entry = ANA._replace(reach=reach)
    assert peer.read_directory(OF_DIRECTORY.content((entry,))) == (entry,)
    before = {key: one for key, one in entry._asdict().items() if key != "reach"}
    assert peer.read_directory(OF_DIRECTORY.content(identities=[before])) == (ANA,)


@pytest.mark.parametrize(("chars", "fits"), [(199, True), (200, True), (201, False)])
def test_a_description_has_at_most_two_hundred_characters(*, chars: int, fits: bool) -> None:
    told = (ANA._replace(description="d" * chars),)
    assert OF_DIRECTORY.refuses(OF_DIRECTORY.content(told)) != fits


@pytest.mark.parametrize(("chars", "fits"), [(39, True), (40, True), (41, False)])
def test_names_roles_and_harnesses_have_at_most_forty(*, chars: int, fits: bool) -> None:
    for entry in (
        ANA._replace(name="n" * chars),
        ANA._replace(role="r" * chars),
        ANA._replace(cli="c" * chars),
    ):
        assert OF_DIRECTORY.refuses(OF_DIRECTORY.content((entry,))) != fits


def test_a_host_tells_where_it_can_be_dialled_with_its_identities_or_alone() -> None:
    told = ("10.0.0.7:5000", "[2001:db8::1]:24629")
    for entries in (TOLD, ()):
        content = peer.directory_payload(entries, FROM_HOST, told)
        assert (peer.read_directory(content), peer.read_addresses(content)) == (entries, told)
    assert peer.read_addresses(peer.directory_payload((), FROM_HOST, ())) == ()
    assert peer.read_addresses(OF_DIRECTORY.content()) is None


@pytest.mark.parametrize(
    "addresses",
    [
        "10.0.0.7:5000",
        ["10.0.0.7"],
        ["10.0.0.7:5000"] * 2,
        [f"10.0.0.{n}:5000" for n in range(9)],
        ["[fe80::1%eth0]:5000"],
        [5000],
        {},
    ],
)
def test_addresses_in_another_spelling_are_refused(addresses: Any) -> None:
    assert OF_DIRECTORY.refuses(OF_DIRECTORY.content(addresses=addresses))


# -- nack and unpair ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", sorted(peer.NACK_CODES))
def test_a_nack_gives_one_of_the_reasons_for_one_recipient_or_for_all(code: str) -> None:
    for one in (NACK._replace(code=code), NACK._replace(code=code, recipient=None)):
        assert peer.read_nack(OF_NACK.content(one)) == one


@pytest.mark.parametrize("code", ["", "busy", "Retired", "retired ", "ok"])
def test_another_reason_is_none(code: str) -> None:
    assert OF_NACK.refuses(OF_NACK.content(code=code))


@pytest.mark.parametrize(("chars", "fits"), [(499, True), (500, True), (501, False)])
def test_words_and_reasons_have_at_most_five_hundred(*, chars: int, fits: bool) -> None:
    assert OF_NACK.refuses(OF_NACK.content(words="w" * chars)) != fits
    assert OF_UNPAIR.refuses(OF_UNPAIR.content(reason="w" * chars)) != fits


@pytest.mark.parametrize("version", [0, -1, 2**53, True, "1", 1.0, None])
def test_versions_are_whole_numbers_from_one(version: Any) -> None:
    for kind in (OF_PEER, OF_UNPAIR):
        assert kind.refuses(kind.content(version=version))
        assert not kind.refuses(kind.content(version=1))
        assert not kind.refuses(kind.content(version=2**53 - 1))


# -- anything -------------------------------------------------------------------------------------

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
@given(data=st.data())
def test_anything_else_is_refused_as_a_record_and_never_breaks_the_reader(
    kind: Kind, data: st.DataObject
) -> None:
    whole = kind.content()
    name = data.draw(st.sampled_from(sorted(whole)))
    content = {**whole, name: data.draw(ANYTHING)}
    try:
        value = kind.read(content)
    except RecordError as error:
        assert error.step == 6  # noqa: PT017  (both outcomes are right)
    else:
        told = {"addresses": content["addresses"]} if kind is OF_DIRECTORY else {}
        assert {**kind.write(value, kind.envelope), **_envelope(content), **told} == content


def _envelope(content: dict[str, Any]) -> dict[str, Any]:
    return {name: content[name] for name in FROM_OWNER.keys() & content.keys() | {"v", "type"}}
