"""Real agent clients, each in a home of its own that points it at the fake model.

`Client.prepare` writes only what a client needs to talk to the fake model without asking anybody
anything: provider, key, trust. What registers mbx comes after it: `mbx setup`, run with the
session's environment, or for one server alone `Session.add_mcp`. Both add to what is there.

Which packages a client is made of stands with it, at the version that the tests were written for;
`tests.clients.install` fetches them.
"""

import json
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.clients.apis import Json

PLACE: Final = "MBX_TEST_CLIENTS"
"""The variable that names the folder in which the clients are installed."""

RUN_S: Final = 90.0
"""A client that is given one prompt may take so long; the slowest takes five seconds."""


def edit_json(path: Path, change: Callable[[Json], Any]) -> None:
    """Change a JSON file in place, or make it."""
    told = json.loads(path.read_text()) if path.exists() else {}
    change(told)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=2) + "\n")


def add_text(path: Path, text: str) -> None:
    """Add a paragraph to a file, or make it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(text.strip("\n") + "\n\n")


def toml(value: Any) -> str:
    """A string, number, list of strings or flat table as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


@dataclass
class Session:
    """A client in a home of its own, pointed at a fake model."""

    client: "Client"
    home: Path
    work: Path
    url: str
    env: dict[str, str]

    def add_mcp(self, name: str, command: list[str], env: Mapping[str, str]) -> None:
        """Register an MCP server over stdio for all projects."""
        self.client.add_mcp(self, name, command, dict(env))

    def interactive(self) -> list[str]:
        """The command line of the client at a terminal."""
        return self.client.argv(self, None)

    def run(self, prompt: str, *more: str) -> str:
        """Give the client one prompt and wait for its end; what it printed."""
        return self._run([*self.client.argv(self, prompt), *more])

    def resume(self, prompt: str) -> str:
        """Go on with the newest conversation of the folder, in a new process."""
        return self._run(self.client.resuming(self, prompt))

    def _run(self, argv: list[str]) -> str:
        with self._started(argv) as process:
            out, errors = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, f"exit {process.returncode}: {out[-2000:]}{errors[-2000:]}"
        return str(out)

    @contextmanager
    def running(self, prompt: str, *more: str) -> Iterator["subprocess.Popen[str]"]:
        """A client that works at one prompt; what is left of it at the end is killed."""
        with self._started([*self.client.argv(self, prompt), *more]) as process:
            yield process

    @contextmanager
    def _started(self, argv: list[str]) -> Iterator["subprocess.Popen[str]"]:
        process = subprocess.Popen(
            argv,
            cwd=self.work,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait(RUN_S)
            for end in (process.stdout, process.stderr):
                if end is not None:
                    end.close()


class Client(ABC):
    """What the clients have in common."""

    name: ClassVar[str]
    """The folder that it is installed in, and its name in reports."""
    packages: ClassVar[tuple[str, ...]]
    """What it is made of: npm packages at exact versions."""
    binary: ClassVar[str]
    """The program below that folder; a * stands for the platform."""
    cli: ClassVar[str] = ""
    """What mbx calls it, where that is not its name."""
    shows: ClassVar[str]
    """Which part of a tool result its model is shown: structured, text or both."""
    ready: ClassVar[str] = ""
    """What its screen shows when it takes input."""
    asks: ClassVar[str] = ""
    """What it may ask before; Enter says yes."""
    fresh: ClassVar[str] = "/clear"
    """What a human types to begin a new conversation in the same process."""

    def folder(self) -> Path:
        """Where the clients are installed."""
        return Path(os.environ.get(PLACE, ".clients")).resolve()

    def executable(self) -> str | None:
        """The program, if it is installed."""
        found = self.folder().joinpath(self.name).glob(self.binary)
        return next((str(path) for path in sorted(found, key=lambda one: len(str(one)))), None)

    def version(self) -> str:
        """The version of its first package."""
        return self.packages[0].rpartition("@")[2]

    def known_as(self) -> str:
        """What mbx calls a session of it."""
        return self.cli or self.name

    def path(self) -> str:
        """The PATH that it runs with: the Node that was installed first."""
        node = [str(path) for path in self.folder().glob("node/node_modules/node-*/bin")]
        return os.pathsep.join([*node, os.environ.get("PATH", os.defpath)])

    def prepare(self, folder: Path, url: str, work: Path | None = None) -> Session:
        """A session in a home below `folder`, working in `work` (a folder beside the home)."""
        home, work = folder / "home", work or folder / "work"
        home.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        env = {
            "HOME": str(home),
            "PATH": self.path(),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        session = Session(self, home, work, url.rstrip("/"), env)
        self.setup(session)
        return session

    def program(self) -> str:
        """The program of an installed client."""
        found = self.executable()
        assert found is not None, f"{self.name} is not installed"
        return found

    @abstractmethod
    def setup(self, s: Session) -> None:
        """Write what the client needs to talk to the fake model."""

    @abstractmethod
    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        """See `Session.add_mcp`."""

    @abstractmethod
    def argv(self, s: Session, prompt: str | None) -> list[str]:
        """The command line: for one prompt, or without one of the client at a terminal."""

    def resuming(self, s: Session, prompt: str) -> list[str]:
        """The command line that goes on with the newest conversation of the folder."""
        return [*self.argv(s, prompt), "--continue"]


class Claude(Client):
    """Claude Code."""

    name = "claude"
    packages = ("@anthropic-ai/claude-code@2.1.332",)
    binary = "node_modules/@anthropic-ai/claude-code-*/claude"
    shows = "structured"
    ready = "❯"

    def setup(self, s: Session) -> None:
        s.env |= {
            "ANTHROPIC_BASE_URL": s.url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        state = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": ["dummy"], "rejected": []},
            "projects": {
                str(s.work): {
                    "hasTrustDialogAccepted": True,
                    "hasCompletedProjectOnboarding": True,
                }
            },
        }
        edit_json(s.home / ".claude.json", lambda told: told.update(state))
        # What mbx setup leaves to the user: whether the tools may run without a question.
        allowed = {"permissions": {"allow": ["mcp__mbx__*"]}}
        edit_json(s.home / ".claude" / "settings.json", lambda told: told.update(allowed))

    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        entry = {"type": "stdio", "command": command[0], "args": command[1:], "env": env}
        edit_json(
            s.home / ".claude.json",
            lambda told: told.setdefault("mcpServers", {}).update({name: entry}),
        )

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        tail = ["-p", prompt] if prompt else []
        return [self.program(), "--model", "claude-sonnet-5", *tail]


class Codex(Client):
    """Codex."""

    name = "codex"
    packages = ("@openai/codex@0.171.0",)
    binary = "node_modules/.bin/codex"
    shows = "structured"
    ready = "Ask Codex to do anything"

    def setup(self, s: Session) -> None:
        # Without the first table each run waits 5 s at its end for a service that is not there;
        # without the second one the client at a terminal leaves a daemon behind.
        add_text(
            s.home / ".codex" / "config.toml",
            f"""
model = "fake-model"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false

[analytics]
enabled = false

[features]
daemon_auto_start = false

[model_providers.fake]
name = "fake"
base_url = {toml(s.url + "/v1")}
wire_api = "responses"

[projects.{toml(str(s.work))}]
trust_level = "trusted"
""",
        )

    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        # required: the first turn waits for the server, however slow the machine is.
        add_text(
            s.home / ".codex" / "config.toml",
            f"""
[mcp_servers.{toml(name)}]
command = {toml(command[0])}
args = {toml(command[1:])}
env = {toml(env)}
required = true
""",
        )

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        trust = "--dangerously-bypass-hook-trust"  # else hooks wait for a person's review
        tail = ["exec", trust, "--skip-git-repo-check", prompt] if prompt else [trust]
        return [self.program(), *tail]

    def resuming(self, s: Session, prompt: str) -> list[str]:
        trust = "--dangerously-bypass-hook-trust"
        flags = [trust, "--skip-git-repo-check"]
        return [self.program(), "exec", *flags, "resume", "--last", prompt]


class OpenCode(Client):
    """OpenCode."""

    name = "opencode"
    packages = ("opencode-ai@1.18.33", "@opencode-ai/plugin@1.18.33")
    binary = "node_modules/opencode-*/bin/opencode"
    shows = "text"
    ready = "Ask anything"
    fresh = "/new"

    def setup(self, s: Session) -> None:
        s.env |= {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
        config = s.home / ".config" / "opencode"
        model = {"name": "Fake", "limit": {"context": 200_000, "output": 8_000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Fake",
            "options": {"baseURL": s.url + "/v1", "apiKey": "dummy"},
            "models": {"fake-model": model},
        }
        base = {
            "model": "fake/fake-model",
            "small_model": "fake/fake-model",
            "autoupdate": False,
            "share": "disabled",
            "provider": {"fake": provider},
        }
        edit_json(config / "opencode.json", lambda told: told.update(base))
        # It wants this package where there is a plugin, and tries for minutes to fetch it.
        if not (config / "node_modules").exists():
            installed = self.folder() / self.name
            (config / "node_modules").symlink_to(installed / "node_modules")
            for name in ("package.json", "package-lock.json"):
                shutil.copy(installed / name, config / name)

    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        entry = {"type": "local", "command": command, "environment": env, "enabled": True}
        edit_json(
            s.home / ".config" / "opencode" / "opencode.json",
            lambda told: told.setdefault("mcp", {}).update({name: entry}),
        )

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        return [self.program(), *(["run", prompt] if prompt else [])]


class Gemini(Client):
    """Gemini CLI."""

    name = "gemini"
    packages = ("@google/gemini-cli@0.61.0",)
    binary = "node_modules/.bin/gemini"
    shows = "text"
    ready = "Type your message"
    folder_name: ClassVar[str] = ".gemini"
    auth: ClassVar[str] = "gemini-api-key"

    def settings(self, s: Session) -> Path:
        """Its settings."""
        return s.home / self.folder_name / "settings.json"

    def setup(self, s: Session) -> None:
        s.env |= {
            "GEMINI_API_KEY": "dummy",
            "GOOGLE_GEMINI_BASE_URL": s.url,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
        self.base_settings(s)

    def base_settings(self, s: Session) -> None:
        """What Gemini CLI and what descends from it have in common."""
        base = {
            "security": {"auth": {"selectedType": self.auth}, "folderTrust": {"enabled": False}},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
            "ui": {"enableFollowupSuggestions": False},
        }
        edit_json(self.settings(s), lambda told: told.update(base))

    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        entry = {"command": command[0], "args": command[1:], "env": env, "trust": True}
        edit_json(
            self.settings(s), lambda told: told.setdefault("mcpServers", {}).update({name: entry})
        )

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        tail = ["-p", prompt] if prompt else []
        return [self.program(), "--approval-mode", "yolo", "-m", "gemini-2.5-flash", *tail]

    def resuming(self, s: Session, prompt: str) -> list[str]:
        return [*self.argv(s, prompt), "--resume", "latest"]


class Qwen(Gemini):
    """Qwen Code."""

    name = "qwen"
    packages = ("@qwen-code/qwen-code@0.24.4",)
    binary = "node_modules/.bin/qwen"
    shows = "both"
    folder_name = ".qwen"
    auth = "openai"

    def setup(self, s: Session) -> None:
        s.env |= {
            "OPENAI_API_KEY": "dummy",
            "OPENAI_BASE_URL": s.url + "/v1",
            "OPENAI_MODEL": "fake-model",
        }
        self.base_settings(s)

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        tail = [prompt] if prompt else []
        return [self.program(), "--approval-mode", "yolo", "--auth-type", "openai", *tail]

    def resuming(self, s: Session, prompt: str) -> list[str]:
        return [*self.argv(s, None), "--continue", "-p", prompt]


class Kimi(Client):
    """Kimi Code."""

    name = "kimi"
    packages = ("@moonshot-ai/kimi-code@2.1.0",)
    binary = "node_modules/.bin/kimi"
    shows = "both"
    ready = "│ >"
    asks = "Trust this folder?"
    folder_name: ClassVar[str] = ".kimi-code"
    provider: ClassVar[str] = "openai"
    once: ClassVar[tuple[str, ...]] = ("-p",)
    at_terminal: ClassVar[tuple[str, ...]] = ("--auto",)

    def setup(self, s: Session) -> None:
        s.env |= {"KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1"}
        add_text(
            s.home / self.folder_name / "config.toml",
            f"""
default_model = "fake"
telemetry = false

[providers.fake]
type = {toml(self.provider)}
base_url = {toml(s.url + "/v1")}
api_key = "dummy"

[models.fake]
provider = "fake"
model = "fake-model"
max_context_size = 200000
""",
        )

    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        entry = {"command": command[0], "args": command[1:], "env": env}
        edit_json(
            s.home / self.folder_name / "mcp.json",
            lambda told: told.setdefault("mcpServers", {}).update({name: entry}),
        )

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        tail = [*self.once, prompt] if prompt else [*self.at_terminal]
        return [self.program(), *tail]


class KimiCli(Kimi):
    """The older client of the same maker, in Python; 1.51.0 is the last version that runs."""

    name = "kimi-cli"
    packages = ("kimi-cli@1.51.0",)
    binary = "bin/kimi"
    cli = "kimi"
    shows = "text"
    folder_name = ".kimi"
    provider = "openai_legacy"
    once = ("--print", "-p")
    at_terminal = ("--yolo",)
    ready = ""  # its terminal is not driven
    asks = ""


class Copilot(Client):
    """GitHub Copilot CLI."""

    name = "copilot"
    packages = ("@github/copilot@1.0.102",)
    binary = "node_modules/.bin/copilot"
    shows = "both"
    ready = "/ commands"
    asks = "Confirm folder trust"

    def setup(self, s: Session) -> None:
        s.env |= {
            "COPILOT_PROVIDER_BASE_URL": s.url + "/v1",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_MODEL": "fake-model",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
        }
        (s.home / ".copilot").mkdir(exist_ok=True)  # as after its first start: setup looks for it

    def add_mcp(self, s: Session, name: str, command: list[str], env: dict[str, str]) -> None:
        entry = {
            "type": "local",
            "command": command[0],
            "args": command[1:],
            "env": env,
            "tools": ["*"],
        }
        edit_json(
            s.home / ".copilot" / "mcp-config.json",
            lambda told: told.setdefault("mcpServers", {}).update({name: entry}),
        )

    def argv(self, s: Session, prompt: str | None) -> list[str]:
        tail = ["-p", prompt] if prompt else []
        return [self.program(), "--allow-all-tools", "--disable-builtin-mcps", *tail]


CLIENTS: Final[dict[str, Client]] = {
    client.name: client
    for client in (
        Claude(),
        Codex(),
        OpenCode(),
        Gemini(),
        Kimi(),
        KimiCli(),
        Qwen(),
        Copilot(),
    )
}
"""All clients, by name."""
