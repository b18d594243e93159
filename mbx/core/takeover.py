"""The owner's takeover: a signed compare-and-set on who holds an identity.

It names the epoch that it ends, so that a record made for one holder can never displace another:
takeover, claim, release and a reconnect may race freely.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue
from mbx.core.ids import is_id
from mbx.core.limits import (
    CLI_NAME_MAX_CHARS,
    NOTE_MAX_CHARS,
    SESSION_ID_MAX_CHARS,
    TAKEOVER_TTL_MS,
)
from mbx.core.record import RecordError
from mbx.core.text import check_line, check_text

_FIELDS: Final = frozenset(
    "v type iat nonce aud owner exp identity name epoch destination holder reason".split()
)


class Takeover(NamedTuple):
    """`identity` (its id) goes to the session (`cli`, `session`) if its lease is at `epoch`.

    `iat_ms`, `exp_ms`: ms UTC. `name`: of the moment, for people.
    """

    identity: str
    name: str
    epoch: int
    cli: str
    session: str
    reason: str
    iat_ms: int
    exp_ms: int


def payload(
    takeover: Takeover, holder: Mapping[str, JsonValue] | None, envelope: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """The payload to sign.

    `holder` is who is displaced, for the owner's eye; `envelope` has iat, nonce, aud, owner.
    """
    return {
        "v": 1,
        "type": "takeover",
        **envelope,
        "exp": takeover.exp_ms,
        "identity": takeover.identity,
        "name": takeover.name,
        "epoch": takeover.epoch,
        "destination": {"cli": takeover.cli, "session": takeover.session},
        "holder": dict(holder) if holder is not None else None,
        "reason": takeover.reason,
    }


def read(payload: Mapping[str, JsonValue]) -> Takeover:
    """The takeover of a payload whose signature is verified.

    Raises RecordError (step 6) for anything that is not exactly a takeover, MbxError for its texts.
    """
    if payload.keys() != _FIELDS:
        raise RecordError(6, "fields missing or unknown")
    destination, identity = payload["destination"], payload["identity"]
    epoch, iat_ms, exp_ms = payload["epoch"], payload["iat"], payload["exp"]
    if not is_id(identity):
        raise RecordError(6, "identity is not an id")
    if type(epoch) is not int or epoch < 0 or type(iat_ms) is not int or type(exp_ms) is not int:
        raise RecordError(6, "epoch or a time is not a whole number")
    if not 0 < exp_ms - iat_ms <= TAKEOVER_TTL_MS:
        raise RecordError(6, "a term of more than five minutes, or none")
    if not isinstance(destination, dict) or destination.keys() != {"cli", "session"}:
        raise RecordError(6, "destination is not a session")
    cli, session = destination["cli"], destination["session"]
    name, reason = payload["name"], payload["reason"]
    if not (
        isinstance(cli, str)
        and isinstance(session, str)
        and isinstance(name, str)
        and isinstance(reason, str)
    ):
        raise RecordError(6, "a text is missing")
    check_line("cli", cli, CLI_NAME_MAX_CHARS)
    check_line("session", session, SESSION_ID_MAX_CHARS)
    check_text("reason", reason, NOTE_MAX_CHARS)
    return Takeover(identity, name, epoch, cli, session, reason, iat_ms, exp_ms)
