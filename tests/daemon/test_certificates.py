"""TLS between hosts: one key for ever, and only pinned certificates come through."""

import asyncio
import itertools
import os
import ssl
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from mbx.core import peer, record
from mbx.core.errors import MbxError
from mbx.core.keys import key_id
from mbx.core.limits import CERTIFICATE_MAX_BYTES
from mbx.core.pairing import certificate_hash
from mbx.daemon import certificates
from mbx.daemon.certificates import TlsKey
from tests.support.tls import LOOPBACK, Machine, anchors, exchange, machine

HOST = "h" * 26
SEED = bytes(range(32))


def load(path: Path, *, must_exist: bool = True, host: str = HOST, seed: bytes = SEED) -> TlsKey:
    return certificates.load_or_create(str(path), seed, host, must_exist=must_exist)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tls.key"


# -- the key on disk ------------------------------------------------------------------------------


def test_the_key_and_its_certificate_are_made_once_and_stay(path: Path) -> None:
    first = load(path, must_exist=False)
    before = path.read_bytes()
    assert load(path) == load(path, must_exist=False, seed=b"\1" * 32) == first
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == ["tls.key"]
    assert first.digest == certificate_hash(first.certificate)


def test_the_same_key_has_the_same_certificate_whenever_it_is_made(
    path: Path, tmp_path: Path
) -> None:
    """So a copy of the key alone is enough to come back."""
    assert load(path, must_exist=False).digest == load(tmp_path / "b", must_exist=False).digest
    told = "ef9ef31d79a80751eae8c6f899b414d07c3c142418e35c277cfad57e2ec10526"
    assert load(path).digest.hex() == told


def test_the_certificate_is_small_names_the_host_and_ends_with_the_calendar(path: Path) -> None:
    der = load(path, must_exist=False).certificate
    assert len(der) < CERTIFICATE_MAX_BYTES // 2
    found = x509.load_der_x509_certificate(der)
    assert found.subject == found.issuer
    assert [(part.oid, part.value) for part in found.subject] == [(NameOID.COMMON_NAME, HOST)]
    assert found.not_valid_before_utc.year == 2000
    assert found.not_valid_after_utc.year == 9999
    assert found.serial_number > 0
    certificates.check(der, HOST)


def test_a_missing_key_is_a_loss_once_peers_know_it(path: Path) -> None:
    with pytest.raises(MbxError, match=r"the TLS key .*tls\.key is missing") as refused:
        load(path)
    assert refused.value.code == "store-damaged"
    assert not path.exists()


def other_key(pem: bytes) -> bytes:
    other = Ed25519PrivateKey.from_private_bytes(b"\7" * 32)
    private = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + pem[pem.index(b"-----BEGIN CERT") :]


def key_of_another_kind(pem: bytes) -> bytes:
    other = ec.generate_private_key(ec.SECP256R1())
    private = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + pem[pem.index(b"-----BEGIN CERT") :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda pem: b"",
    "half": lambda pem: pem[: len(pem) // 2],
    "zeros": lambda pem: bytes(len(pem)),
    "no certificate": lambda pem: pem[: pem.index(b"-----BEGIN CERT")],
    "no key": lambda pem: pem[pem.index(b"-----BEGIN CERT") :],
    "another key": other_key,
    "another kind of key": key_of_another_kind,
    "a letter of the certificate": lambda pem: pem[:-60] + b"AAAA" + pem[-56:],
    "not base64": lambda pem: pem.replace(b"M", b"!"),
    "too large": lambda pem: pem + b" " * 5_000,
    "a host key": lambda pem: b'{"v":1,"type":"mbx-host-key","key_id":"x","seed":"AAAA"}',
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize("must_exist", [True, False])
def test_a_damaged_key_is_named_and_left_byte_for_byte(
    damage: Callable[[bytes], bytes], must_exist: bool, path: Path
) -> None:
    load(path, must_exist=False)
    path.write_bytes(damage(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(MbxError) as refused:
        load(path, must_exist=must_exist)
    assert refused.value.code == "store-damaged"
    assert str(path) in refused.value.message
    assert "backup" in str(refused.value.next_step)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["tls.key"]


def test_the_key_of_another_host_is_none_of_ours(path: Path) -> None:
    load(path, must_exist=False)
    with pytest.raises(MbxError, match="another host's"):
        load(path, host="j" * 26)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644])
def test_a_key_that_others_can_read_is_refused_with_the_remedy(mode: int, path: Path) -> None:
    load(path, must_exist=False)
    path.chmod(mode)
    with pytest.raises(MbxError, match=f"mode {mode:04o}") as refused:
        load(path)
    assert refused.value.next_step == f"chmod 600 {path}"


def test_the_left_over_of_a_killed_start_goes(path: Path) -> None:
    aside = path.with_name("tls.key.new")
    aside.write_bytes(b"half a k")
    key = load(path, must_exist=False)
    os.link(path, aside)
    assert load(path) == key
    assert not aside.exists()


def test_the_host_key_vouches_for_the_certificate(tmp_path: Path) -> None:
    one = machine(tmp_path, 1)
    sealed = certificates.certification(one.tls, one.host, 5, "0" * 32)
    payload = record.verify(
        sealed.record(one.id),
        kind="tls-cert",
        signers={one.id: one.host.signer.public},
        audience=None,
    )
    assert peer.read_certificate(payload) == (one.id, one.tls.key_id, one.tls.digest)
    assert one.tls.key_id != one.id


# -- whose certificates are taken -----------------------------------------------------------------


def forged(**changes: Any) -> bytes:
    """A certificate such as ours, but for the changes."""
    key = Ed25519PrivateKey.from_private_bytes(b"\5" * 32)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, changes.get("subject", HOST))])
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, changes.get("issuer", HOST))])
    builder = (
        x509.CertificateBuilder()
        .subject_name(changes.get("name", name))
        .issuer_name(issuer)
        .public_key(changes.get("public", key.public_key()))
        .serial_number(5)
        .not_valid_before(changes.get("since", datetime(2000, 1, 1, tzinfo=UTC)))
        .not_valid_after(changes.get("until", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)))
    )
    for blob in changes.get("extra", []):
        unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), blob)
        builder = builder.add_extension(unknown, critical=False)
    signer = changes.get("signer", key)
    of_ec = isinstance(signer, ec.EllipticCurvePrivateKey)
    return builder.sign(signer, SHA256() if of_ec else None).public_bytes(Encoding.DER)


EC_KEY = ec.derive_private_key(5, ec.SECP256R1())
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(b"\6" * 32)
ORGANISATION = x509.Name(
    [
        x509.NameAttribute(NameOID.COMMON_NAME, HOST),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "mbx"),
    ]
)


@pytest.mark.parametrize(
    ("certificate", "fault"),
    [
        (b"", "no certificate"),
        (b"\x30\x03\x02\x01\x05", "no certificate"),
        (forged()[:-1], "no certificate"),
        (forged() + b"\0", "no certificate"),
        (forged(subject="j" * 26), "another host"),
        (forged(issuer="j" * 26), "another host"),
        (forged(name=ORGANISATION), "another host"),
        (forged(public=EC_KEY.public_key(), signer=EC_KEY), "Ed25519"),
        (forged(public=EC_KEY.public_key()), "Ed25519"),
        (forged(signer=EC_KEY), "Ed25519"),
        (forged(signer=OTHER_KEY), "own key"),
        (forged(until=datetime(2400, 1, 1, tzinfo=UTC)), "end one day"),
        (forged(since=datetime(2001, 1, 1, tzinfo=UTC)), "end one day"),
        (forged(extra=[bytes(2_000)]), "more than 1,024 bytes"),
    ],
)
def test_a_certificate_that_is_not_like_ours_is_never_pinned(
    certificate: bytes, fault: str
) -> None:
    with pytest.raises(ValueError, match=fault):
        certificates.check(certificate, HOST)


def test_a_certificate_of_the_same_form_made_elsewhere_is_taken() -> None:
    certificates.check(forged(), HOST)
    certificates.check(forged(extra=[bytes(100)]), HOST)
    for host in ("j" * 26, "", "H" * 26):
        with pytest.raises(ValueError, match="another host"):
            certificates.check(forged(), host)


def test_a_certificate_has_at_most_a_kibibyte() -> None:
    room = CERTIFICATE_MAX_BYTES - len(forged(extra=[bytes(300)]))
    for more, fits in ((-1, True), (0, True), (1, False)):
        made = forged(extra=[bytes(300 + room + more)])
        assert len(made) == CERTIFICATE_MAX_BYTES + more
        if fits:
            certificates.check(made, HOST)
        else:
            with pytest.raises(ValueError, match="more than"):
                certificates.check(made, HOST)


# -- over real sockets ----------------------------------------------------------------------------


@pytest.fixture
def machines(tmp_path: Path) -> list[Machine]:
    return [machine(tmp_path, number) for number in range(1, 6)]


async def test_each_of_three_peers_comes_in_whatever_the_order_of_anchors(
    machines: list[Machine],
) -> None:
    home, *peers = machines[:4]
    came = 0
    for order in itertools.permutations(peers):
        listener = certificates.listening(home.tls, anchors(*order))
        for one in peers:
            dialler = certificates.dialling(one.tls, home.id, home.tls.certificate)
            said, seen = await exchange(listener, dialler)
            assert said.decode() == one.tls.digest.hex()
            assert seen == home.tls.certificate
            came += 1
    assert came == 18


async def test_an_unknown_certificate_is_refused_even_with_the_name_of_a_peer(
    machines: list[Machine], tmp_path: Path
) -> None:
    home, known, stranger = machines[:3]
    listener = certificates.listening(home.tls, anchors(known))
    twin = machine(tmp_path, 2, tls_number=22)
    assert twin.id == known.id
    assert twin.tls.digest != known.tls.digest
    for one in (stranger, twin):
        dialler = certificates.dialling(one.tls, home.id, home.tls.certificate)
        with pytest.raises((OSError, EOFError)):
            await exchange(listener, dialler)
    dialler = certificates.dialling(known.tls, home.id, home.tls.certificate)
    assert (await exchange(listener, dialler))[0].decode() == known.tls.digest.hex()


async def test_who_shows_no_certificate_gets_in_as_nobody(machines: list[Machine]) -> None:
    home, known = machines[:2]
    for paired in ([], [known]):
        listener = certificates.listening(home.tls, anchors(*paired))
        said, seen = await exchange(listener, certificates.joining())
        assert said == b"none"
        assert seen == home.tls.certificate


async def test_a_dialler_takes_the_pinned_certificate_and_no_other(
    machines: list[Machine], tmp_path: Path
) -> None:
    home, known, false = machines[:3]
    dialler = certificates.dialling(known.tls, home.id, home.tls.certificate)
    reinstalled = machine(tmp_path, 1, tls_number=11)
    assert reinstalled.id == home.id
    for other in (false, reinstalled):
        listener = certificates.listening(other.tls, anchors(known))
        with pytest.raises(ssl.SSLCertVerificationError):
            await exchange(listener, dialler)


async def test_a_removed_peer_still_passes_an_old_context_so_its_hash_must_be_asked_for(
    machines: list[Machine],
) -> None:
    """What the face does on every connection: the context alone would let it in."""
    home, kept, removed = machines[:3]
    old = certificates.listening(home.tls, anchors(kept, removed))
    pinned = {kept.tls.digest: kept.id}
    dialler = certificates.dialling(removed.tls, home.id, home.tls.certificate)
    said, _ = await exchange(old, dialler)
    assert pinned.get(bytes.fromhex(said.decode())) is None


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2])
async def test_older_tls_is_refused_on_both_sides(
    machines: list[Machine], newest: ssl.TLSVersion
) -> None:
    home, known = machines[:2]
    listener = certificates.listening(home.tls, anchors(known))
    dialler = certificates.dialling(known.tls, home.id, home.tls.certificate)
    for server, client in ((listener, older(known)), (older(home), dialler)):
        with pytest.raises((OSError, EOFError)):
            await exchange(server, client)
    for context in (listener, dialler, certificates.joining()):
        assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3


def older(one: Machine) -> ssl.SSLContext:
    """A context of the same host that speaks TLS 1.2 only; its role fits what it is used for."""
    server = one.host.label == "host-1"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(one.tls.path)
    return context


async def test_no_ticket_is_given_and_no_session_is_resumed(machines: list[Machine]) -> None:
    home, known = machines[:2]
    listener = certificates.listening(home.tls, anchors(known))
    dialler = certificates.dialling(known.tls, home.id, home.tls.certificate)
    assert listener.num_tickets == 0
    for context in (listener, dialler):
        assert context.options & ssl.OP_NO_TICKET
    await exchange(listener, dialler)
    assert listener.session_stats()["hits"] == 0
    assert listener.session_stats()["number"] == 0


async def test_an_expired_certificate_is_neither_trusted_nor_let_in(
    machines: list[Machine], tmp_path: Path
) -> None:
    home = machines[0]
    past = datetime.now(UTC) - timedelta(days=1)
    expired = forged(until=past)
    with pytest.raises(ValueError, match="end one day"):
        certificates.listening(home.tls, {HOST: expired})
    with pytest.raises(ValueError, match="end one day"):
        certificates.dialling(home.tls, HOST, expired)


def test_no_context_is_made_with_anchors_of_one_subject(
    machines: list[Machine], tmp_path: Path
) -> None:
    """OpenSSL would look both up by that subject: one of them might be refused, by the order."""
    home, known = machines[:2]
    twin = machine(tmp_path, 2, tls_number=22)
    with pytest.raises(ValueError, match="another host"):
        certificates.listening(
            home.tls, {known.id: known.tls.certificate, HOST: twin.tls.certificate}
        )


async def test_plain_words_are_no_handshake(machines: list[Machine]) -> None:
    home = machines[0]
    listener = certificates.listening(home.tls, {})
    met: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(b"somebody")
        writer.transport.abort()

    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    async with await asyncio.start_server(answer, LOOPBACK, 0, ssl=listener) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(b"GET /link HTTP/1.1\r\nHost: x\r\n\r\n")
        said = await reader.read()
        writer.transport.abort()
    assert met == []
    assert b"HTTP" not in said


def test_the_file_of_the_key_holds_the_key_id_of_its_role(path: Path) -> None:
    key = load(path, must_exist=False)
    found = x509.load_der_x509_certificate(key.certificate).public_key()
    assert key.key_id == key_id("tls", found.public_bytes_raw())  # type: ignore[union-attr]
