"""Parameters: right types, within limits, nothing unknown."""

import pytest

from mbx.core.errors import MbxError
from mbx.core.limits import IDEMPOTENCY_KEY_MAX_CHARS, LIST_MAX_ROWS
from mbx.daemon.params import Params


def refused(code: str, given: object, read: str, *arguments: object, **named: object) -> str:
    with pytest.raises(MbxError) as caught:
        getattr(Params(given), read)(*arguments, **named)
    assert caught.value.code == code
    return caught.value.message


def test_absent_params_are_empty_and_a_list_is_refused() -> None:
    Params(None).finish()
    with pytest.raises(MbxError, match="must be an object"):
        Params([1])


def test_required_strings_are_required_and_strings() -> None:
    assert Params({"name": "x"}).string("name") == "x"
    for given in ({}, {"name": None}, {"name": 1}, {"name": ["x"]}):
        assert refused("usage", given, "string", "name").startswith("name is required")


def test_null_means_absent_for_optional_parameters() -> None:
    empty = Params({"a": None, "b": None, "c": None, "d": None, "e": None})
    assert empty.optional_string("a") is None
    assert empty.boolean("b") is False
    assert empty.integer("c", 5, 1, 9) == 5
    assert empty.strings("d", 3) == ()
    assert empty.choice("e", ("x",)) is None
    empty.finish()


@pytest.mark.parametrize("value", [0, LIST_MAX_ROWS + 1, True, 1.5, "5", [5]])
def test_a_limit_outside_its_range_or_type_is_refused(value: object) -> None:
    assert "from 1 to 200" in refused("usage", {"limit": value}, "rows")


@pytest.mark.parametrize("value", [1, LIST_MAX_ROWS - 1, LIST_MAX_ROWS])
def test_a_limit_within_its_range_is_taken(value: int) -> None:
    assert Params({"limit": value}).rows() == value


def test_a_single_string_is_a_list_of_one() -> None:
    assert Params({"to": "bob"}).strings("to", 3) == ("bob",)
    assert Params({"to": ["a", "b", "c"]}).strings("to", 3) == ("a", "b", "c")


def test_lists_too_long_of_wrong_things_or_empty_are_refused() -> None:
    assert "4 entries, 3 are allowed" in refused("too-many", {"to": ["x"] * 4}, "strings", "to", 3)
    refused("usage", {"to": [1]}, "strings", "to", 3)
    refused("usage", {"to": {"a": 1}}, "strings", "to", 3)
    refused("usage", {"to": []}, "strings", "to", 3, required=True)


def test_true_and_false_are_no_numbers_and_no_words() -> None:
    assert Params({"all": True}).boolean("all") is True
    refused("usage", {"all": 1}, "boolean", "all")
    refused("usage", {"all": "yes"}, "boolean", "all")


def test_a_choice_names_what_there_is() -> None:
    assert Params({"kind": "task"}).choice("kind", ("task", "alert")) == "task"
    assert "alert, task" in refused("usage", {"kind": "x"}, "choice", "kind", ("task", "alert"))


@pytest.mark.parametrize("key", ["", "k" * (IDEMPOTENCY_KEY_MAX_CHARS + 1), "é", "a\nb", "a\x7f"])
def test_a_key_out_of_form_is_refused(key: str) -> None:
    refused("text-invalid", {"key": key}, "key")


@pytest.mark.parametrize("length", [1, IDEMPOTENCY_KEY_MAX_CHARS - 1, IDEMPOTENCY_KEY_MAX_CHARS])
def test_a_key_within_its_limit_is_taken(length: int) -> None:
    assert Params({"key": "k" * length}).key() == "k" * length


def test_what_nobody_asked_for_is_refused_by_name() -> None:
    params = Params({"name": "x", "nmae": "y"})
    params.string("name")
    with pytest.raises(MbxError, match="unknown parameter 'nmae'"):
        params.finish()
