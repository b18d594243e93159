"""One module for each case of docs/speed.md; `CASES` maps its name to the function that runs it."""

from collections.abc import Callable
from typing import Final

from benchmarks.cases import (
    disk,
    everyone,
    hooks,
    idle,
    inbox,
    lease,
    relay,
    restart,
    search,
    send,
    start,
    told,
    tools,
    toolsend,
    weight,
)
from benchmarks.report import Report
from benchmarks.workshop import Workshop

CASES: Final[dict[str, Callable[[Workshop, Report], None]]] = {
    "S1": send.run,
    "S3": toolsend.run,
    "S4": inbox.run,
    "S5": search.run,
    "S6": relay.run,
    "S7": told.run,
    "S8": start.run,
    "S9": hooks.run,
    "S10": hooks.run_printing,
    "S11": tools.run,
    "S12": weight.run,
    "S13": idle.run,
    "S14": lease.run,
    "S15": everyone.run,
    "S16": disk.run,
    "S17": restart.run,
    "S18": tools.paid,
}
"""In the order in which they are run."""
