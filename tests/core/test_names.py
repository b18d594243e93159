"""Names: the grammar, reserved words, look-alikes, generated names, addresses, suggestions."""

import json
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.errors import MbxError
from mbx.core.names import (
    RESERVED,
    Address,
    check_host_label,
    check_name,
    check_role,
    fold_host_label,
    parse_address,
    skeleton,
    suggest,
)

VECTORS: Final = Path(__file__).parent.parent / "vectors"
HOSTILE_NAMES: Final[list[str]] = json.loads((VECTORS / "hostile" / "names.json").read_text())
NAUGHTY: Final[list[str]] = json.loads((VECTORS / "blns" / "blns.json").read_text())
GRAMMAR: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,38}[a-z0-9]", re.ASCII)

FREE_THOUGH_ODD: Final = frozenset(
    ("con", "nul", "daemon", "api--dev", "xn--api", "0x10", "1e3", "null", "true")
)
"""Our verdict on what the strict grammar leaves of the hostile names: these are ordinary names.

No name of ours is ever a file name, a keyword of a config language or a DNS label.
"""
REFUSED_BY_MEANING: Final = frozenset(("owner", "0wner", "system", "mbx"))

CHECKS: Final = pytest.mark.parametrize("check", [check_name, check_host_label, check_role])
PROPER_CHECKS: Final = pytest.mark.parametrize("check", [check_name, check_host_label])
Check = Callable[[str], None]

labels = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=42)


def refusal(check: Callable[[str], object], value: str) -> MbxError:
    with pytest.raises(MbxError) as caught:
        check(value)
    assert caught.value.code == "name-invalid"
    assert caught.value.next_step
    message = caught.value.message
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 600
    return caught.value


@CHECKS
@pytest.mark.parametrize("name", ["ab", "api-dev", "b2", "2b", "a-b-c-d", "zoe", "x1234"])
def test_an_ordinary_label_is_accepted(check: Check, name: str) -> None:
    check(name)


@CHECKS
def test_a_label_has_2_to_40_characters(check: Check) -> None:
    refusal(check, "")
    refusal(check, "z")
    check("zz")
    check("zzz")
    check("z" * 39)
    check("z" * 40)
    assert refusal(check, "z" * 41).facts["reason"] == "length"
    refusal(check, "z" * 2_000_000)


@CHECKS
@pytest.mark.parametrize(
    "name", ["ab\n", "\nab", "ab\ncd", "a\u0661", "\u00e9a", "aB", "a_b", "a.b"]
)
def test_the_rule_is_about_the_whole_value_in_ascii(check: Check, name: str) -> None:
    assert refusal(check, name).facts["reason"] == "character"


@CHECKS
@pytest.mark.parametrize("name", ["-ab", "ab-", "--", "-"])
def test_a_hyphen_stands_inside_only(check: Check, name: str) -> None:
    refusal(check, name)


@PROPER_CHECKS
@pytest.mark.parametrize("word", sorted(RESERVED))
def test_reserved_words_and_their_look_alikes_are_refused(check: Check, word: str) -> None:
    assert refusal(check, word).facts["reason"] == "reserved"
    for twin in (word.replace("o", "0"), word.replace("l", "1"), word.replace("l", "i")):
        refusal(check, twin)
    for twin in (word.replace("m", "rn"), "-".join(word)):
        refusal(check, twin)


def test_the_reserved_words_are_those_of_the_contract() -> None:
    contract = "owner all everyone local host role lead none me you system mbx"
    assert set(contract.split()) == RESERVED


def test_the_refusal_of_a_look_alike_names_the_word_that_it_looks_like() -> None:
    error = refusal(check_name, "0wner")
    assert error.facts == {"field": "name", "reason": "look-alike"}
    assert "'owner'" in error.message


def test_a_role_may_be_a_reserved_word_since_it_never_stands_alone() -> None:
    for word in RESERVED:
        check_role(word)


@PROPER_CHECKS
@pytest.mark.parametrize(
    "name",
    [
        "12",
        "2026",
        "20-26",
        "abcdef12",
        "0abcdefa",
        "agent-3f2a9c81",
        "550e8400-e29b-41d4-a716-446655440000",
        "worker12345",
        "worker-123456",
    ],
)
def test_names_that_look_generated_are_refused(check: Check, name: str) -> None:
    assert refusal(check, name).facts["reason"] == "generated"


@PROPER_CHECKS
@pytest.mark.parametrize(
    "name",
    ["1a", "abcdef1", "abcdefab", "deadbeef", "worker1234", "12345a", "face-2024", "g2345678a"],
)
def test_names_just_short_of_looking_generated_are_accepted(check: Check, name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_each_hostile_name_has_its_verdict(name: str) -> None:
    if name in FREE_THOUGH_ODD:
        check_name(name)
        check_host_label(name)
        assert parse_address(name) == Address("name", name)
        return
    refusal(check_name, name)
    refusal(check_host_label, name)
    if name not in REFUSED_BY_MEANING:
        refusal(check_role, name)


def test_the_verdicts_cover_the_hostile_names() -> None:
    assert len(HOSTILE_NAMES) == 76
    assert {
        name for name in HOSTILE_NAMES if GRAMMAR.fullmatch(name)
    } == FREE_THOUGH_ODD | REFUSED_BY_MEANING


@pytest.mark.parametrize("text", [t for t in NAUGHTY if not GRAMMAR.fullmatch(t)])
def test_naughty_strings_are_no_names_and_their_refusal_is_harmless(text: str) -> None:
    refusal(check_name, text)
    if text != "*":
        refusal(parse_address, text)


def attempt(check: Callable[[str], object], value: str) -> MbxError | None:
    try:
        check(value)
    except MbxError as error:
        return error
    return None


@given(labels)
def test_a_refusal_says_a_name_that_would_pass_or_the_rule(value: str) -> None:
    error = attempt(check_role, value)
    if error is not None:
        said = str(error.next_step)
        assert said.startswith("use ") or "2 to 40 of a-z, 0-9 and hyphen" in said
        assert not said.startswith("use ") or attempt(check_role, said[4:]) is None


def test_a_refusal_shows_the_nearest_name_that_would_pass() -> None:
    assert refusal(check_name, "Api_Dev").next_step == "use api-dev"
    assert refusal(check_name, "\u00c9mile").next_step == "use emile"
    assert "U+005F" in refusal(check_name, "api_dev").message


def test_a_refusal_shows_a_letter_that_only_looks_latin() -> None:
    assert refusal(check_name, "\u0430pi-dev").message.startswith(
        "the name '\\u0430pi-dev' contains"
    )


def test_a_refusal_does_not_repeat_a_long_value() -> None:
    assert f"'{'z' * 40}'..." in refusal(check_name, "z" * 41).message


@pytest.mark.parametrize(
    ("address", "step"),
    [
        ("everyone", "write * for everyone"),
        ("all", "write * for everyone"),
        ("role", "write role:ROLE"),
        ("a", "mbx agents"),
        ("12345678", "mbx agents"),
        ("", "mbx agents"),
        ("Api Dev", "use api-dev"),
    ],
)
def test_who_is_looked_for_is_not_told_to_choose_a_name(address: str, step: str) -> None:
    assert refusal(parse_address, address).next_step == step


def test_a_refusal_never_proposes_a_look_alike_of_a_reserved_word() -> None:
    assert "use " not in str(refusal(check_name, "OWNER").next_step)


@pytest.mark.parametrize(
    ("left", "right"),
    [("owner", "0wner"), ("mail", "rnai1"), ("api-dev", "apidev"), ("r-n", "m"), ("bill", "b1ll")],
)
def test_look_alikes_have_one_skeleton(left: str, right: str) -> None:
    assert skeleton(left) == skeleton(right)


@given(labels)
def test_a_skeleton_is_its_own_skeleton_and_has_no_hyphen(name: str) -> None:
    once = skeleton(name)
    assert skeleton(once) == once
    assert not set("-01i") & set(once)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("bob", Address("name", "bob")),
        ("bob@box", Address("name", "bob", "box")),
        ("role:tester", Address("role", "tester")),
        ("role:lead", Address("role", "lead")),
        ("*", Address("everyone")),
        ("owner", Address("owner")),
        ("owner@box", Address("owner", host="box")),
        ("lead", Address("lead")),
    ],
)
def test_each_form_of_address_is_read_and_written_alike(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "bob@",
        "@box",
        "bob@box@peer",
        "bob@@box",
        "owner@box@peer",
        "lead@box",
        "role:tester@box",
        "role:",
        "role:role:x",
        "Role:tester",
        "*@box",
        "**",
        "OWNER",
        "0wner",
        "0wner@box",
        "bob@local",
        "bob@0wner",
        " bob",
        "bob ",
        "bob\n",
        "bob@box\n",
        "bob,eve",
        "bob@box please approve",
        "all",
        "everyone",
        "me",
        "@bob",
        "bob@box:7117",
    ],
)
def test_anything_else_is_no_address(text: str) -> None:
    refusal(parse_address, text)


def test_an_address_with_two_hosts_is_refused_as_such() -> None:
    error = refusal(parse_address, "bob@thishost@peer")
    assert error.facts["reason"] == "address"
    assert "more than one @" in error.message
    assert "role:ROLE" in error.message


@pytest.mark.parametrize("text", ["role:tester@box", "*@box", "role:@", "role:\x1b@box"])
def test_a_role_or_everybody_of_one_host_is_refused_as_such(text: str) -> None:
    error = refusal(parse_address, text)
    assert error.facts["reason"] == "address"
    assert "roles and * reach all hosts" in error.message
    assert error.next_step == "leave the host out, or name each one there: mbx agents"


@pytest.mark.parametrize(
    "text", ["@box", "bob@", "bob@b", "role:", "0wner", "bob@local", "bob@\u0430"]
)
def test_whoever_writes_to_nobody_is_not_told_to_choose_a_name(text: str) -> None:
    assert refusal(parse_address, text).next_step == "mbx agents"


def test_an_address_that_is_nearly_one_is_corrected() -> None:
    assert refusal(parse_address, "bob@Box").next_step == "use box"


@given(st.one_of(st.text(max_size=60), labels, st.from_regex(r"(role:)?[a-z@*:-]{1,12}")))
def test_what_parses_as_an_address_is_written_as_it_was_read(text: str) -> None:
    error = attempt(parse_address, text)
    if error is None:
        assert str(parse_address(text)) == text
    else:
        assert error.code == "name-invalid"


KNOWN: Final = ["api-dev", "api-test", "ui-dev", "docs", "reviewer", "zed"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("api-dv", ["api-dev"]),
        ("apidev", ["api-dev"]),
        ("ip-dev", ["api-dev", "ui-dev"]),
        ("Api-Dev", ["api-dev", "ui-dev"]),
        ("aip-dev", ["api-dev", "ui-dev"]),
        ("api", ["api-dev", "api-test"]),
        ("reviewer-two", ["reviewer"]),
        ("dosc", ["docs"]),
        ("ze", ["zed"]),
        ("ezd", ["zed"]),
        ("nobody", []),
        ("", []),
        ("d", []),
        ("x" * 100_000, []),
    ],
)
def test_suggestions_are_the_names_that_may_have_been_meant(wanted: str, found: list[str]) -> None:
    assert suggest(wanted, KNOWN) == found
    assert suggest(wanted, reversed(KNOWN)) == found


def test_at_most_three_names_are_suggested_and_never_the_name_itself() -> None:
    assert suggest("aa", ["aa", "ab", "ac", "ad", "ae", "ab"]) == ["ab", "ac", "ad"]


def test_suggestions_hold_no_name_that_breaks_the_grammar() -> None:
    assert suggest("bob", ["bob\x1b[2J", "bob ", "BOB", "bo\u0431", "bobby"]) == ["bobby"]


@given(st.text(max_size=12), st.lists(st.one_of(labels, st.text(max_size=12)), max_size=12))
def test_suggestions_are_few_known_proper_and_repeatable(wanted: str, known: list[str]) -> None:
    found = suggest(wanted, known)
    assert found == suggest(wanted, sorted(set(known)))
    assert len(found) <= 3
    assert all(name in known and GRAMMAR.fullmatch(name) for name in found)


@given(st.from_regex(r"[a-z]{4,12}", fullmatch=True), st.data())
def test_one_slip_of_any_sort_is_always_recognised(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(name) - 2))
    letter = data.draw(st.sampled_from("qz9"))
    head, tail = name[:place], name[place:]
    slips = [head + tail[1:], head + letter + tail, head + letter + tail[1:]]
    slips.append(head + tail[1] + tail[0] + tail[2:])
    for slip in slips:
        assert slip == name or suggest(slip, [name]) == [name]


def test_a_long_list_of_names_that_are_alike_yields_the_nearest() -> None:
    known = [f"reviewer-{number}" for number in range(1_000)]
    assert suggest("reviewer-10x", known) == ["reviewer-10", "reviewer-100", "reviewer-101"]


@pytest.mark.parametrize(
    ("hostname", "label"),
    [
        ("box", "box"),
        ("Build-01.lan.example", "build-01"),
        ("Johns-MacBook-Pro.local", "johns-macbook-pro"),
        ("my_host name", "my-host-name"),
        ("Zo\u00eb", "zoe"),
        ("localhost", "localhost"),
        ("", "machine"),
        ("x", "machine"),
        ("local", "machine"),
        ("3f2a9c81d4e5", "machine"),
        ("10.0.0.1", "machine"),
        ("\u673a\u5668", "machine"),
        ("a" * 39 + "-b", "a" * 39),
        ("a" * 300, "a" * 40),
    ],
)
def test_a_hostname_is_folded_to_a_label(hostname: str, label: str) -> None:
    assert fold_host_label(hostname) == label


@given(st.text(max_size=80))
def test_every_hostname_folds_to_a_proper_label(hostname: str) -> None:
    check_host_label(fold_host_label(hostname))
