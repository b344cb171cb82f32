import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model.hostlist import compress_names, expand_hostlist

names = st.text(st.sampled_from("nab0159-."), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("n0", ["n0"]),
        ("n[0-2,5]", ["n0", "n1", "n2", "n5"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[007]", ["n007"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("n[0-1]-ib", ["n0-ib", "n1-ib"]),
        ("a,b[1,3],c", ["a", "b1", "b3", "c"]),
    ],
)
def test_expand(text: str, expected: list[str]) -> None:
    assert expand_hostlist(text) == expected


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([], ""),
        (["n0"], "n0"),
        (["n0", "n1", "n5"], "n[0-1,5]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n0"], "n[1,0]"),
        (["n1", "n01"], "n[1,01]"),
        (["a", "n1", "n2", "b"], "a,n[1-2],b"),
        (["r1n0", "r1n1", "r2n0"], "r1n[0-1],r2n0"),
    ],
)
def test_compress(listed: list[str], expected: str) -> None:
    assert compress_names(listed) == expected


@pytest.mark.parametrize(
    "text",
    [
        "n[0-1",
        "n0]",
        "n[]",
        "n[1-0]",
        "n[a]",
        "n[-1]",
        "n[0-999999999]",
        "n[0-9999]n[0-9999]",
        "a,,b",
        ",",
        "[[0]]",
    ],
)
def test_malformed_lists_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError, match="hostlist") as caught:
        expand_hostlist(text)
    assert "\n" not in str(caught.value)


@settings(deadline=None, derandomize=True)
@given(st.lists(names, max_size=12))
def test_expand_undoes_compress(listed: list[str]) -> None:
    assert expand_hostlist(compress_names(listed)) == listed


@settings(deadline=None, derandomize=True)
@given(st.text("n019[]-,", max_size=14))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        listed = expand_hostlist(text)
    except InputError:
        return
    assert expand_hostlist(compress_names(listed)) == listed
