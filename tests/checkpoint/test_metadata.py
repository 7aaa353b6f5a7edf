"""``_holdfast/operator.json``: what an operator's state is, and who may go on with it."""

import dataclasses
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.metadata import (
    KINDS,
    OperatorMetadata,
    check_operator,
    decode_operator,
    encode_operator,
    read_operator,
    write_operator,
)
from holdfast.checkpoint.schema_files import StateSchema
from holdfast.checkpoint.storage import Folder
from holdfast.contract.faults import watch_fault_points
from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema
from holdfast.rows import arrow_schema


def schema(key="user string", value="n long, total long"):
    return StateSchema(arrow_schema(key), arrow_schema(value))


TOTALS = OperatorMetadata(
    name="running_total(user)",
    kind="LOG",
    provider_class="holdfast_files.HDFSBackedStateStoreProvider",
    partitions=8,
    key_columns=("user",),
    stores={"default": schema()},
)

GOLDEN = """{
 "formatVersion": 1,
 "name": "running_total(user)",
 "kind": "LOG",
 "providerClass": "holdfast_files.HDFSBackedStateStoreProvider",
 "numPartitions": 8,
 "keyColumns": [
  "user"
 ],
 "stores": {
  "default": {
   "key": {
    "type": "struct",
    "fields": [
     {
      "name": "user",
      "type": "string",
      "nullable": true,
      "metadata": {}
     }
    ]
   },
   "value": {
    "type": "struct",
    "fields": [
     {
      "name": "n",
      "type": "long",
      "nullable": true,
      "metadata": {}
     },
     {
      "name": "total",
      "type": "long",
      "nullable": true,
      "metadata": {}
     }
    ]
   }
  }
 }
}
"""


def changed(**fields):
    return dataclasses.replace(TOTALS, **fields)


def document(**fields):
    return json.dumps({**json.loads(GOLDEN), **fields}).encode()


class TestFile:
    def test_golden_bytes_of_format_version_1(self):
        assert encode_operator(TOTALS).decode() == GOLDEN
        assert decode_operator(GOLDEN.encode(), "x") == TOTALS

    @pytest.mark.parametrize("url", ["memory://metadata/{}/1000", "{}/state/1000"])
    def test_written_and_read(self, url, tmp_path):
        folder = Folder.open(url.format(tmp_path))
        assert read_operator(folder) is None
        write_operator(folder, TOTALS)
        assert folder.folders() == ["_holdfast"], "not _metadata, which Spark would compare with its plan"
        assert list(folder.child("_holdfast").list()) == ["operator.json"]
        assert read_operator(folder) == TOTALS
        write_operator(folder, changed(partitions=9))
        assert read_operator(folder) == changed(partitions=9)

    def test_a_crash_while_writing_leaves_the_old_file(self, tmp_path):
        folder = Folder.open(str(tmp_path / "1000"))
        write_operator(folder, TOTALS)

        class Crash(Exception):
            pass

        def crash(name):
            if name == "publish.written":
                raise Crash

        with watch_fault_points(crash), pytest.raises(Crash):
            write_operator(folder, changed(partitions=9))
        assert read_operator(folder) == TOTALS

    @given(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.sampled_from(sorted(KINDS)),
        st.integers(1, 10_000),
        st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from([schema(), schema("k int")])
        ),
    )
    def test_round_trip(self, name, kind, partitions, key_columns, stores):
        metadata = OperatorMetadata(name, kind, "a.B", partitions, tuple(key_columns), stores)
        assert decode_operator(encode_operator(metadata), "x") == metadata

    def test_schemas_are_spelled_as_spark_does_afterwards(self):
        odd = StateSchema(pa.schema({'\x1f"é': pa.string()}), pa.schema({"v": pa.null()}))
        read = decode_operator(encode_operator(changed(stores={"s": odd})), "x").stores["s"]
        assert (read.key_json, read.value_json) == (odd.key_json, odd.value_json)
        assert "\\u001F" in read.key_json

    def test_fields_of_later_versions_are_ignored(self):
        stores = {"default": {**json.loads(GOLDEN)["stores"]["default"], "ttl": 5}}
        assert decode_operator(document(comment="new", stores=stores), "x") == TOTALS

    def test_a_later_format_version_names_both(self):
        with pytest.raises(CorruptState, match=r"^here has format version 2, .* up to 1: .*later Holdfast"):
            decode_operator(document(formatVersion=2, kind="ELSEWHERE", stores=None), "here")

    def test_what_cannot_be_read_back_is_not_made(self):
        with pytest.raises(InvalidRequest, match="'log' is no kind of provider; it is one of EXTERNAL, LOG, VOLATILE"):
            changed(kind="log")
        with pytest.raises(InvalidRequest, match="at least one"):
            changed(partitions=0)


class TestDamage:
    def test_every_truncation_is_found(self):
        data = GOLDEN.strip().encode()
        for length in range(len(data)):
            with pytest.raises(CorruptState, match="^here is damaged"):
                decode_operator(data[:length], "here")

    def test_every_flipped_bit_is_found_or_refused_or_in_a_name(self):
        data, messages = GOLDEN.encode(), []
        for position in range(len(data)):
            for bit in range(8):
                flipped = bytearray(data)
                flipped[position] ^= 1 << bit
                try:
                    read = decode_operator(bytes(flipped), "here")
                    check_operator(read, TOTALS, "here")
                except (CorruptState, InvalidRequest) as error:
                    messages.append(str(error))
                    continue
                changes = (read.provider_class != TOTALS.provider_class) + (read.key_columns != TOTALS.key_columns)
                names = read.stores["default"] != TOTALS.stores["default"]
                assert changes + names <= 1
        assert all("here" in message for message in messages)

    @pytest.mark.parametrize("value", [None, [1], {"a": 1}, -1, 1.5, True, "?"])
    @pytest.mark.parametrize("field", json.loads(GOLDEN))
    def test_fields_that_make_no_sense_are_found(self, field, value):
        if field in {"name", "providerClass"} and value == "?":
            value = ["?"]  # because any text is a name
        with pytest.raises(CorruptState, match="^here is damaged|^here: store 'default'"):
            decode_operator(document(**{field: value}), "here")

    @pytest.mark.parametrize("store", [None, {}, {"key": {}}, {"key": {}, "value": {}}, {"key": 1, "value": "long"}])
    def test_stores_without_schemas_are_found(self, store):
        with pytest.raises(CorruptState, match="^here(: store 'default': key)? is damaged"):
            decode_operator(document(stores={"default": store}), "here")

    @pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b"1", b"\0" * 100])
    def test_other_content_is_found(self, data):
        with pytest.raises(CorruptState, match="^here is damaged"):
            decode_operator(data, "here")

    def test_the_file_is_named_when_read_from_a_folder(self, tmp_path):
        folder = Folder.open(str(tmp_path / "1000"))
        folder.child("_holdfast").publish("operator.json", b"{")
        with pytest.raises(CorruptState, match=r"1000/_holdfast/operator\.json is damaged"):
            read_operator(folder)


class TestCheck:
    @pytest.mark.parametrize(
        "new",
        [
            TOTALS,
            changed(provider_class="holdfast_lmdb.LmdbStateStoreProvider"),
            changed(stores={"default": schema("account string", "n long, sum long not null")}),
            changed(key_columns=("account",)),
        ],
        ids=["same", "provider", "names", "key columns"],
    )
    def test_what_may_follow(self, new):
        check_operator(TOTALS, new, "here")

    def test_another_number_of_partitions_is_refused(self):
        with pytest.raises(
            InvalidRequest, match=r"running_total.*in here has 8 partitions.*asks for 4.*set it to 8 or"
        ):
            check_operator(TOTALS, changed(partitions=4), "here")

    @pytest.mark.parametrize(("stored", "new"), [("LOG", "EXTERNAL"), ("EXTERNAL", "LOG"), ("VOLATILE", "LOG")])
    def test_another_kind_is_refused_with_the_way_out(self, stored, new):
        with pytest.raises(InvalidRequest) as refused:
            check_operator(changed(kind=stored), changed(kind=new, provider_class="acme.Provider"), "here")
        message = str(refused.value)
        assert f"by {TOTALS.provider_class}, of kind {stored}, and acme.Provider is of kind {new}" in message
        assert f"set providerClass to {TOTALS.provider_class} or another one of kind {stored}, or" in message

    def test_another_operator_is_refused(self):
        with pytest.raises(
            InvalidRequest, match=r"operator 'running_total\(user\)', not of 'other'; set name='running"
        ):
            check_operator(TOTALS, changed(name="other"), "here")

    def test_another_schema_is_refused_and_says_of_which_store(self):
        new = changed(stores={"default": schema(value="n long, total double")})
        with pytest.raises(
            InvalidSchema, match=r"in here \(operator 'running.*', store 'default'\).*value.total is double"
        ):
            check_operator(TOTALS, new, "here")

    def test_other_stores_are_refused(self):
        new = changed(stores={"default": schema(), "timers": schema()})
        with pytest.raises(InvalidSchema, match="has the stores 'default', and the query uses 'default', 'timers'"):
            check_operator(TOTALS, new, "here")
        with pytest.raises(InvalidSchema, match="has the stores 'default', 'timers', and the query uses 'default'"):
            check_operator(new, TOTALS, "here")
