"""The entry of `mbx` and `python -m mbx`: it chooses the face before anything heavy is loaded."""

import gc
import sys

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


def main() -> int:
    """Run the command line in `sys.argv`; the exit status of the process."""
    # One short command makes little garbage: looking for it while importing, and once more over all
    # modules at the end, took a sixth of the time of `mbx whoami`.
    gc.disable()
    try:
        from mbx.cli.main import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the imports are still going on
        status = INTERRUPTED
    gc.freeze()
    return status


if __name__ == "__main__":
    sys.exit(main())
