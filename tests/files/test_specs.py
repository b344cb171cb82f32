import pytest

from dovetail.errors import InputError
from dovetail.files.specs import split_spec


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("easy", ("easy", {})),
        ("easy?order=sjf", ("easy", {"order": "sjf"})),
        ("a?x=1&y=&z=b=c", ("a", {"x": "1", "y": "", "z": "b=c"})),
        ("a?x=1e+3", ("a", {"x": "1e+3"})),
        ("a?x=one%26two%20three", ("a", {"x": "one&two three"})),
    ],
)
def test_names_and_options(spec, expected):
    assert split_spec(spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("a?", "a?: found nothing after '?', expected option=value"),
        ("a?b", "a?b: found 'b', expected option=value pairs joined by '&'"),
        ("a?=1", "found '=1', expected option=value"),
        ("a?x=1&", "found '', expected option=value"),
        ("a?x=1&x=2", "found the option 'x' twice, expected it once"),
        ("a\n?x", "'a\\n?x': found 'x'"),
    ],
)
def test_wrong_options_are_one_sentence(spec, expected):
    with pytest.raises(InputError) as caught:
        split_spec(spec)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
