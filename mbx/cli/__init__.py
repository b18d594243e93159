"""The `mbx` command: thin commands that ask the daemon and show what it answers."""
