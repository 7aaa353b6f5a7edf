"""Python values of fixed-width types, to and from the number that a slot holds."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.rows.decimals import MAX_LONG_DIGITS

if TYPE_CHECKING:
    from collections.abc import Callable

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_EPOCH_NTZ = dt.datetime(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_MICROSECOND = dt.timedelta(microseconds=1)


class FixedType(NamedTuple):
    """How one fixed-width type is packed by `struct`."""

    code: str
    """The format character."""
    width: int
    """Bytes in an array; a slot has 8."""
    to_number: Callable[[Any], Any] | None
    """From a Python value to what `struct` packs, TypeError or ValueError if it is not one; None: as it is."""
    from_number: Callable[[Any], Any] | None
    """From what `struct` unpacks to the Python value; None: as it is.

    ValueError: no such number is ever written. OverflowError: Python has no such date or time, though Spark has.
    """


def fixed_type(data_type: pa.DataType) -> FixedType | None:
    """Find how a type is packed; None if its values stand in the variable part."""
    if pa.types.is_decimal(data_type):
        if data_type.precision > MAX_LONG_DIGITS:
            return None
        to_number, from_number = decimal_functions(data_type)
        return FixedType("q", 8, to_number, from_number)
    if pa.types.is_timestamp(data_type):
        return _TIMESTAMP_NTZ if data_type.tz is None else _TIMESTAMP
    return _FIXED.get(data_type.id)


def decimal_functions(data_type: pa.DataType) -> tuple[Callable[[Any], int], Callable[[int], Decimal]]:
    """Functions between a decimal and its unscaled number, within the type's digits."""
    scale, limit = data_type.scale, 10**data_type.precision

    def to_unscaled(value: Any) -> int:
        if isinstance(value, Decimal):
            sign, digits, exponent = value.as_tuple()
            if not isinstance(exponent, int):
                raise ValueError("it is not a finite number")  # noqa: TRY004 - its type is right
            unscaled: int = int("".join(map(str, digits)))
            # Limited, because a Decimal's exponent may be astronomic; at the limits the answer is already clear.
            shift = max(min(exponent + scale, data_type.precision), -len(digits))
            unscaled, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
            if rest:
                raise ValueError(f"it has more than {scale} digits after the point")
            unscaled = -unscaled if sign else unscaled
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            unscaled = int(value) * 10**scale
        else:
            raise TypeError("a Decimal or an int is needed")
        if not -limit < unscaled < limit:
            raise ValueError("it has more digits")
        return unscaled

    def from_unscaled(unscaled: int) -> Decimal:
        if not -limit < unscaled < limit:
            raise ValueError("more digits than the type has")
        # Built from digits, because arithmetic rounds to the context's precision.
        return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale))

    return to_unscaled, from_unscaled


def _bool(value: Any) -> bool:
    # struct packs the truth of anything, which would make True of "false".
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError("a bool is needed")


def _float(value: Any) -> Any:
    # struct would also take a Decimal, which loses digits, and a bool.
    if isinstance(value, (float, int, np.floating, np.integer)) and not isinstance(value, bool):
        return value
    raise TypeError("a float is needed")


def _days(value: Any) -> int:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH_DAY
    raise TypeError("a datetime.date is needed")


def _date(days: int) -> dt.date:
    try:
        return dt.date.fromordinal(days + _EPOCH_DAY)
    except ValueError as error:
        raise OverflowError(str(error)) from error


def _micros(value: Any) -> int:
    if not isinstance(value, dt.datetime):
        raise TypeError("a datetime.datetime is needed")
    if value.utcoffset() is None:
        raise TypeError("it has no time zone: use an aware datetime, or declare the column timestamp_ntz")
    return (value - _EPOCH) // _MICROSECOND


def _micros_ntz(value: Any) -> int:
    if not isinstance(value, dt.datetime):
        raise TypeError("a datetime.datetime is needed")
    if value.tzinfo is not None:
        raise TypeError("it has a time zone: use a naive datetime, or declare the column timestamp")
    return (value - _EPOCH_NTZ) // _MICROSECOND


_TIMESTAMP = FixedType("q", 8, _micros, lambda n: _EPOCH + dt.timedelta(microseconds=n))
_TIMESTAMP_NTZ = FixedType("q", 8, _micros_ntz, lambda n: _EPOCH_NTZ + dt.timedelta(microseconds=n))
_FIXED = {
    pa.bool_().id: FixedType("?", 1, _bool, None),
    pa.int8().id: FixedType("b", 1, None, None),
    pa.int16().id: FixedType("h", 2, None, None),
    pa.int32().id: FixedType("i", 4, None, None),
    pa.int64().id: FixedType("q", 8, None, None),
    pa.float32().id: FixedType("f", 4, _float, None),
    pa.float64().id: FixedType("d", 8, _float, None),
    pa.date32().id: FixedType("i", 4, _days, _date),
}
