"""Single rows, from and to Python values.

The same layout as the bulk codecs', compiled per schema into one `struct` format for the fixed part and one small
object per value of the variable part. Damage is found by the same checks as in bulk.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema
from holdfast.rows.dialect import type_ddl
from holdfast.rows.pyvalues import decimal_functions, fixed_type

_PADDING = [bytes(-n % 8) for n in range(8)]
_ROOM = 16
"""Bytes that a row keeps for a decimal of more than 18 digits, null or not."""


class Place:
    """A column, or a place inside a nested column: what its values are and how to complain about them."""

    def __init__(self, field: pa.Field, path: str) -> None:
        self.path = path + field.name
        self.type = field.type
        self.nullable = field.nullable
        self.fixed = fixed_type(field.type)
        self.body = None if self.fixed else _body(self)
        self.keeps_room = isinstance(self.body, _BigDecimal)
        self.width = self.fixed.width if self.fixed else 8
        # A value in an array has its natural width; in a slot it is followed by zeros.
        self.code = self.fixed.code if self.fixed else "Q"
        self.slot_code = f"{self.code}{8 - self.width}x" if self.width < 8 else self.code

    @property
    def fields(self) -> list[Place] | None:
        """The places of a struct's fields; None if this is no struct."""
        return self.body.row.places if isinstance(self.body, _Struct) else None

    def field_values(self, value: Any) -> Sequence[Any]:
        """Return a struct's values in field order."""
        assert isinstance(self.body, _Struct)  # noqa: S101 - callers ask only where there are fields
        try:
            return self.body.in_order(value)
        except (TypeError, ValueError) as error:
            self.misfit(value, error)

    def number(self, value: Any) -> Any:
        """Turn the value of a fixed-width type into what `struct` packs."""
        if self.fixed is None or self.fixed.to_number is None:
            return value
        try:
            return self.fixed.to_number(value)
        except (TypeError, ValueError, OverflowError) as error:
            self.misfit(value, error)

    def content(self, value: Any) -> bytes:
        """Turn the value of a type of the variable part into its bytes."""
        assert self.body is not None  # noqa: S101 - callers ask only where there is no fixed type
        try:
            return self.body.encode(value)
        except (TypeError, ValueError) as error:
            self.misfit(value, error)

    def value(self, number: Any) -> Any:
        if self.fixed is None or self.fixed.from_number is None:
            return number
        try:
            return self.fixed.from_number(number)
        except ValueError as error:
            self.corrupt(str(error))
        except OverflowError as error:
            raise InvalidRequest(
                f"column {self.path!r}: Python has no {type_ddl(self.type)} that far from 1970; "
                "decode these rows in bulk, to Arrow"
            ) from error

    def null(self) -> None:
        if not self.nullable:
            raise InvalidSchema(f"column {self.path!r} is {type_ddl(self.type)} not null, and the value is None")

    def corrupt(self, problem: str) -> NoReturn:
        raise CorruptState(f"column {self.path!r}: {problem}")

    def misfit(self, value: Any, reason: object) -> NoReturn:
        raise InvalidSchema(
            f"column {self.path!r} is {type_ddl(self.type)}, "
            f"and the value is {type(value).__name__} {value!r}: {reason}"
        )

    def check_packs(self, number: Any) -> None:
        """Raise if `struct` cannot pack the number: how a failed pack of many finds the culprit."""
        try:
            struct.pack(f"<{self.code}", number)
        except (struct.error, OverflowError, TypeError) as error:
            self.misfit(number, error)


class _Body(ABC):
    """Values of the variable part."""

    def __init__(self, owner: Place) -> None:
        self._owner = owner

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the bytes without padding; TypeError or ValueError if this is not such a value."""

    @abstractmethod
    def decode(self, row: bytes, start: int, size: int) -> Any:
        """Return the value in these bytes of the row, which are known to be inside it."""


class _String(_Body):
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError("a str is needed")
        return value.encode()

    def decode(self, row: bytes, start: int, size: int) -> str:
        try:
            return str(row[start : start + size], "utf-8")
        except UnicodeDecodeError as error:
            self._owner.corrupt(f"not UTF-8: {error}")


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("bytes are needed")
    return bytes(value)


class _Binary(_Body):
    def encode(self, value: Any) -> bytes:
        return _to_bytes(value)

    def decode(self, row: bytes, start: int, size: int) -> bytes:
        return bytes(row[start : start + size])


class _BigDecimal(_Body):
    def __init__(self, owner: Place) -> None:
        super().__init__(owner)
        self._to_unscaled, self._from_unscaled = decimal_functions(owner.type)

    def encode(self, value: Any) -> bytes:
        number = self._to_unscaled(value)
        bits = (number if number >= 0 else ~number).bit_length()
        return number.to_bytes(bits // 8 + 1, "big", signed=True)

    def decode(self, row: bytes, start: int, size: int) -> Any:
        if not 1 <= size <= _ROOM:
            self._owner.corrupt("a decimal that is not 1 to 16 bytes")
        try:
            return self._from_unscaled(int.from_bytes(row[start : start + size], "big", signed=True))
        except ValueError as error:
            self._owner.corrupt(str(error))


class _Struct(_Body):
    def __init__(self, owner: Place) -> None:
        super().__init__(owner)
        self.row = RowStruct(owner.type, f"{owner.path}.")
        names = [field.name for field in owner.type]
        self._names = names if len(set(names)) == len(names) else None

    def in_order(self, value: Any) -> Sequence[Any]:
        if isinstance(value, Mapping):
            if self._names is None:
                raise TypeError("two fields have one name; a tuple is needed")
            unknown = value.keys() - set(self._names)
            if unknown:
                raise ValueError(f"there is no field {sorted(map(str, unknown))}")
            return [value.get(name) for name in self._names]
        return row_values(value, len(self.row.places), f"column {self._owner.path!r}")

    def encode(self, value: Any) -> bytes:
        return self.row.encode(self.in_order(value))

    def decode(self, row: bytes, start: int, size: int) -> Any:
        if size % 8:
            self._owner.corrupt("a size that is not a multiple of 8")
        values = self.row.decode_at(row, start, size)
        return values if self._names is None else dict(zip(self._names, values, strict=True))


class _Array(_Body):
    def __init__(self, owner: Place, field: pa.Field | None = None) -> None:
        super().__init__(owner)
        self._element = Place(field or owner.type.value_field, f"{owner.path}.")

    def encode(self, value: Any) -> bytes:
        if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
            raise TypeError("a list is needed")
        element, count = self._element, len(value)
        nulls = 0
        cells: list[Any] = []
        bodies: list[bytes] = []
        cursor = 8 + (count + 63) // 64 * 8 + -(-count * element.width // 8) * 8
        for index, item in enumerate(value):
            if item is None:
                element.null()
                nulls |= 1 << index
                cells.append(0)
            elif element.body is None:
                cells.append(element.number(item))
            else:
                body = element.content(item)
                cells.append(cursor << 32 | len(body))
                bodies += (body, _PADDING[len(body) % 8])
                cursor += len(body) + -len(body) % 8
        try:
            fixed = struct.pack(f"<{count}{element.code}", *cells)
        except (struct.error, OverflowError, TypeError):
            for number in cells:
                element.check_packs(number)
            raise
        header = struct.pack("<q", count) + nulls.to_bytes((count + 63) // 64 * 8, "little")
        return b"".join((header, fixed, _PADDING[len(fixed) % 8], *bodies))

    def decode(self, row: bytes, start: int, size: int) -> list[Any]:
        owner, element = self._owner, self._element
        if size < 8 or size % 8:
            owner.corrupt("a size that is not a multiple of 8, or under 8 bytes")
        (count,) = struct.unpack_from("<q", row, start)
        header = 8 + (count + 63) // 64 * 8
        cursor = header + (count * element.width + 7) // 8 * 8
        if count < 0 or cursor > size:
            owner.corrupt("an element count that its size does not allow")
        nulls = int.from_bytes(row[start + 8 : start + header], "little")
        values: list[Any] = []
        cells = struct.unpack_from(f"<{count}{element.code}", row, start + header)
        for index, cell in enumerate(cells):
            if nulls >> index & 1:
                if not element.nullable:
                    element.corrupt("null, but it may not be")
                values.append(None)
            elif element.body is None:
                values.append(element.value(cell))
            else:
                offset, length = cell >> 32, cell & 0xFFFFFFFF
                end = offset + length + -length % 8
                if offset < cursor or offset % 8 or end > size:
                    element.corrupt("elements that overlap, are out of order, or lie outside their row")
                values.append(element.body.decode(row, start + offset, length))
                cursor = offset + length
        return values


class _Map(_Body):
    def __init__(self, owner: Place) -> None:
        super().__init__(owner)
        self._keys = _Array(owner, owner.type.key_field)
        self._items = _Array(owner, owner.type.item_field)

    def encode(self, value: Any) -> bytes:
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        keys = self._keys.encode([key for key, _ in pairs])
        return struct.pack("<q", len(keys)) + keys + self._items.encode([item for _, item in pairs])

    def decode(self, row: bytes, start: int, size: int) -> list[tuple[Any, Any]]:
        if size < 8 or size % 8:
            self._owner.corrupt("a size that is not a multiple of 8, or under 8 bytes")
        (key_size,) = struct.unpack_from("<q", row, start)
        if not 0 <= key_size <= size - 8:
            self._owner.corrupt("a size of the keys that the map's size does not allow")
        keys = self._keys.decode(row, start + 8, key_size)
        items = self._items.decode(row, start + 8 + key_size, size - 8 - key_size)
        if len(keys) != len(items):
            self._owner.corrupt("a map with more keys than values, or fewer")
        return list(zip(keys, items, strict=True))


class RowStruct:
    """One row's fields, top-level or nested."""

    def __init__(self, fields: Iterable[pa.Field], path: str = "") -> None:
        self.places = [Place(field, path) for field in fields]
        self._name = f"column {path[:-1]!r}" if path else "a row"
        self._null_words = (len(self.places) + 63) // 64
        self._no_nulls = (0,) * self._null_words
        codes = "".join(place.slot_code for place in self.places)
        self._struct = struct.Struct(f"<{'Q' * self._null_words}{codes}")
        # Rows of numbers alone are one call of struct.
        self._all_numbers = all(p.fixed is not None and p.fixed.to_number is None for p in self.places)
        self._numbers_back = all(p.fixed is not None and p.fixed.from_number is None for p in self.places)
        # Per column a function to a number or one to bytes, for rows that need nothing else.
        self._quick = [(p.fixed.to_number, None) if p.fixed else (None, _QUICK.get(p.type.id)) for p in self.places]
        self._is_flat = all(place.fixed or place.type.id in _QUICK for place in self.places)

    def encode(self, values: Sequence[Any]) -> bytes:
        """Encode one value per field. The quick ways leave nulls and mistakes to the long one, which knows names."""
        try:
            if self._all_numbers:
                return self._struct.pack(*self._no_nulls, *values)
            if self._is_flat and len(values) == len(self._quick):
                return self._encode_flat(values)
        except (struct.error, OverflowError, TypeError, ValueError):
            pass
        return self._encode(row_values(values, len(self.places), self._name))

    def _encode_flat(self, values: Sequence[Any]) -> bytes:
        cells = [*self._no_nulls]
        bodies: list[bytes] = [b""]
        cursor = self._struct.size
        for value, (to_number, to_bytes) in zip(values, self._quick, strict=True):
            if to_bytes is not None:
                body = to_bytes(value)
                size = len(body)
                cells.append(cursor << 32 | size)
                bodies += (body, _PADDING[size & 7])
                cursor += size + 7 & ~7
            else:
                cells.append(value if to_number is None else to_number(value))
        bodies[0] = self._struct.pack(*cells)
        return b"".join(bodies)

    def _encode(self, values: Sequence[Any]) -> bytes:
        nulls, cursor = 0, self._struct.size
        cells: list[Any] = []
        bodies: list[bytes] = []
        for index, (place, value) in enumerate(zip(self.places, values, strict=True)):
            body = None
            if value is None:
                place.null()
                nulls |= 1 << index
                cells.append(0)
                body = b"" if place.keeps_room else None
            elif place.body is None:
                cells.append(place.number(value))
            else:
                body = place.content(value)
                cells.append(0)
            if body is not None:
                cells[-1] = cursor << 32 | len(body)
                padding = bytes(_ROOM - len(body)) if place.keeps_room else _PADDING[len(body) % 8]
                bodies += (body, padding)
                cursor += len(body) + len(padding)
        words = (nulls >> 64 * word & (2**64 - 1) for word in range(self._null_words))
        try:
            fixed = self._struct.pack(*words, *cells)
        except (struct.error, OverflowError, TypeError):
            for place, cell in zip(self.places, cells, strict=True):
                place.check_packs(cell)
            raise
        return b"".join((fixed, *bodies))

    def decode(self, row: bytes) -> tuple[Any, ...]:
        """Decode a whole row."""
        # Rows of Spark up to 2.2 may have some bytes more, which Spark ignores.
        return self.decode_at(row, 0, len(row) & ~7)

    def decode_at(self, row: bytes, start: int, size: int) -> tuple[Any, ...]:
        """Decode the row in these bytes, which are known to be there."""
        header = self._struct.size
        if size < header:
            raise CorruptState(f"{self._name} takes {header} bytes or more, not {size}")
        cells = self._struct.unpack_from(row, start)
        words, cells = cells[: self._null_words], cells[self._null_words :]
        if self._numbers_back and words == self._no_nulls:
            return cells
        values: list[Any] = []
        for index, (place, cell) in enumerate(zip(self.places, cells, strict=True)):
            if words[index >> 6] >> (index & 63) & 1:
                if not place.nullable:
                    place.corrupt(f"null, but the column is {type_ddl(place.type)} not null")
                values.append(None)
            elif place.body is None:
                values.append(place.value(cell))
            else:
                offset, length = cell >> 32, cell & 0xFFFFFFFF
                if offset < header or offset & 7 or offset + (length + 7 & ~7) > size:
                    place.corrupt("a value that lies outside its row")
                values.append(place.body.decode(row, start + offset, length))
        return tuple(values)


def row_values(values: Any, count: int, what: str) -> Sequence[Any]:
    """Return the values of a row, known to be a sequence of the right length."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise InvalidSchema(f"{what} is a sequence of values, not {type(values).__name__} {values!r}")
    if len(values) != count:
        raise InvalidSchema(f"{what} has {count} values, not {len(values)}")
    return values


def _body(owner: Place) -> _Body:
    data_type = owner.type
    if pa.types.is_string(data_type):
        return _String(owner)
    if pa.types.is_binary(data_type):
        return _Binary(owner)
    if pa.types.is_decimal(data_type):
        return _BigDecimal(owner)
    if pa.types.is_struct(data_type):
        return _Struct(owner)
    return _Map(owner) if pa.types.is_map(data_type) else _Array(owner)


_QUICK: dict[int, Callable[[Any], bytes]] = {pa.string().id: str.encode, pa.binary().id: _to_bytes}
