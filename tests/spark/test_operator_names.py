"""Operators are found again by name."""

import functools

import pytest

from holdfast.errors import InvalidRequest
from holdfast.spark.operator_names import operator_name, refuse_duplicates


def totals(key, rows, state):
    """A function with a name."""


def test_names():
    assert operator_name(None, totals, ["user", "day"]) == "totals(user, day)"
    assert operator_name("mine", totals, ["user"]) == operator_name("mine", None, []) == "mine"


@pytest.mark.parametrize("function", [lambda *_: None, functools.partial(totals), None])
def test_what_has_no_name_needs_one(function):
    with pytest.raises(InvalidRequest, match=r"this operator by user has no name.*name='…'"):
        operator_name(None, function, ["user"])


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201, 7])
def test_unusable_names(name):
    with pytest.raises(InvalidRequest, match="cannot name an operator"):
        operator_name(name, totals, ["user"])


def test_duplicates():
    refuse_duplicates(["a", "b"])
    with pytest.raises(InvalidRequest, match="are called 'a', 'c', so"):
        refuse_duplicates(["c", "a", "b", "a", "c"])
