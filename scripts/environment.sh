# What scripts/check, scripts/demo and scripts/day share: a clean environment, and .venv below the
# checkout. Sourced by bash, never run.
#
# Sets ROOT (the checkout) and VENV; an error is told on standard error, and the function fails.

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv

# A mailbox or a Python environment of the person who runs this must not reach what is started here,
# nor must tools ask or phone home.
unset "${!MBX_@}" 2>/dev/null
unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
export DEBIAN_FRONTEND=noninteractive

say() { printf '%s\n' "$*" >&2; }

apt_install() { # PACKAGE…: only where we are root and apt is there
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null || return 1
    apt-get update -q && apt-get install -qy --no-install-recommends "$@"
}

find_python() { # prints the path of the first Python that is new enough
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    say "no Python 3.11 or newer on the PATH"
    return 1
}

ensure_venv() { # leaves an environment that has pip alone
    local python
    "$VENV/bin/python" -m pip --version >/dev/null 2>&1 && return 0
    python=$(find_python) || return 1
    "$python" -m venv --clear "$VENV" 2>/dev/null && return 0
    apt_install python3-venv >/dev/null && # Debian packs venv apart
        "$python" -m venv --clear "$VENV" && return 0
    say "$python cannot make a virtual environment; install its venv package (python3-venv on Debian)"
    return 1
}

# --- enough to run mbx: the environment of scripts/check when it is there, else mbx alone ---------

_runs_this_checkout() { # with what pyproject.toml asks for
    "$VENV/bin/python" - "$ROOT" <<'PYTHON' >/dev/null 2>&1 && [ -x "$VENV/bin/mbx" ]
import sys
from importlib.metadata import distribution
from pathlib import Path

import aiosqlite, click, cryptography, mbx, orjson, uvloop

assert Path(mbx.__file__).parent.parent == Path(sys.argv[1])
assert distribution("mbx").version == mbx.__version__
PYTHON
}

_made_from() { # what an environment for mbx alone was made from
    printf '%s\n' "$ROOT"
    cksum <"$ROOT/pyproject.toml"
}

ensure_mbx() { # $VENV/bin/mbx is this checkout's mbx
    local stamp=$VENV/.mbx-demo
    _runs_this_checkout &&
        { [ -f "$VENV/.mbx-installed" ] || [ "$(_made_from)" = "$(cat "$stamp" 2>/dev/null)" ]; } &&
        return 0
    say "setting up .venv (once) …"
    ensure_venv && "$VENV/bin/python" -m pip install -q -e "$ROOT" </dev/null || return 1
    _made_from >"$stamp"
}
