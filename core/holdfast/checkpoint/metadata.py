"""What an operator's state is, kept beside it so that a later run can tell whether it may go on with it.

The file is ``_holdfast/operator.json`` in the folder of the operator. It is not Spark's ``_metadata/metadata``: Spark
compares that with its own plan, where a Holdfast operator does not appear, and would refuse to restart the query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.failures import MissingFile
from holdfast.checkpoint.schema_files import StateSchema, check_compatible
from holdfast.contract.capabilities import DURABILITY
from holdfast.errors import CorruptState, InvalidRequest, InvalidSchema
from holdfast.rows import spark_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.checkpoint.storage import Folder

FORMAT_VERSION = 1
HOLDFAST_FOLDER = "_holdfast"
OPERATOR_FILE = "operator.json"

KINDS = frozenset(capability.name for capability in DURABILITY)
"""Where a provider's state is once the process is gone: the names of the capabilities that say so."""


@dataclass(frozen=True)
class OperatorMetadata:
    """What the state of one operator is."""

    name: str
    """By which the query finds its operator again."""
    kind: str
    """One of ``KINDS``: providers of one kind can replace each other."""
    provider_class: str
    """The provider that wrote this; for information, another of the same kind may follow."""
    partitions: int
    """How many parts the keys are spread over; fixed for good, because a key's place depends on it."""
    key_columns: tuple[str, ...]
    """The columns of the input by which it is grouped."""
    stores: Mapping[str, StateSchema]
    """What each store of a partition holds, by its name."""
    first_batch: int = 0
    """The batch it began with, empty; above 0 where the query was there before its operator."""

    def __post_init__(self) -> None:
        """Refuse what could not be read back."""
        if self.kind not in KINDS:
            raise InvalidRequest(f"{self.kind!r} is no kind of provider; it is one of {', '.join(sorted(KINDS))}")
        if self.partitions < 1:
            raise InvalidRequest(f"operator {self.name!r} has {self.partitions} partitions; it needs at least one")
        object.__setattr__(self, "key_columns", tuple(self.key_columns))
        object.__setattr__(self, "stores", dict(self.stores))


def read_operator(folder: Folder) -> OperatorMetadata | None:
    """Read what the state in an operator's folder is; None where Holdfast has not been."""
    try:
        data = folder.child(HOLDFAST_FOLDER).read(OPERATOR_FILE)
    except MissingFile:
        return None
    return decode_operator(data, f"{folder.shown}/{HOLDFAST_FOLDER}/{OPERATOR_FILE}")


def write_operator(folder: Folder, metadata: OperatorMetadata) -> None:
    """Write what the state in an operator's folder is: all of it or nothing."""
    folder.child(HOLDFAST_FOLDER).publish(OPERATOR_FILE, encode_operator(metadata))


def encode_operator(metadata: OperatorMetadata) -> bytes:
    """The content of the file."""
    stores = {
        name: {"key": json.loads(spark_json(schema.key)), "value": json.loads(spark_json(schema.value))}
        for name, schema in sorted(metadata.stores.items())
    }
    document = {
        "formatVersion": FORMAT_VERSION,
        "name": metadata.name,
        "kind": metadata.kind,
        "providerClass": metadata.provider_class,
        "numPartitions": metadata.partitions,
        "keyColumns": list(metadata.key_columns),
        **({"firstBatch": metadata.first_batch} if metadata.first_batch else {}),
        "stores": stores,
    }
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def decode_operator(data: bytes, where: str) -> OperatorMetadata:
    """Read the content of the file named ``where``; fields that this version does not know are ignored."""
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptState(f"{where} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise CorruptState(f"{where} is damaged: it holds no JSON object")
    version = _field(document, "formatVersion", int, where)
    if version > FORMAT_VERSION:
        raise CorruptState(
            f"{where} has format version {version}, and this Holdfast knows versions up to {FORMAT_VERSION}:"
            " a later Holdfast wrote it; use that one"
        )
    kind = _field(document, "kind", str, where)
    partitions = _field(document, "numPartitions", int, where)
    key_columns = _field(document, "keyColumns", list, where)
    if version < 1 or kind not in KINDS or partitions < 1 or not all(isinstance(each, str) for each in key_columns):
        raise CorruptState(
            f"{where} is damaged: format version {version}, kind {kind!r}, {partitions} partitions,"
            f" key columns {key_columns}"
        )
    stores = {}
    for name, schemas in _field(document, "stores", dict, where).items():
        if not isinstance(schemas, dict) or not {"key", "value"} <= schemas.keys():
            raise CorruptState(f"{where} is damaged: store {name!r} has no schema")
        key, value = json.dumps(schemas["key"]), json.dumps(schemas["value"])
        read = StateSchema.from_json(key, value, f"{where}: store {name!r}")
        stores[name] = StateSchema(read.key, read.value)  # spelled as Spark does, not as this file
    return OperatorMetadata(
        name=_field(document, "name", str, where),
        kind=kind,
        provider_class=_field(document, "providerClass", str, where),
        partitions=partitions,
        key_columns=tuple(key_columns),
        stores=stores,
        first_batch=_field(document, "firstBatch", int, where) if "firstBatch" in document else 0,
    )


def check_operator(stored: OperatorMetadata, new: OperatorMetadata, where: str) -> None:
    """Raise InvalidRequest, or InvalidSchema, unless the state at ``where`` can go on as the new operator.

    Another provider of the same kind may follow, and columns may have other names: see `check_compatible`.
    """
    if stored.name != new.name:
        raise InvalidRequest(
            f"the state in {where} is that of operator {stored.name!r}, not of {new.name!r}; set name={stored.name!r}"
            " on the operator if it is the same one, or start with a new checkpoint"
        )
    if stored.kind != new.kind:
        raise InvalidRequest(
            f"the state of operator {stored.name!r} in {where} was written by {stored.provider_class}, of kind"
            f" {stored.kind}, and {new.provider_class} is of kind {new.kind}, which keeps it elsewhere; set"
            f" providerClass to {stored.provider_class} or another one of kind {stored.kind}, or start with a new"
            " checkpoint and copy the state into it"
        )
    if stored.partitions != new.partitions:
        raise InvalidRequest(
            f"the state of operator {stored.name!r} in {where} has {stored.partitions} partitions, and the query asks"
            f" for {new.partitions}; a key's partition depends on their number, so set it to {stored.partitions} or"
            " start with a new checkpoint"
        )
    if stored.stores.keys() != new.stores.keys():
        raise InvalidSchema(
            f"the state of operator {stored.name!r} in {where} has the stores {_listed(stored.stores)}, and the query"
            f" uses {_listed(new.stores)}; go back to the stored ones or start with a new checkpoint"
        )
    for name, schema in stored.stores.items():
        check_compatible(schema, new.stores[name], f"{where} (operator {stored.name!r}, store {name!r})")


def _listed(stores: Mapping[str, StateSchema]) -> str:
    return ", ".join(f"{name!r}" for name in sorted(stores)) or "none"


def _field(document: dict[str, Any], name: str, kind: type, where: str) -> Any:
    """One field of the document; a bool is no number."""
    value = document.get(name)
    if type(value) is not kind:
        raise CorruptState(f"{where} is damaged: {name} is {'missing' if value is None else f'{value!r}'}")
    return value
