"""The owner signs: shown, confirmed, passphrase, one use of the key.

Nothing is kept: no cache, no ticket, no "yes to all" (PROOF R32).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.keys import SigningKey, key_id
from mbx.core.record import ANY_AUDIENCE, Record, seal, verify
from mbx.core.text import visible
from mbx.owner.draft import TO_SIGN, Draft, Expected
from mbx.owner.keyfile import ROLE, SealedKey, WrongPassphrase
from mbx.owner.seclusion import seclude
from mbx.owner.terminal import Terminal, wipe

TRIES: Final = 3
"""Wrong answers to one question before the command ends."""

PASSPHRASE_MIN_CHARS: Final = 8
PASSPHRASE_SHORT_CHARS: Final = 12
"""Below this there is a warning: scrypt makes a guess dear, but few characters need few guesses."""


def sign(terminal: Terminal, draft: Draft, key: SealedKey, expected: Expected) -> Record:
    """The record of a draft that is what was expected, signed by the owner's one key.

    Raises MbxError as `present` and `unlock` do.
    """
    present(terminal, draft, expected)
    return signed(draft, [unlock(terminal, key)])


def present(
    terminal: Terminal, draft: Draft, expected: Expected, head: str = TO_SIGN
) -> Mapping[str, JsonValue]:
    """Show a draft and have the owner type its confirmation; its payload.

    `head`: what is to be done with it.

    Raises MbxError: conflict for what was not asked for, owner-required without agreement.
    """
    payload = draft.examine(expected)
    seclude()
    terminal.show(*draft.shown(payload, terminal.columns(), head))
    _confirm(terminal, draft.confirm)
    return payload


def unlock(terminal: Terminal, key: SealedKey, question: str = "Passphrase:") -> SigningKey:
    """The key, by the passphrase that is typed. Raises MbxError owner-locked after three tries."""
    return SigningKey.from_seed(unlock_seed(terminal, key, question))


def unlock_seed(terminal: Terminal, key: SealedKey, question: str) -> bytes:
    """As `unlock`, the secret itself: to be sealed under another passphrase."""
    seclude()
    for tried in range(1, TRIES + 1):
        passphrase = terminal.ask_hidden(question)
        try:
            return key.open(passphrase)
        except WrongPassphrase:
            terminal.show(f"Wrong ({tried} of {TRIES} tries): {visible(key.path)} stays closed.")
        finally:
            wipe(passphrase)
    raise MbxError(
        "owner-locked",
        f"{TRIES} wrong passphrases for {key.path}; nothing was signed",
        "try again; if the passphrase is right, the file was changed: put a copy of it back",
    )


def choose(terminal: Terminal) -> bytearray:
    """A new passphrase, typed twice; the caller wipes it. Raises MbxError owner-required."""
    seclude()
    for _ in range(TRIES):
        first = terminal.ask_hidden(f"New passphrase (at least {PASSPHRASE_MIN_CHARS} characters):")
        if refusal := _unfit(first):
            wipe(first)
            terminal.show(refusal)
            continue
        if _characters(first) < PASSPHRASE_SHORT_CHARS:
            terminal.show(
                f"Warning: shorter than {PASSPHRASE_SHORT_CHARS} characters. Whoever gets the key"
                " file can guess at it."
            )
        second = terminal.ask_hidden("The same again:")
        is_same = first == second
        wipe(second)
        if is_same:
            return first
        wipe(first)
        terminal.show("The two are not the same.")
    raise MbxError(
        "owner-required",
        f"no passphrase was chosen in {TRIES} tries; nothing was changed",
        "run the command again; several words make a good passphrase",
    )


def signed(draft: Draft, keys: Sequence[SigningKey]) -> Record:
    """The record of a draft that was shown, signed by each of the keys, and verified again."""
    signatures: dict[str, str] = {}
    signers: dict[str, bytes] = {}
    for key in keys:
        own_id = key_id(ROLE, key.public)
        sealed = seal(draft.kind, draft.payload.encode(), key)
        signatures |= sealed.record(own_id).signatures
        signers[own_id] = key.public
    record = Record(draft.kind, draft.payload, signatures)
    verify(record, kind=draft.kind, signers=signers, audience=ANY_AUDIENCE)
    return record


def _confirm(terminal: Terminal, word: str) -> None:
    for _ in range(TRIES):
        answer = terminal.ask(f"Type {word} to agree (Ctrl-C to leave):")
        if answer.strip() == word:
            return
        terminal.show(f"That is not {visible(word)}.")
    raise MbxError(
        "owner-required",
        "the record was not confirmed; nothing was signed",
        "run the command again and type what it asks for",
    )


def _unfit(passphrase: bytearray) -> str | None:
    count = _characters(passphrase)
    if count >= PASSPHRASE_MIN_CHARS:
        return None
    return f"Too short: {count} of at least {PASSPHRASE_MIN_CHARS} characters."


def _characters(passphrase: bytearray) -> int:
    """Characters of UTF-8 without decoding: bytes that do not continue another one."""
    return sum(byte & 0xC0 != 0x80 for byte in passphrase)
