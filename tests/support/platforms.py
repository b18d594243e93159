"""How a test starts a daemon that asks about processes as on a platform which is not Linux."""

from typing import Final

_PORTABLE: Final = (
    "import sys; from mbx.daemon import processes; from mbx.kernel import portable; "
    "processes.KERNEL = portable; "
    "from mbx.daemon.__main__ import main; sys.exit(main(sys.argv[1:]))"
)

PORTABLE_DAEMON: Final = ("-I", "-c", _PORTABLE)
"""Arguments of Python: replaced in the process that the test starts; mbx has no such option."""
