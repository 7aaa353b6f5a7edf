"""The aggregates to choose from: ``hf.group_by(df, "user").agg(n=hf.count(), total=hf.sum("amount"))``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Function(Enum):
    """What is computed."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate of one column, or of whole rows."""

    function: Function
    column: str | None
    """None counts rows."""
    ignore_nulls: bool = False

    def __str__(self) -> str:
        return f"{self.function.value}({self.column or '*'})"


def count(column: str | None = None) -> Aggregate:
    """How many rows there are, or in how many the column is not null."""
    return Aggregate(Function.COUNT, column)


def sum(column: str) -> Aggregate:  # noqa: A001 - the name users know; reached as hf.sum
    """The sum; null if there is nothing to add."""
    return Aggregate(Function.SUM, column)


def min(column: str) -> Aggregate:  # noqa: A001 - as above
    """The smallest value."""
    return Aggregate(Function.MIN, column)


def max(column: str) -> Aggregate:  # noqa: A001 - as above
    """The largest value; NaN is larger than any number."""
    return Aggregate(Function.MAX, column)


def avg(column: str) -> Aggregate:
    """The mean."""
    return Aggregate(Function.AVG, column)


def first(column: str, ignore_nulls: bool = False) -> Aggregate:
    """The value of the first row that came; with `ignore_nulls`, of the first in which it is not null."""
    return Aggregate(Function.FIRST, column, ignore_nulls)


def last(column: str, ignore_nulls: bool = False) -> Aggregate:
    """The value of the last row that came; with `ignore_nulls`, of the last in which it is not null."""
    return Aggregate(Function.LAST, column, ignore_nulls)
