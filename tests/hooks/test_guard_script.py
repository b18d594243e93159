"""The guard in the shell: it lets pass only what Python would let pass, and mostly without it.

Every event goes through the real script. Whether it had to be refused is what `mbx.hooks.guard`
says of the same bytes; whether Python was started is what the program notes that stands for it.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from mbx.core.clients import HOOK_SCRIPT
from mbx.hooks import event as events
from mbx.hooks import guard
from mbx.hooks.scripts import GAP_MAX_CHARS, PARTS_MAX, READ_BYTES, program, scripts
from mbx.paths import Paths, quoted
from tests.support.patience import looks
from tests.support.shells import bare_environment

SHELLS = [name for name in ("dash", "bash", "busybox", "ksh", "zsh") if shutil.which(name)]
REFUSED: Final = 2
WITHIN_S: Final = 15.0
PATIENT: Final = f"""
from mbx.core import limits
limits.HOOK_DEADLINE_MS = {WITHIN_S * 1000:.0f}
from mbx.hooks.events import run
run()
"""
"""A hook that says nothing after a second lets the tool pass: here it has longer, since a machine
that is held up for a second would pass for a guard that let something through."""


class Guarded:
    """An installation whose script notes each start of Python; `home` and `run` are guarded.

    Its Python is patient, or has a second as everywhere.
    """

    def __init__(self, folder: Path, *, is_patient: bool = True) -> None:
        self.folder = folder
        self.home, self.run = folder / "a home" / "mbx", folder / "sockets" / "run"
        for one in (self.home / "sub", self.run / "snapshots", folder / "work" / "deep"):
            one.mkdir(parents=True)
        self.work = folder / "work"
        (self.home / "store.db").write_text("")
        self.notes = folder / "notes"
        note = folder / "program"
        started = (*program()[:-1], PATIENT) if is_patient else program()
        words = " ".join(quoted(word) for word in started)
        note.write_text(f'#!/bin/sh\necho started >>{quoted(str(self.notes))}\nexec {words} "$@"\n')
        note.chmod(0o755)
        places = {"MBX_HOME": str(self.home), "MBX_RUN": str(self.run)}
        for script in scripts(Paths.from_environ(places), [str(note)]):
            (folder / script.name).write_text(script.content)
        self.environ = bare_environment(HOME=str(self.home.parent), **places)

    def start(
        self, shell: str = "sh", *, cwd: Path | None = None, stdin: int = subprocess.PIPE
    ) -> "subprocess.Popen[bytes]":
        """The script, as a client starts it at a tool's call."""
        return subprocess.Popen(
            ["sh", str(self.folder / HOOK_SCRIPT), "claude", "PreToolUse"],
            executable=shutil.which(shell),
            env=self.environ,
            cwd=cwd or self.work,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def judge(self, raw: bytes, shell: str = "sh", cwd: Path | None = None) -> tuple[bool, bool]:
        """Whether the tool was refused, and whether Python was started to find out."""
        with self._holding(raw) as given, self.start(shell, cwd=cwd, stdin=given) as running:
            out, err = running.communicate(timeout=WITHIN_S)
        assert running.returncode in (0, REFUSED), (running.returncode, err)
        refused = running.returncode == REFUSED
        assert (out, err) == (b"", f"{guard.REFUSAL}\n".encode() if refused else b"")
        return refused, self.was_started()

    @contextmanager
    def _holding(self, raw: bytes) -> Iterator[int]:
        """A pipe that has it all before anybody looks, or, of what none can hold, a file."""
        if len(raw) > READ_BYTES:
            path = self.folder / "event"
            path.write_bytes(raw)
            with path.open("rb") as file:
                yield file.fileno()
            return
        ours, theirs = os.pipe()
        try:
            os.write(theirs, raw)
            os.close(theirs)
            yield ours
        finally:
            os.close(ours)

    def was_started(self) -> bool:
        """Since it was asked last."""
        is_noted = self.notes.exists()
        self.notes.unlink(missing_ok=True)
        return is_noted

    def is_ours(self, raw: bytes, cwd: Path | None = None) -> bool:
        """What Python says of the event."""
        ours, theirs = os.pipe()
        before = os.getcwd()
        home = os.environ.get("HOME", "")
        try:
            os.environ["HOME"] = self.environ["HOME"]
            os.chdir(cwd or self.work)
            assert len(raw) <= READ_BYTES
            os.write(theirs, raw)
            os.close(theirs)
            return guard.refuses(events.read(ours), (str(self.home), str(self.run)))
        finally:
            os.close(ours)
            os.chdir(before)
            os.environ["HOME"] = home


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    """Made anew for each test."""
    return Guarded(tmp_path.resolve())


def event(tool: str, given: Any, **more: Any) -> bytes:
    """As clients write it: in one line, other letters than ASCII as they are."""
    told = {"session_id": "s", "cwd": "/", "hook_event_name": "PreToolUse", **more}
    told |= {"tool_name": tool, "tool_input": given}
    return json.dumps(told, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize("shell", [name for name in SHELLS if name != "busybox"])
def test_the_usual_tools_cost_no_python(guarded: Guarded, shell: str) -> None:
    work, text = str(guarded.work), 'if (a["b"]) { c = "{}"; }\n\t// "d" é 日本\n'
    for raw in (
        event("Bash", {"command": "grep -n 'x' *.py | wc -l; echo \"{ $HOME ~ }\"", "timeout": 7}),
        event("Bash", {"command": f"cat {guarded.home}/daemon.log"}),
        event("Read", {"file_path": f"{work}/a.py", "offset": 10, "limit": -1.5e3}),
        event("Write", {"file_path": f"{work}/a b'c$d`e*?[f].py", "content": text}),
        event("Edit", {"file_path": "deep/x.py", "old_string": text, "new_string": ""}, cwd=work),
        event("MultiEdit", {"edits": [{"a": text}, {"b": [1, [2], {}]}], "file_path": f"{work}/a"}),
        event("mcp__x__y", {}),
        event("TodoWrite", {"todos": [{"content": "x", "done": False}] * 20}),
        b"{}",
        b'{"tool_name":"LS","tool_input":{"path":"%s/deep"}}' % work.encode(),
    ):
        assert guarded.judge(raw, shell) == (False, False), raw


def paths_of_ours(guarded: Guarded) -> Iterator[tuple[str, dict[str, str]]]:
    """Ways to name a file in our folders, with what else the event says."""
    home, work = guarded.home, guarded.work
    (work / "way").symlink_to(home)
    (work / "far").symlink_to(work / "way")
    (work / "file").symlink_to(home / "store.db")
    (work / "dangling").symlink_to(home / "not yet")
    (work / "deep" / "up").symlink_to(home / "sub")
    (work / "real").mkdir()
    (home / "out").symlink_to(work / "real")
    for place in (
        home,
        home / "x",
        home / "sub" / "x",
        guarded.run / "mbx.sock",
        home / "new" / "er" / "x",
        work / "way" / "x",
        work / "far" / "x",
        work / "far",
        work / "file",
        work / "dangling",
        work / "deep" / "up" / ".." / "x",
    ):
        yield str(place), {}
    for path in (
        f"{home}/",
        f"{home}/.",
        f"{home}/sub/..",
        f"//{home}//x",
        f"{work}/../a home/mbx/x",
    ):
        yield path, {}
    yield "~/mbx/x", {}
    yield "way/x", {"cwd": str(work)}
    yield "x", {"cwd": str(home)}
    yield "x", {"cwd": str(work / "far")}
    yield "../a home/mbx/x", {"cwd": f"{work}/"}
    yield ".", {"cwd": str(home)}
    yield "", {"cwd": str(home)}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_refuses_and_lets_pass_the_same(guarded: Guarded, shell: str) -> None:
    for path, is_ours in ((guarded.home / "x", True), (guarded.work / "x", False)):
        assert guarded.judge(event("Write", {"file_path": str(path)}), shell)[0] == is_ours


@pytest.mark.long
@pytest.mark.timeout(120)
def test_whatever_leads_into_our_folders_is_refused(guarded: Guarded) -> None:
    for path, more in paths_of_ours(guarded):
        for field in (
            "file_path",
            "filePath",
            "path",
            "notebook_path",
            "absolute_path",
            "filename",
        ):
            raw = event("Write", {"content": 'a "b" {', field: path}, **more)
            assert guarded.is_ours(raw), (path, more)
            assert guarded.judge(raw)[0], (path, more, field)
    assert guarded.judge(event("Write", {"file_path": "x"}, cwd=None), cwd=guarded.home)[0]
    leading_out = event("Write", {"file_path": f"{guarded.home}/out/x"})
    assert guarded.judge(leading_out)[0] == guarded.is_ours(leading_out)


def test_what_a_path_says_otherwise_than_its_letters_is_not_taken_by_them(
    guarded: Guarded,
) -> None:
    work, cwd = guarded.work, {"cwd": str(guarded.work)}
    for plain, odd in (("li\\nnk", "li\nnk"), ("way", '"way')):
        (work / plain).mkdir()
        (work / odd).symlink_to(guarded.home)
        assert guarded.judge(event("Write", {"file_path": f"{odd}/x"}, **cwd))[0]
        assert guarded.judge(event("Write", {"file_path": f"{work}/{odd}/x"}))[0]
        assert not guarded.judge(event("Write", {"file_path": f"{plain}/x"}, **cwd))[0]
    (work / "~" / "mbx").mkdir(parents=True)
    assert guarded.judge(event("Write", {"file_path": "~/mbx/x"}, **cwd))[0]


def spellings(path: str) -> Iterator[bytes]:
    """One event in many forms of JSON: each is refused if Python reads it."""
    plain = json.dumps(path)
    for spelt in (
        plain.replace("/", "\\/"),
        plain.replace("/", "\\u002f"),
        plain.replace("/", "\\u002F", 1),
        '"' + "".join(f"\\u{ord(char):04x}" for char in path) + '"',
    ):
        yield f'{{"tool_name":"Write","tool_input":{{"file_path":{spelt}}}}}'.encode()
    for text in (
        '{"tool_name":"Write","tool_input":{"file\\u005fpath":%s}}',
        '{"tool_name":"Write","tool_input":{"file_path"\n :\t\r\n%s\n}\n}\n\n',
        ' {"tool_name":"Write","tool_input":{"file_path":%s}}',
        '\ufeff{"tool_name":"Write","tool_input":{"file_path":%s}}',
        '{"tool_name":"Write","tool_input":{"file_path":%s}} ',
        '{"tool_name":"Write","tool_input":{"file_path":%s}}}}',
        '{"tool_name":"Write","tool_input":{"file_path":%s}}{"tool_input":{}}',
        '{"tool_name":"Write","tool_input":{"file_path":%s},"a":{},"b":[{}],"c":"}"}',
        '{"tool_input":{"file_path":%s,"content":"\\\\\\"\\\\"},"tool_name":"Write"}',
        '{"tool_input":{"content":"\\\\","file_path":%s},"tool_name":"Write"}',
        '{"tool_input":{"content":"\\"","file_path":%s},"tool_name":"Write"}',
        '{"tool_input":{"content":"\\\\\\"","file_path":%s},"tool_name":"Write"}',
        '{"tool_input":{"content":"a\\\\\\\\","file_path":%s},"tool_name":"Write"}',
        '{"tool_input":{"content":"\\",\\"file_path\\":\\"/tmp/x","file_path":%s},"tool_name":"W"}',
        '{"tool_input":{"content":"}}{{","file_path":%s},"tool_name":"Write"}',
        '{"tool_input":{"a":"\\\\","file_path":%s,"b":"\\\\"},"tool_name":"Write"}',
        '{"tool_input":{"a":"\\\\","file_path":%s,"b":"}}"},"tool_name":"Write"}',
        '{"tool_input":{"a":"\\"","file_path":%s,"b":"\\""},"tool_name":"Write"}',
        '{"tool_input":{"file_path":"/tmp/x","file_path":%s},"tool_name":"Write"}',
        '{"tool_input":{"file_path":%s,"path":"/tmp/x"},"tool_name":"Write"}',
        '{"tool_input":{"":"","file_path":%s},"tool_name":"Write"}',
        '{"tool_name":"Read","tool_name":"Write","tool_input":{"tool_name":"Read","file_path":%s}}',
        '{"tool_name":"Write","tool_input":{},"tool_input":{"file_path":%s}}',
        '{"n":[1,2,3,{"a":[]}],"tool_name":"Write","tool_input":{"x":null,"file_path":%s,"y":{}}}',
        '{"toolName":"Write","toolArgs":{"filePath":%s}}',
    ):
        yield (text % plain).encode()


@pytest.mark.long
@pytest.mark.timeout(90)
def test_no_form_of_json_hides_a_path(guarded: Guarded) -> None:
    for path in (f"{guarded.home}/x", f"{guarded.home}"):
        for raw in spellings(path):
            assert guarded.judge(raw)[0] == guarded.is_ours(raw), raw
    assert sum(map(guarded.is_ours, spellings(str(guarded.home)))) >= 20


def test_the_folder_that_counts_is_the_one_that_the_event_names_last(guarded: Guarded) -> None:
    home, work = json.dumps(str(guarded.home)), json.dumps(str(guarded.work))
    tool = '"tool_name":"Write","tool_input":'
    for text in (
        f'{{"cwd":{work},{tool}{{"file_path":"x"}},"cwd":{home}}}',
        f'{{"cwd":{home},{tool}{{"cwd":{work},"file_path":"x"}}}}',
        f'{{"cwd":{work},{tool}{{"cwd":{home},"file_path":"x"}}}}',
        f'{{"cwd":{work},"cwd":null,{tool}{{"file_path":"x"}}}}',
        f'{{"cwd":"","x":"cwd",{tool}{{"file_path":"x"}}}}',
        f'{{"cwd":"deep",{tool}{{"file_path":"../way/x"}}}}',
        f'{{"c\\u0077d":{home},{tool}{{"file_path":"x"}}}}',
        f'{{{tool}{{"file_path":"x"}}}}',
    ):
        for cwd in (guarded.work, guarded.home):
            raw = text.encode()
            assert guarded.judge(raw, cwd=cwd)[0] == guarded.is_ours(raw, cwd), (text, cwd)


def test_patches_are_judged_by_python(guarded: Guarded) -> None:
    for head in ("*** Update File: ", "*** Add File: ", "*** Move to: "):
        patch = f"*** Begin Patch\n{head}{guarded.home}/x\n*** End Patch"
        for given in ({"input": patch}, {"command": ["apply_patch", patch]}, {"patch": patch}):
            raw = event("apply_patch", given)
            assert guarded.judge(raw) == (True, True)
            assert guarded.judge(raw.replace(b"*", b"\\u002a"))[0]
    other = event("apply_patch", {"input": f"*** Add File: {guarded.work}/x\n+*** y"})
    assert guarded.judge(other) == (False, True)


@pytest.mark.parametrize("which", ["home", "run"])
def test_a_folder_that_moved_behind_a_link_is_still_guarded(guarded: Guarded, which: str) -> None:
    moved, folder = guarded.folder / "moved", {"home": guarded.home, "run": guarded.run}[which]
    folder.rename(moved)
    raw = event("Write", {"file_path": f"{moved}/x"})
    assert guarded.judge(raw) == (False, True)  # nothing is there to be guarded
    folder.symlink_to(moved)
    assert guarded.judge(raw)[0]
    assert guarded.judge(event("Write", {"file_path": f"{folder}/x"}))[0]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_an_event_is_read_on_by_python_where_the_scripts_read_ends(
    guarded: Guarded, over: int
) -> None:
    filler = "y" * (READ_BYTES + over)
    given = {"file_path": str(guarded.work / "x"), "content": ""}
    size = len(event("Write", given)) - 1
    fits = event("Write", given | {"content": filler[: len(filler) - size]}).rstrip()
    assert len(fits) == READ_BYTES + over
    assert guarded.judge(fits) == (False, over > 0)
    late = {"content": filler, "file_path": str(guarded.home / "x")}
    assert guarded.judge(event("Write", late))[0]
    assert guarded.judge(event("Write", {"edits": [{"a": "}"}], **late, "z": {"a": {}}}))[0]


@pytest.mark.parametrize("over", [0, 1])
def test_of_too_many_texts_and_too_long_gaps_python_judges(guarded: Guarded, over: int) -> None:
    own = len(event("Write", {"todo": []}).split(b'"'))
    many = event("Write", {"todo": ["x"] * ((PARTS_MAX - own) // 2 + over)})
    assert guarded.judge(many) == (False, bool(over))
    gap = b'{"tool_input":{"a":[%s]}}' % (b"1" * (GAP_MAX_CHARS - len(":[]}}") + over))
    assert guarded.judge(gap) == (False, bool(over))


def test_an_event_that_comes_in_pieces_is_waited_for_as_by_python(guarded: Guarded) -> None:
    raw = event("Write", {"a": {"b": {}}, "file_path": str(guarded.home / "x"), "c": "d"}).rstrip()
    for cut in (1, raw.index(b"}") + 1, raw.index(b"}}") + 2, len(raw) - 1):
        with guarded.start() as running:
            assert running.stdin is not None
            running.stdin.write(raw[:cut])
            running.stdin.flush()
            assert any(guarded.notes.exists() for _ in looks())
            running.stdin.write(raw[cut:])
            running.stdin.flush()
            assert running.wait(WITHIN_S) == REFUSED, cut  # and the pipe is still open
            running.stdin.close()
        assert guarded.was_started()


def test_an_input_that_stays_open_silent_or_closed_holds_nobody_up(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path.resolve(), is_patient=False)
    for raw in (b"", event("Bash", {"command": "ls"}), event("Bash", {"command": "ls"})[:-9]):
        with guarded.start() as running:
            assert running.stdin is not None
            running.stdin.write(raw)
            running.stdin.flush()
            assert running.wait(WITHIN_S) == 0, raw
    with guarded.start(stdin=subprocess.DEVNULL) as running:
        assert running.wait(WITHIN_S) == 0
    line = f"exec sh {quoted(str(guarded.folder / HOOK_SCRIPT))} claude PreToolUse <&-"
    done = subprocess.run(["sh", "-c", line], env=guarded.environ, check=False, timeout=WITHIN_S)
    assert done.returncode == 0


def test_a_reader_that_does_not_wait_leaves_python_one_that_does(guarded: Guarded) -> None:
    raw = event("Write", {"file_path": str(guarded.home / "x")})
    with guarded.start() as running:
        assert running.stdin is not None
        assert any(guarded.notes.exists() for _ in looks())  # nothing came for the script
        running.stdin.write(raw)
        running.stdin.flush()
        assert running.wait(WITHIN_S) == REFUSED


_WORDS: Final = (
    '"', '\\"', "\\\\", "\\", "\\u002f", "\\/", "/", "{", "}", "[", "]", ":", ",", " ", "\\n", "~",
    '"file_path":', '"path" : ', '"cwd":', '"tool_name":"Write"', '"tool_input":{', "null", "7",
    "*** Add File: ", "x", "..", "way",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(240)
def test_what_the_script_lets_pass_python_would_let_pass(guarded: Guarded) -> None:
    (guarded.work / "way").symlink_to(guarded.home)
    draw = random.Random(20)
    ours = [str(guarded.home), f"{guarded.work}/way/x", "way/x", str(guarded.work)]
    started, refused, count = 0, 0, 500
    for _ in range(count):
        words = [draw.choice([*_WORDS, *ours]) for _ in range(draw.randrange(9))]
        inner = "".join(words)
        text = json.dumps(inner) if draw.random() < 0.5 else f'"{inner}"'
        path = json.dumps(draw.choice(ours))
        members = [f'"content":{text}', f'"file_path":{path}', '"n":{"a":[1,{}]}']
        draw.shuffle(members)
        cwd = json.dumps(str(guarded.work))
        parts = [f'"tool_input":{{{",".join(members)}}}', '"tool_name":"Write"', f'"cwd":{cwd}']
        draw.shuffle(parts)
        raw = ("{" + ",".join(parts) + "}").encode()
        verdict = guarded.judge(raw)
        assert verdict[0] == guarded.is_ours(raw), raw
        refused, started = refused + verdict[0], started + verdict[1]
    assert refused > count // 4
    assert started < count - count // 20  # and some were let pass by the script alone


def test_the_interpreter_of_the_tests_reads_as_the_hooks_does() -> None:
    assert program()[0] == sys.executable
    assert program()[-1].replace("; ", "\n") == "\n".join(PATIENT.split("\n")[-3:-1])
