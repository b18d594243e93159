"""What may touch what in mbx, told as rules over syntax trees.

What may import what is the table below: what is not written there is forbidden. Each rule stands in
`RULES` beside samples that it must refuse and samples that it must let pass, so that a rule which
no longer bites fails too.
"""

import ast
import re
import sys

import pytest

from tests.support.rules import (
    MBX,
    ROOT,
    Findings,
    Module,
    Rule,
    dotted,
    false_alarms,
    findings,
    missed,
    name_of,
)

# Importer -> the parts of mbx that it may import. The longest matching importer counts; "mbx" as a
# target is the version and the number of the local protocol, nothing else.
LAYERS: dict[str, set[str]] = {
    "mbx": set(),
    "mbx.__main__": {"mbx", "mbx.cli", "mbx.connector", "mbx.hooks", "mbx.run"},
    "mbx.core": {"mbx.core"},
    "mbx.store": {"mbx.core", "mbx.store"},
    "mbx.daemon": {
        "mbx",
        "mbx.core",
        "mbx.store",
        "mbx.daemon",
        "mbx.kernel",
        "mbx.nullsignal",
        "mbx.mcp",
        "mbx.mcp.guide",
        "mbx.paths",
        "mbx.seclusion",
        "mbx.telling",
        "mbx.wire",
    },
    "mbx.descriptors": set(),
    "mbx.hooks": {
        "mbx",
        "mbx.core",
        "mbx.descriptors",
        "mbx.hooks",
        "mbx.paths",
        "mbx.telling",
        "mbx.wire",
    },
    "mbx.telling": {"mbx.core"},
    "mbx.connector": {
        "mbx.client",
        "mbx.core",
        "mbx.descriptors",
        "mbx.launch",
        "mbx.mcp",
        "mbx.paths",
        "mbx.project",
        "mbx.wire",
    },
    "mbx.mcp": {"mbx", "mbx.core", "mbx.mcp", "mbx.mcp.guide"},
    "mbx.mcp.guide": set(),
    "mbx.project": {"mbx.core", "mbx.paths"},
    "mbx.kernel": {"mbx.core", "mbx.kernel", "mbx.nullsignal"},
    "mbx.nullsignal": set(),
    "mbx.paths": {"mbx.core"},
    "mbx.seclusion": set(),
    "mbx.wire": {"mbx", "mbx.core"},
    "mbx.client": {"mbx", "mbx.core", "mbx.paths", "mbx.wire"},
    "mbx.launch": {
        "mbx",
        "mbx.core",
        "mbx.paths",
        "mbx.wire",
        "mbx.client",
        "mbx.nullsignal",
    },
    "mbx.run": {"mbx", "mbx.core", "mbx.paths", "mbx.wire", "mbx.client", "mbx.launch"},
    "mbx.doctor": {
        "mbx",
        "mbx.core",
        "mbx.paths",
        "mbx.wire",
        "mbx.client",
        "mbx.doctor",
        "mbx.service",
        "mbx.setup",
        "mbx.setup.scripts",
    },
    "mbx.setup": {"mbx.core", "mbx.mcp.guide", "mbx.paths", "mbx.setup"},
    "mbx.setup.scripts": {"mbx.hooks", "mbx.paths", "mbx.setup"},
    "mbx.service": {
        "mbx",
        "mbx.core",
        "mbx.launch",
        "mbx.paths",
        "mbx.service",
        "mbx.setup",
    },
    "mbx.owner": {"mbx.core", "mbx.kernel", "mbx.paths", "mbx.seclusion", "mbx.owner"},
    "mbx.cli": {
        "mbx",
        "mbx.connector",
        "mbx.core",
        "mbx.mcp.guide",
        "mbx.paths",
        "mbx.project",
        "mbx.wire",
        "mbx.launch",
        "mbx.client",
        "mbx.run",
        "mbx.cli",
        "mbx.cli.authority",
        "mbx.cli.pairing",
        "mbx.cli.service",
    },
    "mbx.cli.commands.hook": {"mbx.core", "mbx.paths", "mbx.cli", "mbx.hooks"},
    "mbx.cli.commands.doctor": {
        "mbx.core",
        "mbx.paths",
        "mbx.client",
        "mbx.cli",
        "mbx.doctor",
    },
    "mbx.cli.service": {"mbx.client", "mbx.launch", "mbx.service", "mbx.cli"},
    "mbx.cli.commands.service": {
        "mbx.core",
        "mbx.wire",
        "mbx.cli",
        "mbx.cli.service",
        "mbx.service",
        "mbx.setup",
    },
    "mbx.cli.commands.setup": {
        "mbx.core",
        "mbx.paths",
        "mbx.wire",
        "mbx.cli",
        "mbx.setup",
        "mbx.setup.scripts",
    },
    "mbx.cli.authority": {"mbx.core", "mbx.paths", "mbx.wire", "mbx.cli", "mbx.owner"},
    "mbx.cli.pairing": {
        "mbx.core",
        "mbx.paths",
        "mbx.wire",
        "mbx.cli",
        "mbx.cli.authority",
        "mbx.owner",
    },
    "mbx.cli.commands.owner": {
        "mbx.core",
        "mbx.paths",
        "mbx.wire",
        "mbx.cli",
        "mbx.cli.authority",
        "mbx.owner",
    },
}

# Package from outside (or a standard module with one home) -> the only places that may import it.
HOMES: dict[str, set[str]] = {
    "aiosqlite": {"mbx.store.database", "mbx.store.migrate"},
    "sqlite3": {"mbx.store.database", "mbx.store.migrate"},
    "anyio": {"mbx.daemon.faces.mcp"},
    "click": {"mbx.cli"},
    "cryptography": {
        "mbx.core.keys",
        "mbx.daemon.certificates",
        "mbx.daemon.keystore",
        "mbx.owner.keyfile",
    },
    "mcp": {"mbx.daemon.faces.mcp"},
    "mcp_types": {"mbx.daemon.faces.mcp"},
    "orjson": {"mbx.daemon.codec"},
    "psutil": {"mbx.kernel.portable"},
    "pydantic": {"mbx.daemon.faces.mcp"},
    "ssl": {"mbx.daemon.certificates"},
    "tomlkit": {"mbx.setup.tomltext"},
    "uvloop": {"mbx.daemon.__main__"},
    "websockets": {"mbx.daemon.faces.channels"},
}

# The core does no I/O: these standard modules and no others. `hmac` computes like hashlib, and
# `ipaddress` reads texts: neither asks the machine for anything.
CORE_STDLIB = set(
    "__future__ abc base64 binascii bisect collections dataclasses datetime difflib enum functools "
    "hashlib heapq hmac ipaddress itertools json math operator re string struct textwrap types "
    "typing unicodedata".split()
)

# What the commands load must stay light (tests/test_surface.py weighs it).
HEAVY = {"asyncio", "pathlib"}
LIGHT = {
    "mbx",
    "mbx.__main__",
    "mbx.core",
    "mbx.paths",
    "mbx.wire",
    "mbx.launch",
    "mbx.client",
    "mbx.kernel",
    "mbx.nullsignal",
    "mbx.doctor",
    "mbx.cli",
    "mbx.cli.commands.doctor",
    "mbx.cli.commands.setup",
    "mbx.setup",
    "mbx.setup.scripts",
    "mbx.service",
    "mbx.owner",
    "mbx.cli.authority",
    "mbx.cli.service",
    "mbx.cli.commands.service",
    "mbx.cli.pairing",
    "mbx.cli.commands.owner",
    "mbx.connector",
    "mbx.descriptors",
    "mbx.hooks",
    "mbx.telling",
    "mbx.mcp",
    "mbx.mcp.guide",
    "mbx.project",
}

# Time and chance are arguments: one module reads them, and keys are made in another.
CLOCKS_AND_CHANCE = {"random", "secrets", "time", "uuid"}
CLOCK_READERS = {"mbx.daemon.world"}
CHANCE_READERS = CLOCK_READERS | {"mbx.daemon.keystore"}
CLOCK_CALLS = {"now", "today", "utcnow"}
TIMELESS = ("mbx.core", "mbx.store", "mbx.daemon", "mbx.kernel")

PRINTERS = {"mbx.cli.output"}
IMPORTERS_BY_NAME = {"mbx.__main__", "mbx.cli.main"}
SQL = re.compile(
    r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT"
    r"|RELEASE|REPLACE|VACUUM|ATTACH|WITH)\b"
)
SQL_CLOCK_OR_CHANCE = re.compile(
    r"\b(CURRENT_TIME(STAMP)?|CURRENT_DATE|(random|randomblob)\s*\()|'now'|\bunixepoch\s*\(\s*\)",
    re.IGNORECASE,
)


# --- imports -------------------------------------------------------------------------------------


def longest_match(name: str, table: dict[str, set[str]]) -> str | None:
    keys = [key for key in table if name == key or (key != "mbx" and name.startswith(key + "."))]
    return max(keys, key=len, default=None)


def imports_follow_the_layers(module: Module) -> Findings:
    importer = longest_match(module.name, LAYERS)
    if importer is None:
        yield f"{module.name} has no row in LAYERS"
        return
    for line, target in module.imports:
        if target.startswith("."):
            yield f"line {line}: relative import {target}"
        elif target.split(".")[0] == "mbx":
            part = longest_match(target, LAYERS) or "mbx"
            if part not in LAYERS[importer]:
                yield f"line {line}: {importer} may not import {target}"


def foreign_packages_stay_at_home(module: Module) -> Findings:
    for line, target in module.imports:
        package = target.split(".")[0]
        if package in HOMES:
            if not module.within(*HOMES[package]):
                yield f"line {line}: {package} belongs to {sorted(HOMES[package])}"
        elif package not in sys.stdlib_module_names and package not in {"mbx", "", "__future__"}:
            yield f"line {line}: {package} has no row in HOMES"


def core_does_no_io(module: Module) -> Findings:
    if not module.within("mbx.core"):
        return
    for line, target in module.imports:
        package = target.split(".")[0]
        if package in sys.stdlib_module_names and package not in CORE_STDLIB:
            yield f"line {line}: the core may not import {package}"
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id in {"open", "input", "print"}:
            yield f"line {node.lineno}: the core does no I/O: {node.id}"


def commands_stay_light(module: Module) -> Findings:
    if longest_match(module.name, LAYERS) in LIGHT:
        for line, target in module.imports:
            if target.split(".")[0] in HEAVY:
                yield f"line {line}: {target} is too heavy for a command"


def nothing_is_imported_by_a_computed_name(module: Module) -> Findings:
    if module.name not in IMPORTERS_BY_NAME:
        for node in module.nodes:
            if getattr(node, "attr", getattr(node, "id", "")) in {"import_module", "__import__"}:
                yield f"line {getattr(node, 'lineno', 0)}: import by name"
        for line, target in module.imports:
            if target == "importlib.import_module":
                yield f"line {line}: import by name"


# --- time, chance, output ------------------------------------------------------------------------


def time_and_chance_are_arguments(module: Module) -> Findings:
    if not module.within(*TIMELESS) or module.name in CLOCK_READERS:
        return
    keys_are_made_here = module.name in CHANCE_READERS
    for line, target in module.imports:
        package = target.split(".")[0]
        if package in CLOCKS_AND_CHANCE and not (keys_are_made_here and package == "secrets"):
            yield f"line {line}: import of {package}"
        if target in {"os.urandom", "os.getrandom"} and not keys_are_made_here:
            yield f"line {line}: import of {target}"
    for node in module.nodes:
        name = dotted(node) if isinstance(node, ast.Attribute) else ""
        owner, _, last = name.rpartition(".")
        drawn = name in {"os.urandom", "os.getrandom"} and not keys_are_made_here
        today = last in CLOCK_CALLS and owner.split(".")[-1] in {"datetime", "date"}
        if drawn or today or (last == "time" and "loop" in owner):
            yield f"line {getattr(node, 'lineno', 0)}: {name}"


def sql_reads_no_clock_and_no_chance(module: Module) -> Findings:
    if module.within("mbx.store"):
        for line, text in module.texts:
            if SQL.match(text) and SQL_CLOCK_OR_CHANCE.search(text):
                yield f"line {line}: {text.strip()[:60]!r}"


def only_the_output_module_prints(module: Module) -> Findings:
    if module.name not in PRINTERS:
        for node in module.nodes:
            if isinstance(node, ast.Name) and node.id == "print":
                yield f"line {node.lineno}: print"


# --- SQL -----------------------------------------------------------------------------------------


def sql_lives_in_the_store(module: Module) -> Findings:
    if not module.within("mbx.store"):
        for line, text in module.texts:
            if SQL.match(text):
                yield f"line {line}: SQL outside mbx/store: {text.strip()[:60]!r}"


def is_sql(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(is_sql(part) for part in node.values)
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and SQL.match(node.value) is not None
    )


def sql_is_never_put_together(module: Module) -> Findings:
    for node in module.nodes:
        if isinstance(node, ast.JoinedStr) and is_sql(node):
            yield f"line {node.lineno}: SQL in an f-string"
        elif isinstance(node, ast.BinOp) and (is_sql(node.left) or is_sql(node.right)):
            yield f"line {node.lineno}: SQL put together with an operator"
        elif isinstance(node, ast.Attribute) and is_sql(node.value):
            yield f"line {node.lineno}: SQL put together by .{node.attr}()"


# --- the rules, and the proof that each bites ----------------------------------------------------

RULES = [
    Rule(
        imports_follow_the_layers,
        MBX,
        bad=[
            ("mbx.core.lease", "from mbx.store import leases"),
            ("mbx.core.lease", "import mbx"),
            ("mbx.store.leases", "import mbx.daemon.world"),
            ("mbx.daemon.app", "from mbx.cli import main"),
            ("mbx.daemon.app", "from mbx import client"),
            ("mbx.cli.main", "def f():\n    from mbx.daemon.app import App"),
            ("mbx.client", "from mbx.store.database import Store"),
            ("mbx.core.lease", "from . import keys"),
            ("mbx.cli.output", "from mbx.doctor import verdict"),
            ("mbx.doctor.looking", "from mbx.store import health"),
            ("mbx.owner.signing", "from mbx.client import Client"),
            ("mbx.cli.authority", "from mbx.kernel import ancestry"),
            ("mbx.owner.keyfile", "from mbx.daemon import keystore"),
            ("mbx.daemon.authority", "from mbx.owner import keyfile"),
            ("mbx.cli.output", "from mbx.owner.terminal import Terminal"),
            ("mbx.daemon.app", "from mbx.hooks import scripts"),
            ("mbx.hooks.events", "from mbx.daemon import hooktool"),
            ("mbx.setup.plan", "from mbx.client import Client"),
            ("mbx.cli.output", "from mbx.setup import installer"),
            ("mbx.surprise", "import os"),
        ],
        good=[
            ("mbx.core.lease", "from mbx.core import keys\nimport mbx.core.limits"),
            ("mbx.daemon.app", "from mbx import __version__, paths"),
            ("mbx.cli.main", "from mbx.client import Client\nfrom mbx.run import run"),
            ("mbx.cli.commands.doctor", "from mbx.doctor import examination"),
            ("mbx.cli.authority", "def f():\n    from mbx.owner import signing"),
        ],
    ),
    Rule(
        foreign_packages_stay_at_home,
        MBX,
        bad=[
            ("mbx.core.record", "from cryptography.hazmat.primitives import hashes"),
            ("mbx.daemon.gate", "import sqlite3"),
            ("mbx.store.mail", "import aiosqlite"),
            ("mbx.client", "import click"),
            ("mbx.daemon.app", "import uvloop"),
            ("mbx.mcp.tools", "import mcp_types"),
            ("mbx.connector", "import mcp"),
            ("mbx.daemon.app", "import ssl"),
            ("mbx.cli.output", "import rich"),
            ("mbx.setup.installer", "import tomlkit"),
        ],
        good=[
            ("mbx.core.keys", "import cryptography.exceptions"),
            ("mbx.cli.commands.send", "import click\nimport os"),
            ("mbx.daemon.codec", "import orjson"),
        ],
    ),
    Rule(
        core_does_no_io,
        MBX,
        bad=[
            ("mbx.core.names", "import os"),
            ("mbx.core.names", "def f():\n    import logging"),
            ("mbx.core.names", "text = open('x').read()"),
        ],
        good=[
            ("mbx.core.names", "import re\nfrom typing import Final"),
            ("mbx.paths", "import os"),
        ],
    ),
    Rule(
        commands_stay_light,
        MBX,
        bad=[("mbx.client", "import asyncio"), ("mbx.cli.main", "from pathlib import Path")],
        good=[("mbx.daemon.app", "import asyncio"), ("mbx.client", "import socket")],
    ),
    Rule(
        nothing_is_imported_by_a_computed_name,
        MBX,
        bad=[
            ("mbx.daemon.app", "import importlib\nimportlib.import_module('x')"),
            ("mbx.store.mail", "from importlib import import_module"),
            ("mbx.core.text", "__import__('os')"),
        ],
        good=[("mbx.cli.main", "import importlib\nimportlib.import_module('x')")],
    ),
    Rule(
        time_and_chance_are_arguments,
        MBX,
        bad=[
            ("mbx.daemon.gate", "import time"),
            ("mbx.core.keys", "from secrets import token_bytes"),
            ("mbx.core.record", "import datetime\ndatetime.datetime.now()"),
            ("mbx.daemon.app", "import os\nos.urandom(16)"),
            ("mbx.daemon.app", "asyncio.get_running_loop().time()"),
            ("mbx.daemon.keystore", "import random"),
            ("mbx.store.mail", "from uuid import uuid4"),
        ],
        good=[
            ("mbx.daemon.world", "import time\nimport secrets"),
            ("mbx.daemon.keystore", "import secrets\nimport os\nos.urandom(32)"),
            ("mbx.client", "import time"),
            ("mbx.daemon.gate", "def f(world):\n    return world.now_ms()"),
        ],
    ),
    Rule(
        sql_reads_no_clock_and_no_chance,
        MBX,
        bad=[
            ("mbx.store.mail", "q = \"INSERT INTO t VALUES (strftime('%s', 'now'))\""),
            ("mbx.store.mail", "q = 'SELECT randomblob(16)'"),
        ],
        good=[("mbx.store.mail", "q = 'SELECT random_name FROM t WHERE at_ms < ?'")],
    ),
    Rule(
        only_the_output_module_prints,
        MBX,
        bad=[("mbx.cli.main", "print('x')"), ("mbx.daemon.app", "f(print)")],
        good=[("mbx.cli.output", "print('x')")],
    ),
    Rule(
        sql_lives_in_the_store,
        MBX,
        bad=[("mbx.daemon.gate", "q = 'SELECT 1'"), ("mbx.core.lease", "q = '\\n  PRAGMA x'")],
        good=[
            ("mbx.store.mail", "q = 'SELECT 1'"),
            ("mbx.daemon.gate", "'''SELECT is a word.'''\nx = 'Select a name'"),
        ],
    ),
    Rule(
        sql_is_never_put_together,
        MBX,
        bad=[
            ("mbx.store.mail", "q = f'SELECT {x}'"),
            ("mbx.store.mail", "q = f'{x} y' + 'SELECT 1'"),
            ("mbx.store.mail", "q = 'DELETE FROM %s' % t"),
            ("mbx.store.mail", "q = 'DELETE FROM {}'.format(t)"),
        ],
        good=[("mbx.store.mail", "q = 'SELECT a ' 'FROM t'\nx = f'unit {n}'")],
    ),
]


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


def test_migrations_read_no_clock_and_no_chance() -> None:
    migrations = sorted((ROOT / "mbx" / "store").rglob("*.sql"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in migrations}
    assert [name for name, text in texts.items() if SQL_CLOCK_OR_CHANCE.search(text)] == []
