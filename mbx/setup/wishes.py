"""What should stand in a document, or no longer stand there, as steps; pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mbx.setup.entries import Whose
from mbx.setup.steps import (
    NOTHING,
    Append,
    Language,
    Path,
    Put,
    Refused,
    Remove,
    Step,
    at,
    carried_out,
    named,
)

Judge = Callable[[object], Whose]
"""Says whose an entry is."""

OURS_IN_ENVIRON: Final = ("MBX_HOME", "MBX_RUN")
"""What an entry's environment must not say when the installation is the usual one."""


class Member(NamedTuple):
    """One member of an object is ours: server entries, status lines.

    What people added to it stays. `gives_way`: what is there and is not ours stays as it is.
    """

    path: Path
    value: Mapping[str, Any]
    whose: Judge
    gives_way: bool = False
    environ: str = "env"


class Element(NamedTuple):
    """One element of a list is ours: hooks. `within`: it is a group that holds hooks itself."""

    path: Path
    value: Mapping[str, Any]
    whose: Judge
    within: str | None = None
    event: str | None = None
    """Where elements of several events share one list: only those of this event count."""


class Constant(NamedTuple):
    """A member that a file of this sort must have, such as its version; it goes if we added it."""

    path: Path
    value: Any


Wish = Member | Element | Constant
"""One entry of ours."""


class Outcome(NamedTuple):
    """The text as wished, which containers had to be made for it, and what people should know."""

    text: str
    made: tuple[Path, ...]
    notes: tuple[str, ...]


def fulfilled(language: Language, text: str, wishes: tuple[Wish, ...]) -> Outcome:
    """The text with all that is wished. Raises Refused."""
    made: list[Path] = []
    notes: list[str] = []
    for wish in wishes:
        before = language.read(text)
        steps = list(_wanted(before, wish, notes))
        text = carried_out(language, text, steps)
        if steps:
            made += _missing(before, wish.path[:-1] if isinstance(wish, Member) else wish.path)
    return Outcome(text, tuple(dict.fromkeys(made)), tuple(dict.fromkeys(notes)))


def undone(
    language: Language, text: str, wishes: tuple[Wish, ...], made: tuple[Path, ...]
) -> Outcome:
    """The text without what is ours, and without those containers of `made` that are empty then."""
    notes: list[str] = []
    constants = {one.path: (one.value,) for one in wishes if isinstance(one, Constant)}
    for wish in reversed(wishes):
        steps = list(_unwanted(language.read(text), wish, notes))
        text = carried_out(language, text, steps)
    for path in sorted(made, key=len, reverse=True):
        if at(language.read(text), path) in ({}, [], *constants.get(path, ())):
            rest = carried_out(language, text, [Remove(path)])
            text = rest if remarks(rest) == remarks(text) else text
    return Outcome(text, (), tuple(dict.fromkeys(notes)))


def remarks(text: str) -> int:
    """How many marks of remarks there are: what holds one that people wrote is not empty.

    A mark within a text counts too, so this is to be compared, or asked of what says nothing else.
    """
    return sum(map(text.count, ("//", "/*", "#")))


def is_there(language: Language, text: str, wishes: tuple[Wish, ...]) -> bool:
    """Whether any entry of this installation is there. Raises Refused."""
    return any(any(_unwanted(language.read(text), wish, [])) for wish in wishes)


def _wanted(data: Any, wish: Wish, notes: list[str]) -> Iterator[Step]:
    if isinstance(wish, Constant):
        if at(data, wish.path) is NOTHING:
            yield Put(wish.path, wish.value)
    elif isinstance(wish, Member):
        yield from _wanted_member(data, wish, notes)
    else:
        yield from _wanted_element(data, wish, notes)


def _wanted_member(data: Any, wish: Member, notes: list[str]) -> Iterator[Step]:
    found = at(data, wish.path)
    if found is NOTHING:
        yield Put(wish.path, dict(wish.value))
        return
    whose = wish.whose(found)
    if whose == "foreign":
        if not wish.gives_way:
            raise Refused(f"{named(wish.path)} is there already, and is not of mbx")
        notes.append(f"{named(wish.path)}: yours stays")
        return
    if whose == "another's":
        notes.append(f"{named(wish.path)}: was of another mbx home")
    yield from _mended(found, wish, notes)


def _mended(found: Any, wish: Member, notes: list[str]) -> Iterator[Step]:
    """What of our entry is not as it should be; what people added stays."""
    if wish.value.get("command") != found.get("command") is not None and not wish.gives_way:
        notes.append(f"{named(wish.path)}.command: was {found['command']}")
    for key, value in wish.value.items():
        if key == wish.environ and isinstance(found.get(key), dict):
            for name, text in value.items():
                if found[key].get(name) != text:
                    yield Put((*wish.path, key, name), text)
        elif found.get(key, NOTHING) != value:
            yield Put((*wish.path, key), value)
    given = found.get(wish.environ)
    for name in OURS_IN_ENVIRON if isinstance(given, dict) else ():
        if name in given and name not in wish.value.get(wish.environ, {}):
            yield Remove((*wish.path, wish.environ, name))


def _wanted_element(data: Any, wish: Element, notes: list[str]) -> Iterator[Step]:
    places = _places(data, wish)
    if any(whose == "another's" for _, whose in places):
        notes.append(f"{named(wish.path)}: was of another mbx home")
    if not places:
        yield Append(wish.path, dict(wish.value))
        return
    first, _ = places[0]
    is_part = len(first) > len(wish.path) + 1  # people moved it into a group of their own
    value = wish.value[wish.within][0] if is_part and wish.within else dict(wish.value)
    if not _holds(at(data, first), value):
        yield Put(first, value)
    for path, _ in reversed(places[1:]):
        yield Remove(path)


def _holds(found: Any, value: Any) -> bool:
    """Whether everything of `value` is in `found`, which people may have added to."""
    if isinstance(value, dict):
        return isinstance(found, dict) and all(
            key in found and _holds(found[key], one) for key, one in value.items()
        )
    if isinstance(value, list) and isinstance(found, list):
        return len(found) == len(value) and all(map(_holds, found, value))
    return bool(found == value)


def _unwanted(data: Any, wish: Wish, notes: list[str]) -> Iterator[Step]:
    if isinstance(wish, Constant):
        return
    if isinstance(wish, Member):
        found = at(data, wish.path)
        if found is NOTHING:
            return
        whose = wish.whose(found)
        if whose == "mine":
            yield Remove(wish.path)
        elif whose == "another's":
            notes.append(f"{named(wish.path)}: is of another mbx home and stays")
        return
    for path, whose in reversed(_places(data, wish)):
        if whose == "mine":
            yield Remove(path)
        else:
            notes.append(f"{named(wish.path)}: one of another mbx home stays")


def _places(data: Any, wish: Element) -> list[tuple[Path, Whose]]:
    """Where entries of mbx stand: whole elements, or parts of groups that hold others too."""
    listed = at(data, wish.path)
    if listed is NOTHING:
        return []
    if not isinstance(listed, list):
        raise Refused(f"{named(wish.path)} is not a list")
    found: list[tuple[Path, Whose]] = []
    for number, element in enumerate(listed):
        path = (*wish.path, number)
        if wish.within is None:
            is_of_event = wish.event is None or (
                isinstance(element, dict) and element.get("event") == wish.event
            )
            whose = wish.whose(element)
            if whose != "foreign" and is_of_event:
                found.append((path, whose))
            continue
        inner = element.get(wish.within) if isinstance(element, dict) else None
        judged = [wish.whose(one) for one in inner] if isinstance(inner, list) else []
        ours = [at_ for at_, whose in enumerate(judged) if whose != "foreign"]
        if ours and len(ours) == len(judged) == 1:
            found.append((path, judged[0]))
        else:
            found += [((*path, wish.within, at_), judged[at_]) for at_ in ours]
    return found


def _missing(data: Any, path: Path) -> Iterator[Path]:
    """The containers on the way to a path that are not there."""
    for length in range(1, len(path) + 1):
        if at(data, path[:length]) is NOTHING:
            yield path[:length]
