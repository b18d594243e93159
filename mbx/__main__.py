"""The entry of `mbx` and `python -m mbx`: it chooses the face before anything heavy is loaded."""

import gc
import sys


def main() -> int:
    """Run the command line in `sys.argv`; the exit status of the process."""
    # One short command makes little garbage: looking for it while importing, and once more over all
    # modules at the end, took a sixth of the time of `mbx whoami`.
    gc.disable()
    from mbx.cli.main import run

    status = run(sys.argv[1:])
    gc.freeze()
    return status


if __name__ == "__main__":
    sys.exit(main())
