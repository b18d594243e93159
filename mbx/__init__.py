"""mbx: a signed mailbox with leased identities for the AI coding agents of paired machines."""

__version__ = "0.1.0"

PROTOCOL = 1
"""The version of the local protocol: hello compares it; a link between hosts has its own."""
