"""Addresses of hosts: each has one spelling, and what is none is refused by what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.endpoints import DEFAULT_PORT, Endpoint, is_of_a_network, is_spelled, parse_endpoint
from mbx.core.errors import MbxError
from mbx.core.limits import ENDPOINT_MAX_CHARS, HOST_NAME_MAX_CHARS

LONG_NAME = ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])


def refused(text: str, *, listening: bool = False) -> MbxError:
    with pytest.raises(MbxError) as caught:
        parse_endpoint(text, listening=listening)
    error = caught.value
    assert error.code == "usage"
    assert error.facts["field"] == "address"
    assert error.next_step
    assert error.message.isascii()
    return error


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        ("desk", f"desk:{DEFAULT_PORT}"),
        ("Desk.Local.", f"desk.local:{DEFAULT_PORT}"),
        ("desk:1", "desk:1"),
        ("desk:65535", "desk:65535"),
        ("xn--bcher-kva.example", f"xn--bcher-kva.example:{DEFAULT_PORT}"),
        ("3com.example:99", "3com.example:99"),
        ("192.168.1.20", f"192.168.1.20:{DEFAULT_PORT}"),
        ("127.0.0.1:5000", "127.0.0.1:5000"),
        ("::1", f"[::1]:{DEFAULT_PORT}"),
        ("[::1]", f"[::1]:{DEFAULT_PORT}"),
        ("[::1]:5000", "[::1]:5000"),
        ("2001:0DB8:0:0::0001", f"[2001:db8::1]:{DEFAULT_PORT}"),
        ("2001:db8::1:5000", f"[2001:db8::1:5000]:{DEFAULT_PORT}"),
        ("fe80::1%eth0", f"[fe80::1%eth0]:{DEFAULT_PORT}"),
        ("[FE80::1%wlp0s20f3.5]:7", "[fe80::1%wlp0s20f3.5]:7"),
    ],
)
def test_an_address_has_one_spelling_which_reads_back(typed: str, spelled: str) -> None:
    endpoint = parse_endpoint(typed)
    assert str(endpoint) == spelled
    assert parse_endpoint(spelled) == endpoint
    assert is_spelled(spelled, zoned=True)
    assert is_spelled(spelled) == (not endpoint.zone)
    assert is_spelled(typed, zoned=True) == (typed == spelled)


@pytest.mark.parametrize(
    ("reason", "texts"),
    [
        ("empty", [""]),
        (
            "character",
            [" desk", "desk ", "de sk", "desk\n", "\0", "bücher.de", "desk\u200b", "дом"],
        ),
        ("form", ["http://desk", "wss://desk:1/", "desk/x", "me@desk", "[::1", "[::1]x", "[::1]5"]),
        ("form", ["[desk]:1", "[127.0.0.1]:1", "[]:1"]),
        (
            "port",
            ["desk:", "desk:0", "desk:65536", "desk:99999", "desk:123456", "desk:-1", "desk:+1"],
        ),
        ("port", ["desk:01", "desk:1_0", "desk:1e3", "desk:0x1", "[::1]:", "[::1]:0", "1.2.3.4:x"]),
        (
            "name",
            ["-desk", "desk-", "a..b", ".desk", "a_b", "a" * 64, "de*sk", ":1", ".", "desk.."],
        ),
        (
            "address",
            ["1", "1.2.3", "1.2.3.256", "1.2.3.04", "0x7f.1", "127.1", "2130706433", "a.1"],
        ),
        ("address", ["1.2.3.4.", "0x7f000001", "::ffff:1.2.3.4", "[::ffff:102:304]:5", "1::2::3"]),
        (
            "address",
            [":::", "[:]", "g::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"],
        ),
        (
            "zone",
            [
                "fe80::1%",
                "2001:db8::1%eth0",
                "fe80::1%a b".replace(" ", "!"),
                "fe80::1%" + "e" * 16,
            ],
        ),
    ],
)
def test_what_is_no_address_is_refused_by_what_is_wrong(reason: str, texts: list[str]) -> None:
    for text in texts:
        assert refused(text).facts["reason"] == reason, text
        assert not is_spelled(text, zoned=True)


def test_the_next_step_says_what_to_write() -> None:
    assert refused("::ffff:10.0.0.1").next_step == "write 10.0.0.1"
    assert "xn--" in str(refused("bücher.de").next_step)
    assert str(DEFAULT_PORT) in str(refused("a:b").next_step)


def test_what_is_long_is_cut_in_the_refusal() -> None:
    assert len(refused("a_" * 100).message) < 250


@pytest.mark.parametrize(("chars", "fits"), [(252, True), (253, True), (254, False)])
def test_a_name_has_at_most_253_characters(*, chars: int, fits: bool) -> None:
    name = LONG_NAME[: chars - len(LONG_NAME)] if chars < len(LONG_NAME) else LONG_NAME
    name += "d" * (chars - len(name))
    assert len(name) == chars
    assert len(LONG_NAME) == HOST_NAME_MAX_CHARS
    if fits:
        assert parse_endpoint(f"{name}.:65535") == Endpoint(name, 65535)
    else:
        assert refused(name).facts["reason"] == "name"


@pytest.mark.parametrize(("chars", "reason"), [(-1, "port"), (0, "port"), (1, "length")])
def test_a_text_of_any_length_is_refused_before_it_is_looked_at(chars: int, reason: str) -> None:
    text = LONG_NAME + ":" + "9" * (ENDPOINT_MAX_CHARS - len(LONG_NAME) - 1 + chars)
    assert refused(text).facts["reason"] == reason


def test_a_listener_takes_every_address_of_the_machine_but_no_name() -> None:
    assert str(parse_endpoint("0.0.0.0", listening=True)) == f"0.0.0.0:{DEFAULT_PORT}"
    assert str(parse_endpoint("[::]:9", listening=True)) == "[::]:9"
    assert parse_endpoint("fe80::1%eth0", listening=True).zone == "eth0"
    assert "0.0.0.0" in str(refused("desk", listening=True).next_step)
    assert refused("224.0.0.1", listening=True).facts["reason"] == "address"


@given(st.text(max_size=40) | st.from_regex(r"\A[\[\]:.%a-f0-9x@/-]{0,40}\Z"))
def test_any_text_is_an_endpoint_with_one_spelling_or_refused(text: str) -> None:
    try:
        endpoint = parse_endpoint(text)
    except MbxError as error:
        assert error.code == "usage"  # noqa: PT017  (both outcomes are right)
    else:
        assert parse_endpoint(str(endpoint)) == endpoint
        assert is_spelled(str(endpoint), zoned=True)


def test_the_port_is_a_registered_one_outside_of_what_machines_give_away() -> None:
    assert 1_024 <= DEFAULT_PORT < 32_768


@pytest.mark.parametrize(
    ("text", "is_meant_alike"),
    [
        ("10.0.0.7:24629", True),
        ("203.0.113.9:1", True),
        ("[2001:db8::1]:24629", True),
        ("[fd00::20]:24629", True),
        ("127.0.0.1:24629", False),
        ("[::1]:24629", False),
        ("169.254.1.1:24629", False),
        ("[fe80::1]:24629", False),
        ("[fe80::1%eth0]:24629", False),
        ("lap.local:24629", False),
        ("localhost:24629", False),
    ],
)
def test_what_every_machine_means_alike(text: str, *, is_meant_alike: bool) -> None:
    assert is_of_a_network(text) is is_meant_alike
