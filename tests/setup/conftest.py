"""A home folder with agent CLIs in it, and an installation of mbx to enter there."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from mbx.core.clients import HOOK_SCRIPT, STATUS_LINE_SCRIPT
from mbx.setup import installer
from mbx.setup.client import Machine, Scripts
from mbx.setup.clients import CLIENTS
from mbx.setup.entries import Installation
from mbx.setup.installer import Plan, Setting
from mbx.setup.ledger import Ledger

FOLDERS = {
    "claude": ".claude",
    "codex": ".codex",
    "opencode": ".config/opencode",
    "gemini": ".gemini",
    "kimi": ".kimi-code",
    "kimi-cli": ".kimi",
    "qwen": ".qwen",
    "copilot": ".copilot",
}


class Place:
    """A user's home below a folder, and mbx's own beside it."""

    def __init__(self, folder: Path, *, name: str = "mbx") -> None:
        self.user = folder / "user"
        self.user.mkdir(exist_ok=True)
        self.home = folder / name
        self.home.mkdir(mode=0o700, exist_ok=True)
        self.environ: dict[str, str] = {"HOME": str(self.user), "PATH": str(folder / "bin")}
        self.installation = Installation(
            ("/opt/mbx/bin/mbx",),
            os.path.realpath(self.home),
            {"MBX_HOME": os.path.realpath(self.home)},
            str(self.user / ".local/share/mbx"),
        )
        folder_of_scripts = self.home / "bin"
        self.scripts = Scripts(
            {
                str(folder_of_scripts / HOOK_SCRIPT): "# written by mbx setup\nexit 0\n",
                str(folder_of_scripts / STATUS_LINE_SCRIPT): "# written by mbx setup\nexit 0\n",
            },
            "export const Mbx = async () => ({})\n",
        )

    def clients(self, *names: str) -> None:
        """Let clients be here, as people who once started them have them."""
        for name in names or FOLDERS:
            (self.user / FOLDERS[name]).mkdir(parents=True, exist_ok=True)

    @property
    def setting(self) -> Setting:
        """What setup is given."""
        machine = Machine(self.environ, str(self.user))
        return Setting(machine, self.installation, self.scripts, os.geteuid())

    def plan(self, *only: str, installing: bool = True) -> Plan:
        """What would happen."""
        ledger = Ledger(str(self.home))
        return installer.plan(self.setting, ledger, only, installing=installing)

    def run(self, *only: str, installing: bool = True) -> Plan:
        """Setup, or taking it out."""
        ledger = Ledger(str(self.home))
        ledger.lock()
        plan = installer.plan(self.setting, ledger, only, installing=installing)
        done = installer.carry_out(plan, self.setting, ledger)
        ledger.unlock()
        return done

    def take_out(self, *only: str) -> Plan:
        """Setup --uninstall."""
        return self.run(*only, installing=False)

    def seen(self) -> Mapping[str, tuple[bytes, int]]:
        """Every file of the user with its bytes and mode."""
        found = [path for path in self.user.rglob("*") if path.is_file()]
        return {
            str(path.relative_to(self.user)): (path.read_bytes(), path.stat().st_mode)
            for path in found
        }


def acts(plan: Plan) -> dict[str, str]:
    """What became of each file, by its name."""
    return {
        os.path.basename(change.path): change.act
        for client in plan.clients
        for change in client.changes
    }


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A home with no client in it."""
    return Place(tmp_path)


assert FOLDERS.keys() == {client.name for client in CLIENTS}
