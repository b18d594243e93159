"""Keys: the published Ed25519 vectors with their figures, small orders worked out, derived ids."""

import copy
import hashlib
import json
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from mbx.core import keys
from mbx.core.keys import ROLES, SigningKey, crockford, is_strong_public_key, key_id, verify

VECTORS = Path(__file__).parents[1] / "vectors"
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz"


class Case(NamedTuple):
    """One published signature."""

    public: bytes
    signature: bytes
    message: bytes
    valid: bool = False
    flags: tuple[str, ...] = ()


def load(path: str) -> Any:
    return json.loads((VECTORS / path).read_bytes())


def wycheproof() -> list[Case]:
    return [
        Case(
            bytes.fromhex(group["publicKey"]["pk"]),
            bytes.fromhex(test["sig"]),
            bytes.fromhex(test["msg"]),
            test["result"] == "valid",
        )
        for group in load("wycheproof/ed25519_test.json")["testGroups"]
        for test in group["tests"]
    ]


def edge_cases() -> list[Case]:
    return [
        Case(
            bytes.fromhex(case["key"]),
            bytes.fromhex(case["sig"]),
            case["msg"].encode(),
            flags=tuple(case["flags"] or ()),
        )
        for case in load("cctv-ed25519/ed25519vectors.json")
    ]


def speccheck() -> list[Case]:
    return [
        Case(
            bytes.fromhex(case["pub_key"]),
            bytes.fromhex(case["signature"]),
            bytes.fromhex(case["message"]),
        )
        for case in load("speccheck/cases.json")
    ]


def verify_plainly(public: bytes, signature: bytes, message: bytes) -> bool:
    """What the library says without our check."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


Verifier = Callable[[bytes, bytes, bytes], bool]
both_verifiers = pytest.mark.parametrize("check", [verify, verify_plainly])


def accepted(check: Verifier, cases: list[Case]) -> list[Case]:
    return [case for case in cases if check(case.public, case.signature, case.message)]


# --- published vectors ---------------------------------------------------------------------------


@both_verifiers
def test_all_151_wycheproof_cases_agree(check: Verifier) -> None:
    cases = wycheproof()
    assert Counter(case.valid for case in cases) == {True: 88, False: 63}
    for case in cases:
        assert check(case.public, case.signature, case.message) is case.valid


def test_of_914_edge_cases_43_pass_the_strict_rules_and_none_is_of_small_order() -> None:
    cases = edge_cases()
    passed = accepted(verify, cases)
    flags = Counter(flag for case in passed for flag in case.flags)
    assert (len(cases), len(passed)) == (914, 43)
    assert flags["low_order_component_A"] == 42
    assert flags["low_order_component_R"] == 35
    assert sum(not case.flags for case in passed) == 1
    forbidden = {"low_order_A", "low_order_R", "non_canonical_A", "non_canonical_R"}
    assert forbidden.isdisjoint(flags)


def test_of_914_edge_cases_the_library_alone_accepts_208() -> None:
    """The reason for our check; if these figures move, the library has changed its rules."""
    flags = Counter(
        flag for case in accepted(verify_plainly, edge_cases()) for flag in set(case.flags)
    )
    assert len(accepted(verify_plainly, edge_cases())) == 208
    assert flags["low_order_A"] == 122
    assert flags["low_order_R"] == 99
    assert flags["non_canonical_A"] == 36


def test_of_the_12_speccheck_cases_only_number_3_passes() -> None:
    cases = speccheck()
    assert len(cases) == 12
    assert [cases.index(case) for case in accepted(verify, cases)] == [3]
    assert [cases.index(case) for case in accepted(verify_plainly, cases)] == [0, 1, 2, 3, 11]


def test_the_five_signatures_of_rfc_8032_are_made_and_verified() -> None:
    tests = load("rfc8032/ed25519.json")["tests"]
    assert len(tests) == 5
    for test in tests:
        secret, public, message, signature = (
            bytes.fromhex(test[name]) for name in ("secret", "public", "message", "signature")
        )
        key = SigningKey.from_seed(secret)
        assert key.public == public
        assert key.sign(message) == signature
        assert verify(public, signature, message)
        assert not verify(public, signature, message + b"x")


# --- small orders, worked out with a second implementation of the curve --------------------------

D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]


def add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + product, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P,
    )


def root(square: int) -> int | None:
    """A square root modulo P, where there is one."""
    candidate = pow(square, (P + 3) // 8, P)
    for found in (candidate, candidate * pow(2, (P - 1) // 4, P) % P):
        if found * found % P == square % P:
            return found
    return None


def points_of_small_order() -> set[Point]:
    """The eight points whose order divides 8: those that L times any point leaves behind."""
    found: set[Point] = {(0, 1)}
    y = 2
    while len(found) < 8:
        x = root((y * y - 1) * pow(D * y * y + 1, -1, P))
        if x is not None:
            rest = multiple(L, (x, y))
            found |= {multiple(count, rest) for count in range(8)}
        y += 1
    return found


def multiple(count: int, point: Point) -> Point:
    total: Point = (0, 1)
    while count:
        if count & 1:
            total = add(total, point)
        point, count = add(point, point), count >> 1
    return total


def encodings(y: int) -> list[bytes]:
    """All 32 bytes that a lenient reader takes for y: both signs, and y + P where it fits."""
    return [
        (number | sign << 255).to_bytes(32, "little")
        for number in (y, y + P)
        if number < 2**255
        for sign in (0, 1)
    ]


def test_every_encoding_of_every_point_of_small_order_is_refused() -> None:
    ys = {y for _, y in points_of_small_order()}
    weak = {encoded for y in ys for encoded in encodings(y)}
    assert (len(ys), len(weak)) == (5, 14)
    honest = SigningKey.from_seed(bytes(32))
    s = honest.sign(b"m")[32:]
    for encoded in weak:
        assert not is_strong_public_key(encoded)
        assert not verify(encoded, encoded + bytes(32), b"m")
        assert not verify(honest.public, encoded + s, b"m")


@pytest.mark.parametrize("sign", [0, 1])
def test_y_must_be_below_the_prime(sign: int) -> None:
    for y, strong in [
        (P - 3, True),
        (P - 2, True),
        (P, False),
        (P + 2, False),
        (2**255 - 1, False),
    ]:
        encoded = (y | sign << 255).to_bytes(32, "little")
        assert is_strong_public_key(encoded) is strong
    for y in (0, 1, P - 1):
        assert not is_strong_public_key((y | sign << 255).to_bytes(32, "little"))


def test_the_second_half_of_a_signature_must_be_below_the_order() -> None:
    key = SigningKey.from_seed(b"\x07" * 32)
    signature = key.sign(b"m")
    s = int.from_bytes(signature[32:], "little")
    assert verify(key.public, signature, b"m")
    for other in (s + L, L, L + 1, 2**256 - 1, L - 1, s - 1, s + 1, 0):
        assert not verify(key.public, signature[:32] + other.to_bytes(32, "little"), b"m")


def test_the_library_is_never_asked_about_what_the_strict_rules_refuse() -> None:
    """Also where it would refuse by itself, as OpenSSL does for S: another one may not."""
    key = SigningKey.from_seed(b"\x07" * 32)
    r = key.sign(b"m")[:32]
    weak = bytes(32)
    for s, may in [(0, True), (L - 1, True), (L, False), (L + 1, False), (2**256 - 1, False)]:
        s_bytes = s.to_bytes(32, "little")
        assert keys._may_be_asked(key.public, r + s_bytes) is may
        assert not keys._may_be_asked(weak, r + s_bytes)
        assert not keys._may_be_asked(key.public, weak + s_bytes)
        assert not keys._may_be_asked(key.public, r + s_bytes + b"\0")


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_public_keys_have_32_bytes(length: int) -> None:
    key = SigningKey.from_seed(b"\x07" * 32)
    public = (key.public * 2)[:length]
    assert not is_strong_public_key(public)
    assert not verify(public, key.sign(b"m"), b"m")
    with pytest.raises(ValueError, match="32 bytes"):
        key_id("host", public)


@pytest.mark.parametrize("length", [0, 32, 63, 65, 128])
def test_signatures_have_64_bytes(length: int) -> None:
    key = SigningKey.from_seed(b"\x07" * 32)
    assert not verify(key.public, (key.sign(b"m") * 2)[:length], b"m")


def test_a_key_off_the_curve_verifies_nothing() -> None:
    key = SigningKey.from_seed(b"\x07" * 32)
    off = (2).to_bytes(32, "little")
    assert root((4 - 1) * pow(D * 4 + 1, -1, P)) is None
    assert is_strong_public_key(off)
    assert not verify(off, key.sign(b"m"), b"m")


@given(st.binary(max_size=40), st.binary(max_size=70), st.binary(max_size=8))
def test_no_bytes_make_the_verifier_raise(public: bytes, signature: bytes, message: bytes) -> None:
    assert verify(public, signature, message) is False


# --- signing keys --------------------------------------------------------------------------------


def test_a_signing_key_never_shows_its_secret() -> None:
    seed = hashlib.sha256(b"a secret").digest()
    key = SigningKey.from_seed(seed)
    shown = f"{key!r} {key} {[key]}"
    assert key.public.hex() in shown
    assert seed.hex() not in shown
    assert repr(seed) not in shown
    assert not hasattr(key, "__dict__")
    with pytest.raises(TypeError):
        pickle.dumps(key)
    with pytest.raises(TypeError):
        json.dumps(key)
    assert copy.copy(key).sign(b"m") == key.sign(b"m")


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_seed_has_32_bytes_and_a_refusal_does_not_show_it(length: int) -> None:
    seed = b"S" * length
    with pytest.raises(ValueError, match="32 bytes") as caught:
        SigningKey.from_seed(seed)
    assert "SS" not in str(caught.value)


# --- ids -----------------------------------------------------------------------------------------


def digits(raw: bytes) -> str:
    """The first 130 bits, five at a time, from their text of zeros and ones."""
    bits = "".join(f"{byte:08b}" for byte in raw).ljust(130, "0")
    return "".join(CROCKFORD[int(bits[at : at + 5], 2)] for at in range(0, 130, 5))


@given(st.binary(min_size=16, max_size=64))
def test_crockford_shows_the_first_130_bits(raw: bytes) -> None:
    assert crockford(raw) == digits(raw)
    assert len(crockford(raw)) == 26
    assert set(crockford(raw)) <= set(CROCKFORD)


def test_crockford_is_spelled_as_its_alphabet_says() -> None:
    assert crockford(bytes(16)) == "0" * 26
    assert crockford(b"\xff" * 17) == "z" * 26
    assert crockford(b"\xff" * 16) == "z" * 25 + "w"
    assert crockford(bytes.fromhex("00443214c74254b635cf84653a56d7c675be77df")) == CROCKFORD[:26]


def test_crockford_needs_128_bits() -> None:
    for length in (0, 15):
        with pytest.raises(ValueError, match="128 bits"):
            crockford(bytes(length))
    for length in (16, 17, 18):
        assert len(crockford(bytes(length))) == 26


def test_ids_that_differ_only_beyond_130_bits_look_alike_and_before_it_do_not() -> None:
    base = bytearray(32)
    assert crockford(bytes(base)) == crockford(bytes(16) + b"\x3f" + b"\xff" * 15)
    assert crockford(bytes(base)) != crockford(bytes(16) + b"\x40" + bytes(15))


@pytest.mark.parametrize("role", ROLES)
def test_a_key_id_is_the_hash_of_role_and_key(role: str) -> None:
    public = SigningKey.from_seed(b"\x07" * 32).public
    hashed = hashlib.sha256(b"mbx-key/1\0" + role.encode() + b"\0" + public).digest()
    assert key_id(role, public) == digits(hashed)


def test_key_ids_differ_by_role_and_by_key() -> None:
    publics = [SigningKey.from_seed(bytes([number]) * 32).public for number in range(5)]
    assert len({key_id(role, public) for role in ROLES for public in publics}) == 15


@pytest.mark.parametrize("role", ["", "Host", "host\0", "agent"])
def test_a_key_has_one_of_the_known_roles(role: str) -> None:
    with pytest.raises(ValueError, match="role"):
        key_id(role, SigningKey.from_seed(b"\x07" * 32).public)
