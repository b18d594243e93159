"""TLS between paired hosts: one key and self-signed certificate a host, and the contexts.

The certificate is Ed25519, its subject is the host's key id, and it is valid from 2000 to 9999, so
that no clock ever ends a pairing. Who is trusted is decided by the SHA-256 of its DER, which the
owner's `peer` record pins: the contexts below only see to it that the other side has the key of its
certificate. They are made anew when peers come and go; but the hash is compared with the store on
every connection, so a context that is too old lets nobody in who was removed.

TLS 1.3 only, no tickets, no resumption, no names of machines. The certificates of two hosts never
have one subject, for OpenSSL looks anchors up by subject and may try the wrong one only.
"""

import binascii
import hashlib
import re
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, SignatureAlgorithmOID

from mbx.core import keys, peer
from mbx.core.ids import is_id
from mbx.core.limits import CERTIFICATE_MAX_BYTES
from mbx.core.pairing import certificate_hash
from mbx.core.record import Sealed
from mbx.daemon.host import Host
from mbx.daemon.privatefile import PrivateFile

ROLE: Final = "tls"

Context = ssl.SSLContext
"""What a listener and a dialler are given."""

_SINCE: Final = datetime(2000, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""RFC 5280, 4.1.2.5: the time of a certificate that has no end."""
_SERIAL_BYTES: Final = 19
"""RFC 5280, 4.1.2.2: at most 20, and positive."""
_PEM: Final = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class TlsKey(NamedTuple):
    """The host's own: where the key lies, its id, and the DER of its certificate."""

    path: str
    key_id: str
    certificate: bytes

    @property
    def digest(self) -> bytes:
        """What peers pin."""
        return certificate_hash(self.certificate)


# -- our own key ----------------------------------------------------------------------------------


def load_or_create(path: str, seed: bytes, host: str, *, must_exist: bool) -> TlsKey:
    """The TLS key of the host with the key id `host`; made of the 32 bytes of `seed` at first.

    `must_exist`: peers have pinned its certificate, so a missing file is a loss. Raises MbxError
    store-damaged for anything that cannot be it, daemon-unreachable where none can be made.
    """
    file = PrivateFile(path, "the TLS key")
    raw = file.read()
    if raw is not None:
        key = _parse(file, raw, host)
        file.drop_aside()
        return key
    if must_exist:
        raise file.wrong("is missing, but paired hosts know this one by it")
    private = Ed25519PrivateKey.from_private_bytes(seed)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.create(pem + _certify(private, host).public_bytes(Encoding.PEM))
    return _parse(file, file.read() or b"", host)


def certification(tls: TlsKey, host: Host, now_ms: int, nonce: str) -> Sealed:
    """The host key's word (a `tls-cert` record) that this certificate is the host's own."""
    said = peer.Certification(host.key_id, tls.key_id, tls.digest)
    return host.sign("tls-cert", peer.certificate_payload(said, {"iat": now_ms, "nonce": nonce}))


def _parse(file: PrivateFile, raw: bytes, host: str) -> TlsKey:
    found = _PEM.search(raw)
    try:
        private = load_pem_private_key(raw, None)
        certificate = x509.load_pem_x509_certificate(found.group() if found else b"")
        der = certificate.public_bytes(Encoding.DER)
        check(der, host)
        if not isinstance(private, Ed25519PrivateKey):
            raise TypeError("another kind of key")
    except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error) as error:
        raise file.wrong("is damaged, or another host's") from error
    public = private.public_key().public_bytes_raw()
    if _public(certificate) != public:
        raise file.wrong("is damaged: key and certificate do not belong together")
    return TlsKey(file.path, keys.key_id(ROLE, public), der)


def _certify(private: Ed25519PrivateKey, host: str) -> x509.Certificate:
    """The same certificate for the same key, whenever it is made."""
    public = private.public_key()
    digest = hashlib.sha256(b"mbx-tls-serial/1\0" + public.public_bytes_raw()).digest()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    usage = dict.fromkeys(
        "content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign"
        " encipher_only decipher_only".split(),
        False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(int.from_bytes(digest[:_SERIAL_BYTES], "big") | 1)
        .not_valid_before(_SINCE)
        .not_valid_after(_UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .sign(private, None)
    )


# -- certificates of others -----------------------------------------------------------------------


def check(certificate: bytes, host: str) -> None:
    """Whether a DER is a certificate such as ours, of the host with this key id.

    Raises ValueError with what is wrong: ask before pinning one.
    """
    if len(certificate) > CERTIFICATE_MAX_BYTES:
        raise ValueError(f"the certificate has more than {CERTIFICATE_MAX_BYTES:,} bytes")
    try:
        found = x509.load_der_x509_certificate(certificate)
        public, names = _public(found), (found.subject, found.issuer)
        spelled = found.public_bytes(Encoding.DER)
        times = (found.not_valid_before_utc, found.not_valid_after_utc)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("it is no certificate") from error
    if spelled != certificate:
        raise ValueError("it is a certificate with something added")
    if found.signature_algorithm_oid != SignatureAlgorithmOID.ED25519 or not public:
        raise ValueError("the certificate is not of Ed25519")
    if not keys.verify(public, found.signature, found.tbs_certificate_bytes):
        raise ValueError("the certificate is not signed by its own key")
    if times[0] > _SINCE or times[1] < _UNTIL:
        raise ValueError("the certificate would end one day")
    if not is_id(host) or any(_texts(name) != [(NameOID.COMMON_NAME, host)] for name in names):
        raise ValueError("the certificate names another host")


def _public(certificate: x509.Certificate) -> bytes:
    """The 32 bytes of its key; none for another kind of key."""
    public = certificate.public_key()
    return public.public_bytes_raw() if isinstance(public, Ed25519PublicKey) else b""


def _texts(name: x509.Name) -> list[tuple[x509.ObjectIdentifier, str | bytes]]:
    return [(part.oid, part.value) for part in name]


# -- contexts -------------------------------------------------------------------------------------


def listening(own: TlsKey, peers: Mapping[str, bytes]) -> ssl.SSLContext:
    """For the listener; `peers`: host key id -> DER. Whoever shows no certificate may only pair.

    Raises ValueError for what `check` refuses.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, own)
    context.num_tickets = 0
    context.verify_mode = ssl.CERT_OPTIONAL
    for host, certificate in peers.items():
        _trust(context, host, certificate)
    return context


def dialling(own: TlsKey, host: str, certificate: bytes) -> ssl.SSLContext:
    """For a link to this peer and nobody else. Raises ValueError for what `check` refuses."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, own)
    _trust(context, host, certificate)
    return context


def joining() -> ssl.SSLContext:
    """For a pairing: shows no certificate and believes none; the transcript will hold its hash."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, None)
    context.verify_mode = ssl.CERT_NONE
    return context


def shown(connection: ssl.SSLObject | ssl.SSLSocket | None) -> bytes | None:
    """The DER that the other side of a connection has shown, with its key; None: none."""
    return connection.getpeercert(binary_form=True) if connection is not None else None


def is_other_certificate(error: BaseException) -> bool:
    """Whether a handshake failed since the other side is not who it should be."""
    return isinstance(error, ssl.SSLCertVerificationError)


def is_no_tls(error: BaseException) -> bool:
    """Whether it failed in another way of TLS: what listens there speaks something else."""
    return isinstance(error, ssl.SSLError) and not is_other_certificate(error)


def _context(protocol: int, own: TlsKey | None) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # A certificate that is trusted is an anchor, though it is nobody's authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if own is not None:
        context.load_cert_chain(own.path)
    return context


def _trust(context: ssl.SSLContext, host: str, certificate: bytes) -> None:
    check(certificate, host)
    context.load_verify_locations(cadata=certificate)
