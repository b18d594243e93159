"""The budget of bytes of one answer: whoever lists stops before it and says where to go on."""

import json
from typing import Final

from mbx.core.limits import ANSWER_MAX_BYTES

_SLACK_BYTES: Final = 16 * 1024
"""What the rest of an answer, around its list, may take."""


class Budget:
    """What is left of one answer, in bytes of JSON."""

    def __init__(self) -> None:
        self.left_bytes = ANSWER_MAX_BYTES - _SLACK_BYTES

    def take(self, value: object) -> bool:
        """Count `value` in. False when there was no room for it; then nothing more has any."""
        self.left_bytes -= json_bytes(value)
        return self.left_bytes >= 0


def json_bytes(value: object) -> int:
    """The bytes that `value` takes in an answer, escapes and all."""
    return len(json.dumps(value, ensure_ascii=False).encode())
