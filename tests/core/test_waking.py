"""Which copies wake."""

import pytest

from mbx.core.message import KINDS
from mbx.core.waking import notice, wakes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("needs_reply", [False, True])
def test_kinds_and_the_need_of_a_reply_wake_as_the_contract_says(
    kind: str, needs_reply: bool
) -> None:
    expected = kind in {"request", "task", "decision", "alert"} or (
        needs_reply and kind in {"message", "reply"}
    )
    assert wakes(kind, "hello", "ana", needs_reply=needs_reply, quiet=False) is expected


@pytest.mark.parametrize(
    ("body", "mentioned"),
    [
        ("@ana please", True),
        ("thanks (@ana)", True),
        ("ask @ana.", True),
        ("@ana's build", True),
        ("@anna please", False),
        ("@ana-dev please", False),
        ("mail ben@ana now", False),
        ("@@ana", False),
        ("@ana@desk", False),
        ("ana", False),
        ("", False),
    ],
)
def test_a_mention_is_a_word_of_its_own(body: str, mentioned: bool) -> None:
    assert wakes("message", body, "ana", needs_reply=False, quiet=False) is mentioned
    assert not wakes("status", body, "ana", needs_reply=True, quiet=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_quiet_copy_never_wakes(kind: str) -> None:
    assert not wakes(kind, "@ana", "ana", needs_reply=True, quiet=True)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "mbx: 1 message waits for ana; call mbx_inbox"),
        (2, "mbx: 2 messages wait for ana; call mbx_inbox"),
    ],
)
def test_the_words_that_wake_are_a_count_and_a_name(count: int, words: str) -> None:
    assert notice(count, "ana") == words
