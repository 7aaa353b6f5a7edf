from pathlib import Path
from uuid import UUID

import pytest

from holdfast import StateStoreId, StateStoreProviderId
from holdfast.errors import InvalidRequest

RUN = UUID("00000000-0000-0000-0000-000000000001")


def test_default_store_has_no_folder_of_its_own():
    assert StateStoreId("s3a://b/q/state", 3, 7).store_checkpoint_location() == "s3a://b/q/state/3/7"


def test_named_store_has_one():
    store = StateStoreId("/q/state/", 3, 7, "left-keyToNumValues")
    assert store.store_checkpoint_location() == "/q/state/3/7/left-keyToNumValues"


def test_ids_are_values():
    first = StateStoreProviderId(StateStoreId("/q", 0, 1), RUN)
    assert first == StateStoreProviderId(StateStoreId("/q", 0, 1), RUN)
    assert len({first, StateStoreProviderId(StateStoreId("/q", 0, 2), RUN)}) == 2
    with pytest.raises(AttributeError):
        first.store_id = None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("", 0, 0), "checkpoint root"),
        (("/q", -1, 0), "operator_id"),
        (("/q", 0, -1), "partition_id"),
        (("/q", 0.5, 0), "operator_id must be a whole number"),
        (("/q", True, 0), "operator_id must be a whole number"),
        (("/q", 0, "0"), "partition_id must be a whole number"),
        ((Path("/q"), 0, 0), "checkpoint_root must be text"),
        (("/q", 0, 0, 5), "store_name must be text"),
        (("/q", 0, 0, ""), "store name"),
        (("/q", 0, 0, ".."), "store name '..'"),
        (("/q", 0, 0, "a/b"), "store name 'a/b'"),
    ],
)
def test_what_cannot_be_an_id(arguments, named):
    with pytest.raises(InvalidRequest, match=named):
        StateStoreId(*arguments)
