"""Declared settings: typed fields with a default and one line of help, read from Spark's configuration.

A backend subclasses ``Settings`` as a frozen dataclass. Every field is one configuration key:
``prefix`` followed by the field's name in camelCase. Values are written as Spark writes them
(``true``, ``10``, ``30s``, ``64m``).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import sys
import types
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Seconds = NewType("Seconds", float)
"""A duration, spelled ``500ms``, ``30s``, ``5m``, ``2h``, ``1d``; a bare number means milliseconds, as in Spark."""

ByteSize = NewType("ByteSize", int)
"""A size in bytes, spelled ``512k``, ``64m``, ``2g``; a bare number means bytes, as in Spark."""

_SECONDS_PER_UNIT = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES_PER_UNIT = {
    unit: 1024**power
    for power, units in enumerate([["b"], ["k", "kb"], ["m", "mb"], ["g", "gb"], ["t", "tb"], ["p", "pb"]])
    for unit in units
}

_S = TypeVar("_S", bound="Settings")


def setting(default: Any, help: str, *, minimum: float | None = None, key: str | None = None) -> Any:  # noqa: A002 - reads as a declaration
    """Declare one setting: its default, one line of help, and what it must not be less than.

    ``key`` replaces the key that follows from the field's name.
    """
    return dataclasses.field(default=default, metadata={"help": help, "minimum": minimum, "key": key})


@dataclasses.dataclass(frozen=True)
class DeclaredSetting:
    """One field of a ``Settings`` class, as documentation and error messages show it."""

    key: str
    field: str
    type: Any
    default: Any
    help: str
    minimum: float | None

    @property
    def accepts(self) -> str:
        """What a value may look like, in words."""
        words = _accepted(self.type)
        return words if self.minimum is None else f"{words}, at least {_spelled(self.type, self.minimum)}"

    def parse(self, value: object) -> Any:
        """Turn the configured text into the declared type, or say what would be accepted."""
        # Spark's configuration is text; whoever builds one by hand may put in numbers.
        text = str(value).lower() if isinstance(value, (bool, int, float)) else value
        parsed: Any = _parse(self.type, text.strip()) if isinstance(text, str) else _REFUSED
        if parsed is _REFUSED or (self.minimum is not None and parsed is not None and parsed < self.minimum):
            raise InvalidSetting(f"{self.key} is {value!r}; accepted: {self.accepts} (default: {self.shown_default})")
        return parsed

    @property
    def shown_default(self) -> str:
        """The default in the spelling of the configuration."""
        return "not set" if self.default is None else _spelled(self.type, self.default)


class Settings:
    """Base of a backend's settings; subclass it as a frozen dataclass and set ``prefix``."""

    prefix: ClassVar[str]
    """Start of every key of these settings: ``spark.holdfast.<backend>.``"""

    @classmethod
    def declared(cls) -> Iterator[DeclaredSetting]:
        """The settings in the order in which they are declared."""
        fields = [f for f in dataclasses.fields(cls) if "help" in f.metadata]  # type: ignore[arg-type]
        # Only these are resolved: other annotations may name what is imported for type checkers alone.
        annotated = types.SimpleNamespace(__annotations__={field.name: field.type for field in fields})
        hints = get_type_hints(annotated, vars(sys.modules[cls.__module__]))
        for field in fields:
            yield DeclaredSetting(
                key=field.metadata["key"] or cls.prefix + _camel_case(field.name),
                field=field.name,
                type=hints[field.name],
                default=field.default,
                help=field.metadata["help"],
                minimum=field.metadata["minimum"],
            )

    @classmethod
    def parse(cls: type[_S], conf: Mapping[str, str]) -> _S:
        """Read these settings; an unknown key under the prefix or a bad value is refused."""
        declared = {item.key: item for item in cls.declared()}
        refuse_unknown((key for key in conf if key.startswith(cls.prefix)), declared)
        return cls(**{item.field: item.parse(conf[key]) for key, item in declared.items() if key in conf})


def refuse_unknown(keys: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first key that is not known, with the nearest one that is."""
    known = sorted(known)
    for key in keys:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known settings: {', '.join(known) or 'none'}"
            raise InvalidSetting(f"unknown setting {key}; {hint}")


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_REFUSED = object()


def _optional(kind: Any) -> Any:
    """``T`` for ``T | None``, else ``None``."""
    if get_origin(kind) in {Union, types.UnionType} and type(None) in get_args(kind):
        return next(part for part in get_args(kind) if part is not type(None))
    return None


def _parse(kind: Any, text: str) -> Any:
    inner = _optional(kind)
    if inner is not None:
        return _parse(inner, text) if text else None
    if get_origin(kind) is Literal:
        return next((choice for choice in get_args(kind) if choice.lower() == text.lower()), _REFUSED)
    try:
        return _PARSERS[kind](text)
    except (ValueError, OverflowError):
        return _REFUSED


def _parse_bool(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _parse_int(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):  # int() would also take "1_000"
        raise ValueError(text)
    return int(text)


def _parse_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _parse_with_unit(text: str, units: Mapping[str, float], bare: str) -> float:
    match = re.fullmatch(r"(\d+)([a-z]*)", text.lower(), re.ASCII)
    unit = (match[2] or bare) if match else ""
    if match is None or unit not in units:
        raise ValueError(text)
    return int(match[1]) * units[unit]


_PARSERS: dict[Any, Callable[[str], Any]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: str,
    Seconds: lambda text: Seconds(_parse_with_unit(text, _SECONDS_PER_UNIT, "ms")),
    ByteSize: lambda text: ByteSize(int(_parse_with_unit(text, _BYTES_PER_UNIT, "b"))),
}

_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Seconds: "a duration such as 500ms, 30s, 5m, 2h or 1d",
    ByteSize: "a size such as 512k, 64m or 2g",
}


def _accepted(kind: Any) -> str:
    inner = _optional(kind)
    if inner is not None:
        return _accepted(inner)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    if kind not in _WORDS:
        raise TypeError(f"a setting cannot be {kind}; it is one of bool, int, float, str, Seconds, ByteSize, Literal")
    return _WORDS[kind]


def _spelled(kind: Any, value: Any) -> str:
    """A value as one would write it in the configuration."""
    kind = _optional(kind) or kind
    if isinstance(value, bool):
        return str(value).lower()
    if kind is Seconds:
        return f"{value:g}s" if value >= 1 else f"{value * 1000:g}ms"
    if kind is ByteSize:
        unit = next((unit for unit in "ptgmk" if value and value % _BYTES_PER_UNIT[unit] == 0), "b")
        return f"{value // _BYTES_PER_UNIT[unit]}{unit}"
    return str(value)
