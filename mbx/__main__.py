"""The entry of `mbx` and `python -m mbx`: it chooses the face before anything heavy is loaded."""

import sys


def main() -> int:
    """Run the command line in `sys.argv`; the process exit status."""
    from mbx.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
