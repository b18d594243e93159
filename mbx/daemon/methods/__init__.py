"""The methods of the local protocol: one table, from which `docs/protocol-local.md` is made."""

from types import MappingProxyType
from typing import Any, Final

from mbx.daemon.methods import (
    agents,
    audit,
    daemon,
    diagnosis,
    health,
    history,
    hooks,
    identity,
    mail,
    mailbox,
    owner,
    owners_mail,
    pairing,
    peers,
    policy,
    session,
    wake,
)
from mbx.daemon.methods.table import Method

METHODS: Final[MappingProxyType[str, Method[Any, Any]]] = MappingProxyType(
    {
        method.name: method
        for method in (
            *session.METHODS,
            *hooks.METHODS,
            *identity.METHODS,
            *mail.METHODS,
            *mailbox.METHODS,
            *owners_mail.METHODS,
            *owner.METHODS,
            *pairing.METHODS,
            *policy.METHODS,
            *peers.METHODS,
            *history.METHODS,
            *audit.METHODS,
            *agents.METHODS,
            *daemon.METHODS,
            *health.METHODS,
            *diagnosis.METHODS,
            *wake.METHODS,
        )
    }
)
"""Method name -> method."""
