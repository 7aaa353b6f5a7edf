"""Hypothesis strategies for schemas and for tables that fit them."""

import struct
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

# What Python's datetime reaches; Spark and Arrow go on to the ends of the integers.
PYTHON_DAYS = (-719_162, 2_932_896)
PYTHON_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)

LEAVES = [
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", tz="UTC"),
    pa.timestamp("us"),
]

decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
leaves = st.one_of(st.sampled_from(LEAVES), decimals)


def types(depth=3, *, maps=True, lists=True):
    """Types nested up to `depth`; Spark allows no maps inside the keys of maps."""
    if depth == 0:
        return leaves
    inner = types(depth - 1, maps=maps, lists=lists)
    options = [leaves, leaves, st.lists(fields(inner), min_size=1, max_size=3).map(named).map(pa.struct)]
    if lists:
        options.append(fields(inner).map(lambda f: pa.list_(f.with_name("element"))))
    if maps:
        keys = types(depth - 1, maps=False, lists=lists)
        options.append(
            st.tuples(keys, fields(inner)).map(
                lambda kv: pa.map_(pa.field("key", kv[0], nullable=False), kv[1].with_name("value"))
            )
        )
    return st.one_of(options)


def fields(data_types):
    return st.builds(lambda t, nullable: pa.field("x", t, nullable=nullable), data_types, st.booleans())


def named(columns):
    return [field.with_name(f"c{index}") for index, field in enumerate(columns)]


def schemas(depth=3, max_columns=5, **options):
    return st.lists(fields(types(depth, **options)), min_size=1, max_size=max_columns).map(named).map(pa.schema)


def _float64(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def _signed(width):
    return st.one_of(
        st.sampled_from([0, 1, -1, 2 ** (width - 1) - 1, -(2 ** (width - 1))]),
        st.integers(-(2 ** (width - 1)), 2 ** (width - 1) - 1),
    )


def _unscaled(precision):
    top = 10**precision - 1
    # Where the number of bytes of a big decimal changes, and around the slot's 64 bits.
    edges = [sign * 2**bits + more for bits in (7, 8, 63, 64, 119) for sign in (1, -1) for more in (-1, 0, 1)]
    return st.one_of(
        st.sampled_from([0, 1, -1, top, -top, *(e for e in edges if abs(e) <= top)]), st.integers(-top, top)
    )


def values(data_type, *, python=False):
    """Values that pa.array accepts for the type; `python`: only what Python's own types can hold."""
    is_ = pa.types
    if is_.is_boolean(data_type):
        return st.booleans()
    if is_.is_integer(data_type):
        return _signed(data_type.bit_width)
    if is_.is_float32(data_type):
        return st.one_of(st.sampled_from([0.0, -0.0]), st.floats(width=32))
    if is_.is_float64(data_type):
        nans = st.integers(0, 2**52 - 1).map(lambda bits: _float64(0x7FF8 << 48 | bits))
        return st.one_of(st.sampled_from([0.0, -0.0]), st.floats(), nans)
    if is_.is_decimal(data_type):
        scale = -data_type.scale
        return _unscaled(data_type.precision).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), scale)))
    if is_.is_string(data_type):
        return st.one_of(st.just(""), st.text(max_size=20), st.text("a\0é", max_size=10))
    if is_.is_binary(data_type):
        return st.binary(max_size=20)
    if is_.is_date(data_type):
        return st.integers(*PYTHON_DAYS) if python else _signed(32)
    if is_.is_timestamp(data_type):
        return st.integers(*PYTHON_MICROS) if python else _signed(64)
    if is_.is_map(data_type):
        pair = st.tuples(values(data_type.key_type, python=python), optional(data_type.item_field, python=python))
        return st.lists(pair, max_size=4)
    if is_.is_list(data_type):
        return st.lists(optional(data_type.value_field, python=python), max_size=5)
    return st.tuples(*(optional(field, python=python) for field in data_type)).map(
        lambda row: {field.name: value for field, value in zip(data_type, row, strict=True)}
    )


def optional(field, *, python=False):
    present = values(field.type, python=python)
    return st.one_of(st.none(), present, present) if field.nullable else present


@st.composite
def batches(draw, schema=None, *, python=False, max_rows=8, **options):
    """Record batches with their schema drawn first; the batch may be a slice of a longer one."""
    if schema is None:
        schema = draw(schemas(**options))
    rows = draw(st.lists(values(pa.struct(list(schema)), python=python), max_size=max_rows))
    start = draw(st.integers(0, min(len(rows), 2)))
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema).slice(start)
