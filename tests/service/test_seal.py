"""A file that mbx wrote is told from one that somebody changed, and from those of others."""

from mbx.service.seal import PLACE, WRITTEN_BY, sealed, version_of, whose

TEXT = f"# {WRITTEN_BY} (mbx 1.2.3)\n# sha256 {PLACE}\nbody\n"


def test_a_sealed_text_is_ours_and_says_its_version() -> None:
    text = sealed(TEXT)
    assert PLACE not in text
    assert (whose(text), version_of(text)) == ("ours", "1.2.3")


def test_any_change_of_any_part_is_seen() -> None:
    text = sealed(TEXT)
    digest = text.split("sha256 ")[1][:64]
    for old, new in (("body", "Body"), ("1.2.3", "1.2.4"), ("body\n", "body"), ("# sha", "#  sha")):
        assert whose(text.replace(old, new)) == "changed", old
    assert whose(text.replace(digest, "0" * 64)) == "changed"
    assert whose(f"{text}more") == "changed"


def test_what_lacks_our_words_or_a_digest_is_of_others() -> None:
    text = sealed(TEXT)
    for other in ("", "body", text.replace(WRITTEN_BY, "by hand"), TEXT, text.replace("256", "25")):
        assert whose(other) == "foreign", other
    assert version_of("body") is None
