"""How our files are written: sizes, names, documentation, and the manners of tests.

Each rule stands in `RULES` beside samples that it must refuse and samples that it must let pass.
"""

import ast
import re

import pytest
from hypothesis import HealthCheck, settings

from mbx.core import limits
from tests.support.rules import (
    MBX,
    ROOT,
    SCRIPTS,
    TESTS,
    Findings,
    Module,
    Rule,
    dotted,
    false_alarms,
    findings,
    missed,
    name_of,
)

FUNCTION_MAX_LINES = 80
FUNCTION_USUAL_LINES = 40
FUNCTION_USUAL_PERCENT = 90
FILE_MAX_LINES = 600

FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?|misc|common)(_|$)")

# Modules that are tested under another name: module -> the test file that covers it. A test file
# which imports the module, or stands at the mirrored path, needs no row.
COVERED_BY: dict[str, str] = {
    "mbx.connector": "e2e/test_mcp.py",
    "mbx.cli.commands.guide": "e2e/test_mcp.py",
    "mbx.cli.commands.join": "e2e/test_pairing.py",
    "mbx.cli.commands.mcp": "e2e/test_mcp.py",
    "mbx.cli.commands.hook": "e2e/test_hook_trouble.py",
    "mbx.hooks.asking": "e2e/test_hook_trouble.py",
    "mbx.hooks.deadline": "e2e/test_hook_trouble.py",
    "mbx.hooks.place": "e2e/test_hooks.py",
    "mbx.hooks.events": "e2e/test_hooks.py",
    "mbx.hooks.statusline": "e2e/test_hook_trouble.py",
    "mbx.daemon.hooktool": "e2e/test_hooks.py",
    "mbx.daemon.methods.hooks": "e2e/test_hooks.py",
    "mbx.cli.commands.pair": "e2e/test_pairing.py",
    "mbx.cli.commands.policy": "cli/test_authority.py",
    "mbx.cli.commands.service": "cli/test_service.py",
    "mbx.cli.commands.takeover": "cli/test_authority.py",
    "mbx.owner.seat": "cli/test_owner.py",
    "mbx.daemon.addressing": "daemon/test_addressing.py",
    "mbx.daemon.app": "daemon/test_start_stop.py",
    "mbx.daemon.applying": "daemon/test_applying.py",
    "mbx.daemon.authority": "daemon/test_applying.py",
    "mbx.daemon.booting": "daemon/test_start_stop.py",
    "mbx.daemon.budget": "daemon/test_mail_methods.py",
    "mbx.daemon.chainlist": "daemon/test_following.py",
    "mbx.daemon.context": "daemon/test_dispatch.py",
    "mbx.daemon.directory": "daemon/test_relaying.py",
    "mbx.daemon.displacing": "daemon/test_applying.py",
    "mbx.daemon.drafting": "daemon/test_applying.py",
    "mbx.daemon.faces.local": "daemon/test_local_face.py",
    "mbx.daemon.granting": "daemon/test_identity_methods.py",
    "mbx.daemon.host": "daemon/test_start_stop.py",
    "mbx.daemon.hostmail": "daemon/test_relaying.py",
    "mbx.daemon.listing": "daemon/test_history.py",
    "mbx.daemon.mailboxes": "daemon/test_mail_methods.py",
    "mbx.daemon.network": "e2e/test_links.py",
    "mbx.daemon.relay": "e2e/test_links.py",
    "mbx.daemon.faces.mcp": "e2e/test_mcp.py",
    "mbx.daemon.faces.party": "daemon/test_local_face.py",
    "mbx.daemon.faces.peers": "e2e/test_links.py",
    "mbx.daemon.faces.networks": "e2e/test_links.py",
    "mbx.daemon.faces.channels": "e2e/test_links.py",
    "mbx.daemon.methods.agents": "daemon/test_agents.py",
    "mbx.daemon.methods.daemon": "daemon/test_start_stop.py",
    "mbx.daemon.methods.identity": "daemon/test_identity_methods.py",
    "mbx.daemon.methods.mail": "daemon/test_mail_methods.py",
    "mbx.daemon.methods.mailbox": "daemon/test_mail_methods.py",
    "mbx.daemon.methods.owner": "daemon/test_applying.py",
    "mbx.daemon.methods.pairing": "daemon/test_pairings.py",
    "mbx.daemon.methods.policy": "daemon/test_applying.py",
    "mbx.daemon.methods.peers": "daemon/test_unpairing.py",
    "mbx.daemon.peerlabels": "daemon/test_unpairing.py",
    "mbx.daemon.peerlist": "daemon/test_unpairing.py",
    "mbx.daemon.proven": "daemon/test_pairings.py",
    "mbx.daemon.sequels": "daemon/test_pairings.py",
    "mbx.daemon.methods.session": "e2e/test_callers.py",
    "mbx.daemon.methods.table": "daemon/test_dispatch.py",
    "mbx.daemon.privatefile": "daemon/test_keystore.py",
    "mbx.daemon.posting": "daemon/test_mail_methods.py",
    "mbx.daemon.resuming": "daemon/test_resuming.py",
    "mbx.daemon.watching": "e2e/test_watch.py",
    "mbx.daemon.wakes.claude": "e2e/test_wakes.py",
    "mbx.daemon.wakes.codex": "e2e/test_wakes.py",
    "mbx.daemon.wakes.brakes": "daemon/test_wakes.py",
    "mbx.daemon.wakes.command": "e2e/test_wakes.py",
    "mbx.daemon.wakes.kimi": "e2e/test_kimi_web.py",
    "mbx.daemon.wakes.opencode": "e2e/test_offers.py",
    "mbx.hooks.waiting": "e2e/test_waiting_hooks.py",
    "mbx.daemon.offers": "e2e/test_offers.py",
    "mbx.daemon.methods.wake": "e2e/test_offers.py",
    "mbx.seclusion": "owner/test_seclusion.py",
    "mbx.store.waiting": "daemon/test_resuming.py",
    "mbx.daemon.reaching": "daemon/test_following.py",
    "mbx.store.followed": "daemon/test_following.py",
    "mbx.cli.commands.setup": "cli/test_setup.py",
    "mbx.setup.plan": "setup/test_installer.py",
    "mbx.setup.scripts": "cli/test_setup.py",
    "mbx.setup.wishes": "setup/test_installer.py",
}


# --- size, names, documentation ------------------------------------------------------------------


def span(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def no_function_is_too_long(module: Module) -> Findings:
    for function in module.functions:
        if span(function) > FUNCTION_MAX_LINES:
            yield f"line {function.lineno}: {function.name} has {span(function)} lines"


def no_file_is_too_long(module: Module) -> Findings:
    lines = module.source.count("\n")
    if lines > FILE_MAX_LINES:
        yield f"{lines} lines"


def modules_are_named_by_nouns(module: Module) -> Findings:
    for part in module.name.split("."):
        if FORBIDDEN_NAMES.search(part):
            yield f"{part} says nothing about what is in it"


def undocumented(owner: ast.Module | ast.ClassDef, prefix: str) -> Findings:
    for node in owner.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        overload = any(dotted(mark).endswith("overload") for mark in node.decorator_list)
        setter = any(dotted(mark).endswith(".setter") for mark in node.decorator_list)
        if node.name.startswith("_") or overload or setter:
            continue
        if not ast.get_docstring(node):
            yield f"line {node.lineno}: {prefix}{node.name} has no docstring"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node, f"{prefix}{node.name}.")


def everything_public_is_documented(module: Module) -> Findings:
    if not ast.get_docstring(module.tree):
        yield "the module has no docstring"
    yield from undocumented(module.tree, "")


def constant_names(node: ast.stmt) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
    named = [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in named if not name.startswith("_") and name != "TYPE_CHECKING"]


def speaks_for_itself(value: ast.expr | None) -> bool:
    """A word, a closed list of words as a type, a type variable: name and value say it all."""
    if isinstance(value, ast.Call):
        return dotted(value.func) in {"TypeVar", "ParamSpec"}
    if isinstance(value, ast.Subscript):
        return dotted(value.value) == "Literal"
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def paragraph(lines: list[str], first: int, last: int) -> range:
    """The numbers of the lines around lines `first` to `last` up to an empty line on both sides."""
    while first > 1 and lines[first - 2]:
        first -= 1
    while last < len(lines) and lines[last]:
        last += 1
    return range(first, last + 1)


def constants_are_documented(module: Module) -> Findings:
    """By a string below or a comment, once in a paragraph: numbers and tables have a source."""
    lines = [line.strip() for line in module.source.splitlines()]
    notes = {line for line, _ in module.comments}
    notes |= {getattr(text, "lineno", 0) for text in module.docstrings}
    for node in module.tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or speaks_for_itself(node.value):
            continue
        names = constant_names(node)
        if names and not notes & set(paragraph(lines, node.lineno, node.end_lineno or 0)):
            yield f"line {node.lineno}: {names} has no comment and no docstring"


def ignores_name_what_they_ignore(module: Module) -> Findings:
    for line, comment in module.comments:
        if re.search(r"#\s*type:\s*ignore(?!\[)", comment) or re.search(
            r"#\s*noqa(?!:)", comment, re.IGNORECASE
        ):
            yield f"line {line}: {comment}"


# --- tests ---------------------------------------------------------------------------------------


def no_test_sleeps(module: Module) -> Findings:
    for node in module.nodes:
        if not isinstance(node, ast.Call) or not dotted(node.func).endswith("sleep"):
            continue
        name = dotted(node.func)
        yields = len(node.args) == 1 and ast.unparse(node.args[0]) == "0"
        if name == "time.sleep" or (name in {"asyncio.sleep", "sleep"} and not yields):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def no_test_mocks(module: Module) -> Findings:
    for line, target in module.imports:
        if target.startswith(("unittest.mock", "mock.", "pytest_mock")):
            yield f"line {line}: {target}"


def no_test_compares_the_time_of_the_last_access(module: Module) -> Findings:
    """A whole stat result has it, and any reader moves it on: compare what `entry_of` keeps."""
    parts = {node.value for node in module.nodes if isinstance(node, ast.Attribute)}
    for compared in (node for node in module.nodes if isinstance(node, ast.Compare)):
        calls = [node for node in ast.walk(compared) if isinstance(node, ast.Call)]
        for node in calls:
            name = dotted(node.func).split(".")[-1]
            if name in {"stat", "lstat", "fstat"} and node not in parts:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def each_test_name_is_a_sentence(module: Module) -> Findings:
    for function in module.functions:
        words = function.name.split("_")
        if words[0] == "test" and len(words) < 4:
            yield f"line {function.lineno}: {function.name}"


# --- the rules, and the proof that each bites ----------------------------------------------------


def long_function(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


RULES = [
    Rule(
        no_function_is_too_long,
        [*MBX, *TESTS, *SCRIPTS],
        bad=[("mbx.core.x", long_function(81)), ("mbx.core.x", "async " + long_function(81))],
        good=[("mbx.core.x", long_function(80))],
    ),
    Rule(
        no_file_is_too_long,
        [*MBX, *TESTS, *SCRIPTS],
        bad=[("mbx.core.x", "x = 1\n" * 601)],
        good=[("mbx.core.x", "x = 1\n" * 600)],
    ),
    Rule(
        modules_are_named_by_nouns,
        [*MBX, *TESTS],
        bad=[("mbx.core.utils", ""), ("mbx.store.mail_helpers", ""), ("mbx.lease_manager", "")],
        good=[("mbx.core.lease", "")],
    ),
    Rule(
        everything_public_is_documented,
        MBX,
        bad=[
            ("mbx.core.x", "import re"),
            ("mbx.core.x", "'''Doc.'''\ndef f(): pass"),
            ("mbx.core.x", "'''Doc.'''\nclass C:\n    '''Doc.'''\n    def m(self): pass"),
        ],
        good=[("mbx.core.x", "'''Doc.'''\ndef _f(): pass\nclass C:\n    '''Doc.'''")],
    ),
    Rule(
        constants_are_documented,
        MBX,
        bad=[("mbx.core.x", "# Other.\n\nMAX = 1"), ("mbx.core.x", "MAX: int = 1")],
        good=[
            ("mbx.core.x", "# Bytes.\nMAX = 1\nMIN = 0\n"),
            ("mbx.core.x", "MAX = 1\n'''Bytes.'''\n\nMIN = 0  # bytes\n\n_own = 3"),
            ("mbx.core.x", "WORD = 'word'\nKind = Literal['a', 'b']\nT = TypeVar('T')"),
        ],
    ),
    Rule(
        ignores_name_what_they_ignore,
        [*MBX, *TESTS, *SCRIPTS],
        bad=[("mbx.core.x", "x = 1  # type: ignore"), ("mbx.core.x", "x = 1  # noqa")],
        good=[("mbx.core.x", "x = 1  # type: ignore[misc]\ny = '# type: ignore'  # noqa: S101")],
    ),
    Rule(
        no_test_sleeps,
        TESTS,
        bad=[
            ("tests.test_x", "import time\ntime.sleep(0)"),
            ("tests.test_x", "async def f():\n    await asyncio.sleep(0.1)"),
        ],
        good=[("tests.test_x", "async def f():\n    await asyncio.sleep(0)")],
    ),
    Rule(
        no_test_mocks,
        TESTS,
        bad=[("tests.test_x", "from unittest import mock"), ("tests.test_x", "import mock.x")],
        good=[("tests.test_x", "import unittest")],
    ),
    Rule(
        no_test_compares_the_time_of_the_last_access,
        TESTS,
        bad=[
            ("tests.test_x", "assert path.lstat() == before"),
            ("tests.test_x", "assert (os.stat(path), 1) == before"),
        ],
        good=[("tests.test_x", "assert path.stat().st_ino == before.inode")],
    ),
    Rule(
        each_test_name_is_a_sentence,
        TESTS,
        bad=[("tests.test_x", "def test_send(): pass"), ("tests.test_x", "def test_a_b(): pass")],
        good=[("tests.test_x", "def test_a_send_survives(): pass\ndef testing(): pass")],
    ),
]


@pytest.mark.long  # the first one reads and parses all modules
@pytest.mark.timeout(120)
@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    assert findings(rule) == []


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_rule_refuses_each_of_its_bad_samples(rule: Rule) -> None:
    assert rule.bad
    assert missed(rule) == []


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_rule_lets_its_good_samples_pass(rule: Rule) -> None:
    assert false_alarms(rule) == []


def test_each_limit_names_its_unit_or_is_a_count() -> None:
    units = ("_BYTES", "_CHARS", "_DAYS", "_MS", "_ROWS", "_S")
    counts = ("_MAX", "_UNITS", "_KEPT")
    numbers = [name for name, value in vars(limits).items() if type(value) is int]
    assert [name for name in numbers if not name.endswith(units + counts)] == []


def share_of_usual_functions(modules: list[Module]) -> float:
    """Per cent of the functions that have fewer than 40 lines; 100 when there are none."""
    spans = [span(function) for module in modules for function in module.functions]
    usual = sum(lines < FUNCTION_USUAL_LINES for lines in spans)
    return 100 * usual / len(spans) if spans else 100


def test_nine_functions_in_ten_are_under_forty_lines() -> None:
    assert share_of_usual_functions(MBX) >= FUNCTION_USUAL_PERCENT


def test_the_share_of_short_functions_counts_long_ones() -> None:
    short, long = Module("mbx.a", long_function(39)), Module("mbx.b", long_function(40))
    assert share_of_usual_functions([short] * 9 + [long]) == 90
    assert share_of_usual_functions([short] * 8 + [long] * 2) < FUNCTION_USUAL_PERCENT


def untested(modules: list[Module], tests: dict[str, list[str]]) -> list[str]:
    """The modules that no test imports and no test file mirrors.

    `tests` maps the path of each test file below tests/ to the dotted names that it imports.
    """
    imported = {name for names in tests.values() for name in names}
    missing = []
    for module in modules:
        *folders, last = module.name.split(".")[1:] or [""]
        mirrors = {"/".join([*part, f"test_{last}.py"]) for part in (folders, folders[:1])}
        named = any(one == module.name or one.startswith(module.name + ".") for one in imported)
        if not (named or mirrors & set(tests) or COVERED_BY.get(module.name) in tests):
            missing.append(module.name)
    return missing


def test_every_module_has_a_test_that_names_it() -> None:
    tests = {
        module.name.removeprefix("tests.").replace(".", "/") + ".py": [
            target for _, target in module.imports
        ]
        for module in TESTS
        if module.name.split(".")[-1].startswith("test_")
    }
    packages = {path.parent for path in (ROOT / "mbx").rglob("__init__.py")}
    names = {".".join(path.relative_to(ROOT).parts) for path in packages}
    code = [one for one in MBX if one.name not in names and not one.name.endswith("__main__")]
    assert untested(code, tests) == []
    assert [path for path in COVERED_BY.values() if path not in tests] == []


def test_a_module_without_a_test_is_found() -> None:
    lease, send = Module("mbx.core.lease", ""), Module("mbx.cli.commands.send", "")
    assert untested([lease], {}) == ["mbx.core.lease"]
    assert untested([lease], {"core/test_record.py": ["mbx.core.record.sign"]}) != []
    assert untested([lease], {"core/test_x.py": ["mbx.core.lease"]}) == []
    assert untested([lease], {"core/test_lease.py": []}) == []
    assert untested([send], {"cli/test_send.py": []}) == []


def test_the_clock_says_nothing_of_a_property() -> None:
    """A moment in which the machine stood still would fail it, one time in many."""
    of_every_test = settings()
    assert of_every_test.deadline is None
    assert HealthCheck.too_slow in of_every_test.suppress_health_check
