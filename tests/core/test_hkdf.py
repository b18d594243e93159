"""HKDF: the published cases, the other implementation, and its bounds."""

import json

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import hkdf
from tests.support.vectors import VECTORS

CASES = json.loads((VECTORS / "rfc5869" / "hkdf-sha256.json").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_published_cases_come_out(case: dict[str, str]) -> None:
    secret, salt, purpose = (bytes.fromhex(case[name]) for name in ("ikm", "salt", "info"))
    wanted = bytes.fromhex(case["okm"])
    assert hkdf.tag(salt, secret).hex() == case["prk"]
    assert hkdf.derive(secret, salt, purpose, len(wanted)) == wanted


@given(
    secret=st.binary(max_size=80),
    salt=st.binary(max_size=80),
    purpose=st.binary(max_size=80),
    length=st.integers(1, 200),
)
def test_another_implementation_derives_the_same(
    secret: bytes, salt: bytes, purpose: bytes, length: int
) -> None:
    other = HKDF(SHA256(), length, salt, purpose).derive(secret)
    assert hkdf.derive(secret, salt, purpose, length) == other


@pytest.mark.parametrize(("length", "fits"), [(8159, True), (8160, True), (8161, False)])
def test_it_gives_no_more_than_its_counter_can_count(*, length: int, fits: bool) -> None:
    if fits:
        assert len(hkdf.derive(b"secret", b"", b"", length)) == length
    else:
        with pytest.raises(ValueError, match="8,160"):
            hkdf.derive(b"secret", b"", b"", length)


def test_only_equal_tags_are_the_same() -> None:
    tag = hkdf.tag(b"key", b"message")
    assert hkdf.is_same(tag, bytes(tag))
    assert not hkdf.is_same(tag, hkdf.tag(b"key", b"massage"))
    assert not hkdf.is_same(tag, tag[:-1])
