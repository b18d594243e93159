"""Agent CLIs that are known by a title of several words, beside `test_evidence.py`."""

import pytest

from mbx.core.evidence import ProcessEntry, harness_of


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("Kimi Code",), "kimi"),
        (("Kimi Code", "", "", ""), "kimi"),  # the room that its command line had
        (("Kimi Codex",), None),
        (("Kimi",), None),
        (("/opt/Kimi Code",), None),
    ],
)
def test_only_the_whole_title_names_the_client(argv: tuple[str, ...], found: str | None) -> None:
    assert harness_of(ProcessEntry(5, 1, 50, "Kimi Code", argv)) == found
