"""Reading our own files as syntax trees, and rules about them that prove that they bite."""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

Findings = Iterator[str]


@dataclass(frozen=True)
class Module:
    """One file of ours: its dotted name, its text and its syntax tree."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """(line, dotted name) of all that is imported, wherever it stands in the file."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
                found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
        return found

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return [node for node in self.nodes if isinstance(node, kinds)]

    @cached_property
    def docstrings(self) -> set[ast.AST]:
        """The constants that are docstrings, of definitions and of the names above them."""
        return {
            node.value
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }

    @cached_property
    def texts(self) -> list[tuple[int, str]]:
        """(line, text) of each string literal that is not a docstring."""
        return [
            (node.lineno, node.value)
            for node in self.nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in self.docstrings
        ]

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        tokens = tokenize.generate_tokens(io.StringIO(self.source).readline)
        return [
            (token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT
        ]

    def within(self, *parts: str) -> bool:
        return any(self.name == part or self.name.startswith(part + ".") for part in parts)


def read_module(path: Path) -> Module:
    names = list(path.relative_to(ROOT).with_suffix("").parts)
    if names[-1] == "__init__":
        names.pop()
    return Module(".".join(names), path.read_text(encoding="utf-8"))


def is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        return b"python" in file.readline() and not path.suffix


def dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute chain; calls within it are written `a().b`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True)
class Rule:
    """A check, the modules it is for, and (name, source) samples that it refuses or lets pass."""

    check: Callable[[Module], Findings]
    modules: list[Module]
    bad: list[tuple[str, str]]
    good: list[tuple[str, str]]


def name_of(rule: Rule) -> str:
    """The name of a rule in the output of pytest."""
    return rule.check.__name__


def findings(rule: Rule) -> list[str]:
    """All that the rule finds wrong in the modules that it is for."""
    return [f"{module.name}: {what}" for module in rule.modules for what in rule.check(module)]


def missed(rule: Rule) -> list[tuple[str, str]]:
    """The bad samples in which the rule finds nothing: a rule that no longer bites."""
    return [sample for sample in rule.bad if not list(rule.check(Module(*sample)))]


def false_alarms(rule: Rule) -> list[str]:
    """All that the rule finds wrong in its good samples."""
    return [what for sample in rule.good for what in rule.check(Module(*sample))]


MBX = [read_module(path) for path in sorted((ROOT / "mbx").rglob("*.py"))]
TESTS = [read_module(path) for path in sorted((ROOT / "tests").rglob("*.py"))]
SCRIPTS = [
    read_module(path)
    for path in sorted((ROOT / "scripts").iterdir())
    if path.is_file() and is_python(path)
]
