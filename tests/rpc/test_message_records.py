"""Messages as JSON: what goes in comes out, and nothing else is taken."""

import dataclasses
import enum
import json
import uuid
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidRequest
from holdfast.ids import StateStoreId, StateStoreProviderId
from holdfast.rpc import messages
from holdfast.rpc.messages import GetLocation, Grant, Message, ReportInstances, StartCommitTracking
from holdfast.rpc.records import decode, encode


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True, slots=True)
class Inner:
    number: int
    colour: Colour


@dataclasses.dataclass(frozen=True, slots=True)
class Everything:
    text: str
    number: int
    ratio: float
    flag: bool
    nothing: None
    run: uuid.UUID
    blob: bytes
    items: tuple[Inner, ...]
    counts: dict[str, int]
    nested: Mapping[int, dict[str, float]]
    maybe: Inner | None


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INNER = st.builds(Inner, st.integers(), st.sampled_from(Colour))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
EVERYTHING = st.builds(
    Everything,
    TEXT,
    st.integers(),
    FLOATS,
    st.booleans(),
    st.none(),
    st.uuids(),
    st.binary(),
    st.lists(INNER).map(tuple),
    st.dictionaries(TEXT, st.integers()),
    st.dictionaries(st.integers(-(2**62), 2**62), st.dictionaries(TEXT, FLOATS)),
    st.none() | INNER,
)
PROVIDER_ID = StateStoreProviderId(StateStoreId("/checkpoint/state", 1000, 3), uuid.UUID(int=9))


@given(EVERYTHING)
def test_what_goes_in_comes_out(record):
    data = encode(Everything, record)
    assert decode(Everything, data) == record
    assert type(decode(Everything, data).ratio) is float


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_any_other_value_in_any_field_is_the_same_record_or_refused(data):
    plain = json.loads(encode(Everything, data.draw(EVERYTHING)))
    plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(JSON_VALUES)
    sent = json.dumps(plain).encode()
    try:
        record = decode(Everything, sent)
    except InvalidRequest:
        return
    assert json.loads(encode(Everything, record)) == plain


@given(st.binary())
def test_garbage_is_refused(data):
    with pytest.raises(InvalidRequest):
        decode(Everything, data)


def changed(**fields):
    record = Everything(
        "t", 1, 1.5, True, None, uuid.UUID(int=1), b"b", (Inner(1, Colour.RED),), {"a": 1}, {1: {}}, None
    )
    return {**json.loads(encode(Everything, record)), **fields}


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("text", 1, "Everything.text: must be str, not int"),
        ("text", "\ud800", "Everything.text: must be text that UTF-8 can hold"),
        ("number", True, "Everything.number: must be int, not bool"),
        ("number", 1.0, "Everything.number: must be int, not float"),
        ("ratio", "1", "Everything.ratio: must be float, not str"),
        ("ratio", 10**400, "Everything.ratio: must be a number that a float can hold"),
        ("flag", 1, "Everything.flag: must be bool, not int"),
        ("nothing", 0, "Everything.nothing: must be None, not int"),
        ("run", "no", "Everything.run: must be a UUID"),
        ("run", "{00000000-0000-0000-0000-000000000001}", "Everything.run: must be a UUID in its usual spelling"),
        ("blob", "not base64!", "Everything.blob: must be base64"),
        ("items", {}, "Everything.items: must be a list, not dict"),
        ("items", [{"number": 1, "colour": "red"}, 5], "Everything.items[1]: must be an object"),
        ("items", [{"number": 1, "colour": "green"}], "Everything.items[0].colour: must be one of 'red', 'blue'"),
        ("counts", {"a": "b"}, "Everything.counts['a']: must be int"),
        ("nested", {"01": {}}, "Everything.nested: must have whole numbers as keys"),
        ("nested", {"None": {}}, "Everything.nested: must have whole numbers as keys"),
        ("maybe", {"number": 1}, "Everything.maybe: lacks the fields 'colour'"),
        ("maybe", {"number": 1, "colour": "red", "x": 1}, "Everything.maybe: has unknown fields 'x'"),
    ],
)
def test_a_refusal_names_the_field(field, value, problem):
    with pytest.raises(InvalidRequest) as refused:
        decode(Everything, json.dumps(changed(**{field: value})).encode())
    assert problem in str(refused.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_lacks_are_refused(number):
    data = json.dumps(changed(ratio=0)).replace('"ratio": 0', f'"ratio": {number}').encode()
    with pytest.raises(InvalidRequest):
        decode(Everything, data)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_not_sent(number):
    with pytest.raises(InvalidRequest, match=r"cannot send Grant.expires_in: must be a finite number"):
        encode(Grant, Grant("i", 1, number, None))


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 200_000, b"9" * 5_000_000])
def test_what_would_exhaust_the_parser_is_refused(data):
    with pytest.raises(InvalidRequest):
        decode(Everything, data)


def test_what_a_record_itself_refuses_is_refused():
    plain = json.loads(encode(GetLocation, GetLocation(PROVIDER_ID)))
    plain["provider_id"]["store_id"]["store_name"] = "../other"
    with pytest.raises(InvalidRequest, match=r"GetLocation.provider_id.store_id: .*'\.\./other'"):
        decode(GetLocation, json.dumps(plain).encode())


def test_a_wrong_type_is_not_sent():
    with pytest.raises(InvalidRequest, match=r"cannot send GetLocation.provider_id: must be StateStoreProviderId"):
        encode(GetLocation, GetLocation("p"))


def message_kinds():
    return [kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, Message)][1:]


@pytest.mark.parametrize("kind", message_kinds(), ids=lambda kind: kind.__name__)
def test_every_message_and_its_answer_can_be_sent(kind):
    assert dataclasses.is_dataclass(kind)
    assert "__slots__" in vars(kind)
    with pytest.raises(InvalidRequest):
        decode(kind, b"[]")
    with pytest.raises(InvalidRequest):
        decode(kind.reply, b"{}")


def test_answers_are_those_of_the_class_statement():
    assert GetLocation.reply == str | None
    assert ReportInstances.reply == tuple[StateStoreProviderId, ...]
    tracking = StartCommitTracking(uuid.UUID(int=1), 4, {1000: {"default": 5}})
    assert decode(StartCommitTracking, encode(StartCommitTracking, tracking)) == tracking


def test_a_type_without_a_form_is_a_mistake_of_ours():
    with pytest.raises(TypeError, match="cannot have a field of type"):
        encode(set[int], {1})
