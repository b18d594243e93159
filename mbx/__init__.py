"""mbx: a signed mailbox with leased identities for the AI coding agents of paired machines."""

__version__ = "0.1.0"
