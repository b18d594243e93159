"""Run a command with no network but the loopback interface (Linux): ``offline.py COMMAND…``.

The command gets a network namespace of its own in which only 127.0.0.1 is there: a client under
test can reach the fake model that was started inside, and nothing else. Works for root, and for
others where the system allows user namespaces.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000  # linux/sched.h
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h


def main() -> None:
    """Become the command, in a namespace of its own."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET if uid == 0 else _CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        why = os.strerror(ctypes.get_errno())
        sys.exit(f"offline: no network namespace can be made: {why}")
    if uid != 0:
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for path, text in maps.items():
            with open(f"/proc/self/{path}", "w", encoding="ascii") as file:
                file.write(text)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
