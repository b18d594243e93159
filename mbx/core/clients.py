"""The hooks of each agent CLI: what its events are called, and how it takes an answer. Values only.

Measured on the real programs; nothing here is guessed from one for another. An event that is in no
table says and does nothing. Loaded by every hook, so nothing heavy is imported.
"""

from __future__ import annotations

from mbx.core.limits import SESSION_ID_MAX_CHARS

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Mapping
    from typing import Final, TypeGuard

START = "start"
PROMPT = "prompt"
TOOL = "tool"
STOP = "stop"
END = "end"
GUARD = "guard"
WAIT = "wait"

ACTS: Final = (START, PROMPT, TOOL, STOP, END, GUARD)
"""What mbx does at an event: a session begins, a prompt is sent, a tool was used, a turn ends, a
session ends, a tool is about to be used."""

WAITS_AS: Final = "Wait"
"""The word in the place of an event for a hook that a client leaves running and is woken by."""

NESTED = "nested"
FLAT = "flat"
PLAIN = "plain"
BLOCK = "block"
STATUS = "status"
NOTHING = "nothing"

FORMS: Final = {
    NESTED: '{"hookSpecificOutput": {"hookEventName": EVENT, "additionalContext": TEXT}}',
    FLAT: '{"additionalContext": TEXT}',
    PLAIN: "TEXT",
    BLOCK: '{"decision": "block", "reason": TEXT}',
    STATUS: "exit status 2, TEXT on standard error",
    NOTHING: "cannot be told anything",
}
"""How a text is handed to a client, as the documents show it."""


class Client:
    """One agent CLI. `harness`: its name among the processes (`mbx.core.evidence.HARNESSES`).

    `events`: act -> its own name of the event; `forms`: act -> how it takes a text there.
    `session_field` is where its JSON says the conversation; `variable` where a hook's environment
    does, as of now. `ends`: the reasons by which a session really ends; any other keeps the lease.
    `waits`: its events at which it starts a hook that it leaves running and is woken by.
    """

    __slots__ = ("ends", "events", "forms", "harness", "name", "session_field", "variable", "waits")

    def __init__(
        self,
        name: str,
        events: str,
        forms: str,
        ends: str,
        *,
        harness: str = "",
        session_field: str = "session_id",
        variable: str = "",
        waits: str = "",
    ) -> None:
        """`events` and `forms` are words in the order of `ACTS`; ``-`` is an event it lacks."""
        self.name = name
        self.harness = harness or name
        named = zip(ACTS, events.split(), forms.split(), strict=True)
        rows = [(act, event, form) for act, event, form in named if event != "-"]
        self.events = {act: event for act, event, _ in rows}
        self.forms = {act: form for act, _, form in rows}
        self.ends = frozenset(ends.split())
        self.session_field = session_field
        self.variable = variable
        self.waits = tuple(waits.split())

    def act_of(self, event: str) -> str:
        """What is to be done at one of its events; "" for nothing."""
        if event == WAITS_AS and self.waits:
            return WAIT
        return next((act for act, name in self.events.items() if name == event), "")

    def heeded(self) -> dict[str, str]:
        """Of `events` those that it is wired for: its hook has something to do or to say there."""
        return {
            act: event
            for act, event in self.events.items()
            if act in (START, END) or self.forms[act] != NOTHING
        }


_CLAUDE = "SessionStart UserPromptSubmit PostToolUse Stop SessionEnd PreToolUse"

CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in (
        Client(
            "claude",
            _CLAUDE,
            "nested nested nested block nothing status",
            "logout prompt_input_exit",
            variable="CLAUDE_CODE_SESSION_ID",
            waits="SessionStart Stop",
        ),
        Client("codex", _CLAUDE, "nested nested nested block nothing status", "exit logout"),
        Client(
            "gemini",
            "SessionStart BeforeAgent AfterTool AfterAgent SessionEnd BeforeTool",
            "nested nested nested block nothing status",
            "exit logout prompt_input_exit",
            variable="GEMINI_SESSION_ID",
        ),
        Client(
            "qwen",
            _CLAUDE,
            "nested nested nested block nothing status",
            "exit logout prompt_input_exit",
            variable="QWEN_CODE_SESSION_ID",
        ),
        Client("kimi", _CLAUDE, "nothing plain nothing status nothing status", "exit logout"),
        Client(
            "kimi-cli",
            _CLAUDE,
            "nothing nothing nothing status nothing status",
            "exit logout",
            harness="kimi",
        ),
        Client(
            "copilot",
            "sessionStart userPromptSubmitted postToolUse agentStop sessionEnd preToolUse",
            "flat flat flat block nothing status",
            "",
            session_field="sessionId",
        ),
        Client("opencode", "session.created - - - - -", "plain - - - - -", ""),
    )
}
"""Client (the word of ``hook.sh CLI EVENT``) -> its hooks. OpenCode has
a plugin, which tells of new sessions this way."""


def is_session_id(given: object) -> TypeGuard[str]:
    """Whether a client may call a conversation so."""
    return (
        isinstance(given, str) and 1 <= len(given) <= SESSION_ID_MAX_CHARS and given.isprintable()
    )


STATUS_LINES: Final = ("claude", "kimi", "qwen")
"""Clients that run a command for a line of their screen."""


HOOK_SCRIPT = "hook.sh"
STATUS_LINE_SCRIPT = "statusline.sh"
"""What clients run, in ``HOME/bin``."""


def command_line(home: str, script: str, *words: str) -> str:
    """What a client runs: a script below ``HOME/bin``. It never changes: consent hangs on it.

    Where the script is gone (a home that was removed, settings carried to another machine) nothing
    is run: a shell that is told to run a missing file ends with the status that blocks a prompt.
    """
    path = f"{home}/bin/{script}"
    for mark in ("\\", '"', "$", "`"):
        path = path.replace(mark, f"\\{mark}")
    return f'[ ! -r "{path}" ] || sh "{path}" {" ".join(words)}'


def output(form: str, event: str, text: str) -> dict[str, object] | None:
    """The JSON object that carries a text to a client; None for a form that is no JSON."""
    if form == NESTED:
        return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    if form == FLAT:
        return {"additionalContext": text}
    if form == BLOCK:
        return {"decision": "block", "reason": text}
    return None
