"""The entry of `mbx` and `python -m mbx`: it chooses the face before anything heavy is loaded."""

import gc
import os
import sys

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


def main() -> int:
    """Run the command line in `sys.argv`; the exit status of the process."""
    # One short command makes little garbage: looking for it while importing, and once more over all
    # modules at the end, took a sixth of the time of `mbx whoami`.
    gc.disable()
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while the imports are still going on
        status = INTERRUPTED
    gc.freeze()
    return status


def _run(arguments: list[str]) -> int:
    if arguments == ["mcp"]:  # before click is loaded: a client waits for it at each start
        from mbx.connector import main as connect

        gc.enable()  # it runs as long as its client
        return connect(os.environ)
    if arguments[:1] == ["hook"] and "--cli" in arguments and "--help" not in arguments:
        from mbx.hooks.events import main as hook

        return hook(arguments[1:], os.environ)
    if arguments[:1] == ["statusline"] and len(arguments) == 2 and arguments[1][:1] != "-":
        from mbx.hooks.statusline import main as show

        return show(arguments[1], os.environ)
    from mbx.cli.main import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
