"""Parameters of a call, strictly: the right types, within limits, nothing unknown."""

from collections.abc import Collection, Mapping, Sequence

from mbx.core.errors import MbxError
from mbx.core.limits import IDEMPOTENCY_KEY_MAX_CHARS, LIST_DEFAULT_ROWS, LIST_MAX_ROWS


class Params:
    """Reads a call's parameters one by one; `finish` refuses what nobody asked for.

    Every reader raises MbxError usage naming the parameter, or too-many for a long list.
    """

    def __init__(self, given: object) -> None:
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            raise MbxError("usage", "params must be an object with named parameters")
        self._given: dict[str, object] = dict(given)

    def string(self, name: str) -> str:
        """A required string."""
        value = self._given.pop(name, None)
        if not isinstance(value, str):
            raise MbxError("usage", f"{name} is required and must be a string")
        return value

    def optional_string(self, name: str) -> str | None:
        """A string, or None when absent or null."""
        value = self._given.pop(name, None)
        if value is not None and not isinstance(value, str):
            raise MbxError("usage", f"{name} must be a string")
        return value

    def boolean(self, name: str) -> bool:
        """True or false; absent or null is false."""
        value = self._given.pop(name, None)
        if value is not None and not isinstance(value, bool):
            raise MbxError("usage", f"{name} must be true or false")
        return bool(value)

    def integer(self, name: str, default: int, low: int, high: int) -> int:
        """An integer from `low` to `high`."""
        value = self._given.pop(name, None)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise MbxError("usage", f"{name} must be a whole number from {low} to {high}")
        return value

    def rows(self) -> int:
        """The parameter `limit` of a list."""
        return self.integer("limit", LIST_DEFAULT_ROWS, 1, LIST_MAX_ROWS)

    def strings(self, name: str, most: int, *, required: bool = False) -> tuple[str, ...]:
        """A list of at most `most` strings; one string counts as a list of one."""
        value = self._given.pop(name, None)
        if value is None:
            value = []
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise MbxError("usage", f"{name} must be a list of strings")
        if len(value) > most:
            words = f"{name} has {len(value)} entries, {most} are allowed"
            raise MbxError("too-many", words, f"give {most} at most", limit=most)
        if required and not value:
            raise MbxError("usage", f"{name} needs at least one entry")
        return tuple(value)

    def mapping(self, name: str, fields: Sequence[str]) -> Mapping[str, object]:
        """A required object with exactly these fields."""
        value = self._given.pop(name, None)
        if not isinstance(value, Mapping) or set(value) != set(fields):
            raise MbxError("usage", f"{name} must be an object with {', '.join(fields)}")
        return value

    def choice(self, name: str, choices: Collection[str]) -> str | None:
        """One of `choices`, or None when absent."""
        value = self.optional_string(name)
        if value is not None and value not in choices:
            raise MbxError("usage", f"{name} must be one of {', '.join(sorted(choices))}")
        return value

    def key(self) -> str | None:
        """The idempotency key: 1 to 128 printable ASCII characters."""
        value = self.optional_string("key")
        if value is None:
            return None
        if not (1 <= len(value) <= IDEMPOTENCY_KEY_MAX_CHARS and value.isascii()):
            raise _bad_key()
        if not value.isprintable():
            raise _bad_key()
        return value

    def finish(self) -> None:
        """Refuse parameters that the method does not know."""
        if self._given:
            unknown = ", ".join(sorted(repr(name)[:40] for name in self._given)[:5])
            raise MbxError("usage", f"unknown parameter {unknown}")


def _bad_key() -> MbxError:
    return MbxError(
        "text-invalid", f"key must be 1 to {IDEMPOTENCY_KEY_MAX_CHARS} printable ASCII characters"
    )
