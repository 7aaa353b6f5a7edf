"""Frozen dataclasses as JSON and back, strictly by their annotations.

What is read back is exactly what was annotated or ``InvalidRequest``: nothing is guessed, nothing is dropped, and no
bytes from the network ever choose which code runs.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NoReturn
from uuid import UUID

from holdfast.errors import InvalidRequest

# Modules may import these for the type checker only, so their annotations cannot always be resolved without help.
_NAMES_IN_ANNOTATIONS = {"UUID": UUID, "Mapping": Mapping}


class _Misfit(Exception):
    """A value does not fit its annotation; collects the path to it on the way out."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""

    def below(self, step: str) -> _Misfit:
        self.path = step + self.path
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """How values of one annotation become JSON values and back."""

    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]


def encode(annotation: Any, value: object) -> bytes:
    """The JSON of a value of this annotation."""
    return json_bytes(to_plain(annotation, value))


def decode(annotation: Any, data: bytes) -> Any:
    """The value of this annotation that ``encode`` made the JSON of."""
    return from_plain(annotation, parse_json(data))


def to_plain(annotation: Any, value: object) -> Any:
    """A value of this annotation, in what JSON has: dict, list, str, numbers, bool, None."""
    try:
        return _form(annotation).to_plain(value)
    except _Misfit as misfit:
        raise InvalidRequest(f"cannot send {_shown(annotation)}{misfit.path}: {misfit.problem}") from None


def from_plain(annotation: Any, plain: object) -> Any:
    """The value of this annotation that ``to_plain`` took apart."""
    try:
        return _form(annotation).from_plain(plain)
    except _Misfit as misfit:
        raise InvalidRequest(f"not a valid message: {_shown(annotation)}{misfit.path}: {misfit.problem}") from None


def json_bytes(plain: object) -> bytes:
    """A JSON value as compact bytes."""
    return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode("ascii")


def parse_json(data: bytes) -> Any:
    """The JSON value in these bytes."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidRequest(f"{len(data)} bytes of JSON are nested too deeply") from None
    except ValueError as error:  # also bytes that are not UTF-8
        raise InvalidRequest(f"{len(data)} bytes are not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


@functools.cache
def _form(annotation: Any) -> _Form:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in {typing.Union, types.UnionType} and len(arguments) == 2 and type(None) in arguments:
        return _optional(next(argument for argument in arguments if argument is not type(None)))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(arguments[0])
    if origin in {dict, Mapping} and arguments[0] in {str, int}:
        return _mapping(arguments[0], arguments[1])
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _record(annotation)
    raise TypeError(f"a message cannot have a field of type {annotation!r}")


def _exactly(kind: type) -> _Form:
    def check(value: object) -> object:
        if type(value) is not kind:
            raise _Misfit(f"must be {_shown(kind)}, not {type(value).__name__}")
        return value

    return _Form(check, check)


def _text() -> _Form:
    def check(value: object) -> str:
        if not isinstance(value, str):
            raise _Misfit(f"must be str, not {type(value).__name__}")
        try:
            value.encode("utf-8")  # half a surrogate pair would fail later, wherever the text is written
        except UnicodeEncodeError:
            raise _Misfit("must be text that UTF-8 can hold") from None
        return value

    return _Form(check, check)


def _float() -> _Form:
    def check(value: object) -> float:
        if type(value) is not float and type(value) is not int:
            raise _Misfit(f"must be float, not {type(value).__name__}")
        try:
            number = float(value)
        except OverflowError:
            raise _Misfit("must be a number that a float can hold") from None
        if number - number != 0.0:
            raise _Misfit("must be a finite number")
        return number

    return _Form(check, check)


def _spelled(kind: type, write: Callable[[Any], str], read: Callable[[str], Any], spelling: str) -> _Form:
    """A type that JSON lacks, written as text."""

    def to_text(value: object) -> str:
        if not isinstance(value, kind):
            raise _Misfit(f"must be {kind.__name__}, not {type(value).__name__}")
        return write(value)

    def from_text(plain: object) -> Any:
        if not isinstance(plain, str):
            raise _Misfit(f"must be {spelling}, not {type(plain).__name__}")
        try:
            value = read(plain)
        except ValueError:
            raise _Misfit(f"must be {spelling}") from None
        if write(value) != plain:  # one value, one spelling
            raise _Misfit(f"must be {spelling} in its usual spelling")
        return value

    return _Form(to_text, from_text)


_SCALARS: dict[Any, _Form] = {
    bool: _exactly(bool),
    int: _exactly(int),
    type(None): _exactly(type(None)),
    None: _exactly(type(None)),
    str: _text(),
    float: _float(),
    UUID: _spelled(UUID, str, UUID, "a UUID"),
    bytes: _spelled(
        bytes,
        lambda value: base64.b64encode(value).decode("ascii"),
        lambda text: base64.b64decode(text, validate=True),
        "base64",
    ),
}


def _optional(annotation: Any) -> _Form:
    inner = _form(annotation)
    return _Form(
        lambda value: None if value is None else inner.to_plain(value),
        lambda plain: None if plain is None else inner.from_plain(plain),
    )


def _sequence(annotation: Any) -> _Form:
    inner = _form(annotation)

    def each(convert: Callable[[Any], Any], items: tuple[Any, ...] | list[Any]) -> list[Any]:
        done: list[Any] = []
        try:
            for item in items:
                done.append(convert(item))  # noqa: PERF401 - its length tells which item failed
        except _Misfit as misfit:
            raise misfit.below(f"[{len(done)}]") from None
        return done

    def write(value: object) -> list[Any]:
        if not isinstance(value, tuple):
            raise _Misfit(f"must be tuple, not {type(value).__name__}")
        return each(inner.to_plain, value)

    def read(plain: object) -> tuple[Any, ...]:
        if not isinstance(plain, list):
            raise _Misfit(f"must be a list, not {type(plain).__name__}")
        return tuple(each(inner.from_plain, plain))

    return _Form(write, read)


def _mapping(key_kind: type, annotation: Any) -> _Form:
    inner, key_form = _form(annotation), _form(key_kind)

    def key_from_text(text: str) -> Any:
        if key_kind is str:
            return key_form.from_plain(text)
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or str(number) != text:  # "01" and " 1" would be further spellings of one key
            raise _Misfit("must have whole numbers as keys")
        return number

    def write(value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _Misfit(f"must be dict, not {type(value).__name__}")
        return {str(key_form.to_plain(key)): _at(key, inner.to_plain, item) for key, item in value.items()}

    def read(plain: object) -> dict[Any, Any]:
        if not isinstance(plain, dict):
            raise _Misfit(f"must be an object, not {type(plain).__name__}")
        return {key_from_text(key): _at(key, inner.from_plain, item) for key, item in plain.items()}

    return _Form(write, read)


def _at(key: object, convert: Callable[[Any], Any], item: object) -> Any:
    try:
        return convert(item)
    except _Misfit as misfit:
        raise misfit.below(f"[{key!r}]") from None


def _enum(kind: type[Enum]) -> _Form:
    def write(value: object) -> Any:
        if not isinstance(value, kind):
            raise _Misfit(f"must be {kind.__name__}, not {type(value).__name__}")
        return value.value

    def read(plain: object) -> Enum:
        for member in kind:
            if type(member.value) is type(plain) and member.value == plain:
                return member
        raise _Misfit(f"must be one of {', '.join(repr(member.value) for member in kind)}")

    return _Form(write, read)


def _record(kind: type) -> _Form:
    hints = typing.get_type_hints(kind, localns=_NAMES_IN_ANNOTATIONS)
    forms = {field.name: _form(hints[field.name]) for field in dataclasses.fields(kind)}

    def write(value: object) -> dict[str, Any]:
        if type(value) is not kind:
            raise _Misfit(f"must be {kind.__name__}, not {type(value).__name__}")
        plain = {}
        for name, form in forms.items():
            try:
                plain[name] = form.to_plain(getattr(value, name))
            except _Misfit as misfit:
                raise misfit.below(f".{name}") from None
        return plain

    def read(plain: object) -> object:
        if not isinstance(plain, dict):
            raise _Misfit(f"must be an object with the fields of {kind.__name__}, not {type(plain).__name__}")
        if plain.keys() != forms.keys():
            raise _Misfit(_field_difference(plain.keys() - forms.keys(), forms.keys() - plain.keys()))
        fields = {}
        for name, form in forms.items():
            try:
                fields[name] = form.from_plain(plain[name])
            except _Misfit as misfit:
                raise misfit.below(f".{name}") from None
        try:
            return kind(**fields)
        except InvalidRequest as error:
            raise _Misfit(str(error)) from None

    return _Form(write, read)


def _field_difference(unknown: set[str], missing: set[str]) -> str:
    problems = []
    if unknown:
        problems.append(f"has unknown fields {', '.join(sorted(name[:40] for name in unknown))[:200]!r}")
    if missing:
        problems.append(f"lacks the fields {', '.join(sorted(missing))!r}")
    return " and ".join(problems)


def _shown(annotation: Any) -> str:
    if annotation in {None, type(None)}:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
