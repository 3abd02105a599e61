"""Names at endpoints with folders of their own: nothing is lost, and the order stays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainshed.store.external.key_names import EscapedNames, PlainNames

KEYS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("/.-!\\[~_0 \n"),
    min_size=1,
    max_size=12,
)
NAMES = EscapedNames()


def as_folders_do(name: str) -> list[bytes]:
    """What a file system sorts by: one name after the other."""
    return [part.encode() for part in name.split("/")]


@given(KEYS)
def test_a_name_is_one_that_any_file_system_takes_and_tells_its_key(key: str) -> None:
    name = NAMES.encode(key)
    assert NAMES.decode(name) == key
    assert not any(part in ("", ".", "..") or "\\" in part for part in name.split("/"))
    assert name.isprintable() or not key.isprintable()
    assert name.startswith(NAMES.encode_prefix(key))


@given(st.lists(KEYS, min_size=2, max_size=8, unique=True))
def test_the_order_of_folders_is_the_order_of_keys(keys: list[str]) -> None:
    names = sorted((NAMES.encode(key) for key in keys), key=as_folders_do)
    assert [NAMES.decode(name) for name in names] == sorted(keys, key=str.encode)
    # No object is called like the folder of another.
    assert not any(one.startswith(two + "/") for one in names for two in names)


@given(KEYS, KEYS)
def test_a_folder_ends_where_it_should(folder: str, key: str) -> None:
    folder = folder.rstrip("/") + "/"
    behind = as_folders_do(NAMES.behind_folder(folder))
    assert as_folders_do(NAMES.encode(folder + key)) < behind
    if not key.startswith(folder) and key.encode() > folder.encode():
        assert as_folders_do(NAMES.encode(key)) > behind


@given(st.text("ab!-._/[~0", max_size=8))
def test_what_is_not_ours_is_told(name: str) -> None:
    key = NAMES.decode(name)
    if key is not None and not key.endswith("/"):
        assert NAMES.encode(key) == name


def test_plain_names_are_the_keys() -> None:
    assert PlainNames().encode("../a//b") == "../a//b" == PlainNames().decode("../a//b")
    assert PlainNames().behind_folder("a/") > "a/zzz"
