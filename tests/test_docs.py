"""Documents that cannot rot: links lead somewhere, commands exist, generated pages are current."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

import mbx
from mbx.core.errors import EXIT_STATUS
from mbx.daemon.methods import METHODS
from scripts.pages import PAGES, parameters_of, protocol_errors
from scripts.recordings import Stable
from tests.support.commandline import all_commands, needs_command, options_of
from tests.support.rules import ROOT

FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCREEN = re.compile(r"^```text\n.*?^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

# Hosts of package registries, and folders in which builds and people keep checkouts: neither says
# anything to a reader elsewhere. Written so that this file does not hold what it looks for.
REGISTRIES = [
    r"pypi\.(org|python\.org)",
    r"pythonhosted\.org",
    r"registry\.(npmjs\.org|yarnpkg\.com)",
    r"(deb|ftp|security)\.debian\.org",
    r"(archive|ports)\.ubuntu\.com",
    r"(static|index)\.crates\.io",
    r"proxy\.golang\.org",
]
MACHINE_PATH = re.compile(r"(?<![\w./~-])/(root|work|workspace|builds|Users)/\w")
UNFINISHED = re.compile(r"\b(T[O]DO|FI[X]ME|X[X]X)\b")

GENERATOR = ROOT / "scripts" / "gen-docs"
DECISION_PARTS = ["Status", "Why", "Decision", "Refused", "What follows"]


def committed() -> list[Path]:
    """Our own files: those that git knows, or all outside hidden folders where there is no git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False, timeout=15
    )
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    else:
        skipped = re.compile(r"/(\.(?!ci/)[^/]+|build|dist|__pycache__)/")
        paths = [path for path in ROOT.rglob("*") if not skipped.search(f"{path}/")]
    vectors = ROOT / "tests" / "vectors"  # others' files, kept as they are
    return [path for path in paths if path.is_file() and vectors not in path.parents]


def texts() -> Iterator[tuple[str, str]]:
    """(path, text) of each committed file that is text."""
    for path in committed():
        raw = path.read_bytes()
        if b"\0" not in raw:
            yield str(path.relative_to(ROOT)), raw.decode("utf-8")


def documents() -> list[Path]:
    """What readers rely on: decisions tell history and may name what is gone."""
    pages = [path for path in committed() if path.suffix == ".md"]
    return [path for path in pages if path.parent.name != "decisions"]


def places(pattern: re.Pattern[str], files: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:80]}"
        for path, text in files
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_names_a_package_registry() -> None:
    assert places(re.compile("|".join(REGISTRIES)), texts()) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    here = [re.escape(str(path)) for path in (ROOT, Path.home()) if len(path.parts) > 2]
    pattern = re.compile("|".join([MACHINE_PATH.pattern, *(f"{path}/" for path in here)]))
    assert places(pattern, texts()) == []


def test_no_file_holds_a_note_to_finish_it() -> None:
    assert places(UNFINISHED, texts()) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (re.compile("|".join(REGISTRIES)), "see https://" + "pypi" + ".org/project/mbx"),
        (MACHINE_PATH, "cd " + "/wor" + "k/main"),
        (UNFINISHED, "# TO" + "DO: later"),
    ],
    ids=["registry", "path", "note"],
)
def test_the_scan_finds_what_it_looks_for(pattern: re.Pattern[str], line: str) -> None:
    assert places(pattern, [("x", f"fine\n{line}\n")]) == [f"x:2: {line}"]


def test_every_relative_link_leads_to_a_file() -> None:
    pages = [path for path in committed() if path.suffix == ".md"]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


# --- the commands that documents tell readers to type ---------------------------------------------


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each `mbx …` or `scripts/…` command in fenced blocks and inline code.

    What a screen showed is nothing that readers type: a status line begins with `mbx` too.
    """
    text = SCREEN.sub("", text)
    blocks = FENCE.findall(text)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    spans = INLINE.findall(FENCE.sub("", text))
    for line in [*lines, *spans]:
        command = line.strip().removeprefix("$ ")
        if command.startswith(("mbx ", "scripts/")):
            try:
                words = shlex.split(command, comments=True)
            except ValueError:  # a quotation that goes on in the next line
                words = command.split()
            ends = [at for at, word in enumerate(words) if word in {"|", "||", "&&", ";", ">", "&"}]
            yield words[: min(ends, default=len(words))]


def problem(words: list[str], known: dict[str, set[str]]) -> str | None:
    """What is wrong with a documented command, `known` mapping each command to its options."""
    if words[0].startswith("scripts/"):
        return None if (ROOT / words[0]).exists() else f"{words[0]} does not exist"
    said = words[: words.index("--")] if "--" in words else words
    names = [" ".join(said[:length]) for length in range(1, len(said) + 1)]
    name = next((one for one in reversed(names) if one in known), "mbx")
    rest = said[len(name.split()) :]
    if name == "mbx" and rest and re.fullmatch(r"[a-z][a-z-]*", rest[0]):
        whole_group = any(one.startswith(" ".join(said) + " ") for one in known)
        return None if whole_group else f"no command {' '.join(said)!r}"
    spelt = [word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    wrong = [option for option in spelt if name != "mbx" and option not in known[name]]
    return f"{name} has no option {wrong}" if wrong else None


@needs_command
def test_every_command_in_the_documents_exists() -> None:
    known = {name: options_of(command) for name, command, _ in all_commands()}
    found = [
        f"{page.relative_to(ROOT)}: {wrong}"
        for page in documents()
        for words in commands_in(page.read_text(encoding="utf-8"))
        if (wrong := problem(words, known))
    ]
    assert found == []


def test_every_script_in_the_documents_exists() -> None:
    found = [
        f"{page.relative_to(ROOT)}: {wrong}"
        for page in documents()
        for words in commands_in(page.read_text(encoding="utf-8"))
        if words[0].startswith("scripts/") and (wrong := problem(words, {}))
    ]
    assert found == []


def test_a_documented_command_that_does_not_exist_is_found() -> None:
    known = {"mbx send": {"--to", "-m", "--help"}, "mbx identity list": {"--json"}}
    page = (
        "Use `mbx frobnicate` or `mbx identity`.\n\n"
        "```console\n$ mbx send --to ana \\\n    --colour red | cat --number\n"
        "$ mbx send --to ana -m 'hi'\n$ scripts/nothing\n$ ls\n```\n"
    )
    found = [problem(words, known) for words in commands_in(page)]
    assert found == [
        "mbx send has no option ['--colour']",
        None,
        "scripts/nothing does not exist",
        "no command 'mbx frobnicate'",
        None,
    ]


# --- generated pages, decisions, changes ----------------------------------------------------------


@pytest.mark.long  # it records real runs of the daemon
@pytest.mark.timeout(120)
def test_generated_documents_equal_what_the_code_says_now() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("code", sorted(EXIT_STATUS))
def test_no_error_code_that_is_used_is_called_unused(code: str) -> None:
    """Nor is an unused one kept: what is raised, or told of a place, stands quoted in the code."""
    errors = ROOT / "mbx" / "core" / "errors.py"
    used = [
        path
        for path in (ROOT / "mbx").rglob("*.py")
        if path != errors and f'"{code}"' in path.read_text()
    ]
    meaning = next(line for line in protocol_errors().splitlines() if f"`{code}`" in line)
    assert bool(used) != ("not used yet" in meaning), meaning


def generator() -> ModuleType:
    """The script as a module; its name has no suffix."""
    loader = SourceFileLoader("gen_docs", str(GENERATOR))
    spec = spec_from_loader("gen_docs", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


PAGE = "# Title\n\n<!-- generated: x -->\n\nold\n\n<!-- end of generated part -->\n\nProse.\n"


def test_a_generated_part_that_is_old_is_made_anew_and_the_prose_stays() -> None:
    current = generator().current
    assert current("p.md", PAGE, {"x": lambda: "old"}) == PAGE
    assert current("p.md", PAGE, {"x": lambda: "new"}) == PAGE.replace("old", "new")


@pytest.mark.parametrize("parts", [["x", "y"], ["y"], []])
def test_a_page_without_the_places_of_its_parts_is_refused(parts: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"p\.md has the generated parts"):
        generator().current("p.md", PAGE, {part: lambda: "new" for part in parts})


def test_every_place_for_a_generated_part_is_filled_by_the_generator() -> None:
    marked = {
        str(page.relative_to(ROOT)): re.findall(
            r"^<!-- generated: (.+) -->$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
        for page in documents()
    }
    filled = {page: list(parts) for page, parts in PAGES.items()}
    assert {page: names for page, names in marked.items() if names} == filled


def test_two_runs_with_other_ids_and_times_give_the_same_text() -> None:
    one = f"sent {'a' * 26} {'b' * 26} by 123-4567, mbx read {'a' * 8}, then {'b' * 12}"
    two = f"sent {'c' * 26} {'d' * 26} by 89-1234567, mbx read {'c' * 8}, then {'d' * 12}"
    assert Stable().text(one) == Stable().text(two) != one
    assert Stable().text(one) != Stable().text(one.replace("b" * 26, "a" * 26))


def test_the_parameters_of_a_method_are_those_that_its_reader_asks_for() -> None:
    asked = parameters_of(METHODS["mail.inbox"])
    assert list(asked) == ["limit", "cursor", "kind", "from", "all"]
    assert asked["limit"] == "integer from 1 to 200, 20 by default"
    assert "key" in parameters_of(METHODS["mail.ack"])
    assert parameters_of(METHODS["mail.send"])["subject"] == "string, required"


def test_every_method_and_every_error_code_stands_in_the_protocol_page() -> None:
    page = (ROOT / "docs" / "protocol-local.md").read_text(encoding="utf-8")
    assert [name for name in METHODS if f"\n### {name}\n" not in page] == []
    assert [
        code for code in EXIT_STATUS if f"\n| `{code}` | {EXIT_STATUS[code]} |" not in page
    ] == []


def manual_sections() -> dict[str, str]:
    """Command -> its part of the manual page, with plain hyphens and quotes."""
    text = (ROOT / "man" / "mbx.1").read_text(encoding="utf-8")
    parts = text.replace(r"\-", "-").replace(r"\(dq", '"').split("\n.SS ")[1:]
    return {re.split(r" \[OPTIONS]", part)[0]: part.split("\n.SH ")[0] for part in parts}


@needs_command
def test_the_manual_page_has_every_command_with_its_options_and_examples() -> None:
    sections = manual_sections()
    commands = all_commands()
    assert list(sections) == [name for name, _, _ in commands]
    for name, command, _ in commands:
        told = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", sections[name]))
        spelt = {option for option in options_of(command) if option.startswith("-")}
        assert spelt - {"--help", "--json"} <= told, name
        assert sections[name].count(f"\n{name}") + sections[name].count(f"| {name}") > 0, name


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_a_formatter_takes_the_manual_page_without_a_warning() -> None:
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tascii", str(ROOT / "man" / "mbx.1")],
        capture_output=True,
        text=True,
        check=True,
        timeout=15,
    )
    assert done.stderr == ""
    assert "mbx identity rename" in done.stdout


def test_the_manual_page_is_installed_where_man_looks_for_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shipped == {"man/mbx.1": "share/man/man1/mbx.1"}


def decisions() -> list[Path]:
    return sorted((ROOT / "docs" / "decisions").glob("*.md"))


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in decisions()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("path", decisions(), ids=lambda path: path.stem)
def test_a_decision_says_why_and_what_was_refused(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {int(path.name[:4])}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == DECISION_PARTS


def test_the_changelog_has_a_section_for_the_next_or_this_version() -> None:
    heads = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads
    assert heads[0] in {"Unreleased", mbx.__version__}


def test_the_licence_is_the_whole_apache_text() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


# -- the fields of answers ------------------------------------------------------------------------


def _answers(page: str) -> dict[str, list[object]]:
    """Method -> the results that the page on the local protocol shows of it."""
    found: dict[str, list[object]] = {}
    method = ""
    for match in re.finditer(r"^### (\S+)$|```json\n(.*?)```", page, re.DOTALL | re.MULTILINE):
        method = match[1] or method
        shown = json.loads(match[2]) if match[2] else {}
        if method and "result" in shown:
            found.setdefault(method, []).append(shown["result"])
    return found


def _keys(value: object) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from _keys(inner)
        case list():
            for inner in value:
                yield from _keys(inner)


SECTIONS_OF_FIELDS = 6
OF_THE_COMMAND_ALONE = {"answers"}
"""What a command adds to an answer."""


def test_every_field_of_the_answers_about_mail_and_hosts_is_explained_and_no_other() -> None:
    answers = _answers((ROOT / "docs" / "protocol-local.md").read_text())
    _, *sections = re.split("^## ", (ROOT / "docs" / "json.md").read_text(), flags=re.MULTILINE)
    assert len(sections) == SECTIONS_OF_FIELDS
    for section in sections:
        intro, table = section.split("| field | says |")
        said = re.findall(r"`([a-z]+\.[a-z]+)`", intro.replace("`daemon.health`", ""))
        methods = [word for word in said if word in answers]
        assert methods == said != [], section[:40]
        shown = {key for method in methods for result in answers[method] for key in _keys(result)}
        named = set(re.findall('[`"]([a-z_]+)[`"]', table))
        assert shown - named == set(), methods
        heads = {
            name
            for line in table.splitlines()
            for name in re.findall("`([a-z_]+)`", line.split("|")[1] if "|" in line else "")
        }
        assert heads - shown - OF_THE_COMMAND_ALONE == set(), methods
