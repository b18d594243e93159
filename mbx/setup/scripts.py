"""Where setup gets what hooks run: one function of `mbx.hooks`, joined here and nowhere else."""

from typing import Final

from mbx.setup.client import Scripts
from mbx.setup.entries import Installation

HAS_HOOK_TOOL: Final = False
"""Whether the MCP server of this version has `mbx_hook`, so that hooks can do without a process."""


def scripts_for(installation: Installation) -> Scripts | None:
    """What the hooks of an installation run; None where this version has no hooks."""
    del installation
    return None
