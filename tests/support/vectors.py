"""Published test vectors as pytest parameters."""

import base64
import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"


def json_cases() -> list[tuple[str, bytes]]:
    """(name, bytes) of every parsing case of the JSON test suite."""
    suite = json.loads((VECTORS / "jsontestsuite/parsing.json").read_bytes())
    return [(case["name"], _content(case)) for case in suite["parsing"]]


def _content(case: dict[str, Any]) -> bytes:
    if "b64" in case:
        return base64.b64decode(case["b64"])
    repeated = base64.b64decode(case["repeat_b64"]) * int(case["count"])
    return repeated + base64.b64decode(case.get("tail_b64", ""))
