"""The demo: versions of a store, committed, aborted and read again."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from holdfast.conf import HOLDFAST_PROVIDER_CLASS, StateStoreConf
from holdfast.contract.provider import Unguarded
from holdfast.errors import MissingVersion
from holdfast.ids import StateStoreId
from holdfast.plugins.registry import create_and_init
from holdfast.rows import RowCodec, arrow_schema

if TYPE_CHECKING:
    from holdfast.contract.provider import StateStoreProvider

KEY = "user string"
VALUE = "orders long, total long"

BATCHES = [
    [("ann", 10), ("bob", 5)],
    [("ann", 7), ("cid", 1), ("bob", 5)],
    [("dan", 100), ("ann", 3)],
]


def run(provider_name: str) -> None:
    """Walk through the life of a store with running totals per user."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        provider = create_and_init(
            StateStoreId(f"{folder}/state", operator_id=0, partition_id=0),
            KEY,
            VALUE,
            None,
            StateStoreConf.parse({HOLDFAST_PROVIDER_CLASS: provider_name}),
            {},
            Unguarded(),
        )
        try:
            _walk(provider, console)
        finally:
            provider.close()


def _walk(provider: StateStoreProvider, console: Console) -> None:
    console.print(f"Running totals per user on [bold]{type(provider).__name__}[/], one version per micro-batch.")
    users, totals = RowCodec(arrow_schema(KEY)), RowCodec(arrow_schema(VALUE))

    def add(version: int, orders: list[tuple[str, int]], *, commit: bool = True) -> None:
        with provider.get_store(version) as store:
            for user, amount in orders:
                key = users.encode_one((user,))
                before = store.get(key)
                count, total = totals.decode_one(before) if before else (0, 0)
                store.put(key, totals.encode_one((count + 1, total + amount)))
            batch = f"batch {version}, {'1 order' if len(orders) == 1 else f'{len(orders)} orders'}"
            if commit:
                console.print(f"{batch}: committed version {store.commit()}")
            else:
                store.abort()
                console.print(f"{batch}: [yellow]aborted[/], the task failed")

    for version, orders in enumerate(BATCHES[:2]):
        add(version, orders)
    add(2, [("eve", 1_000_000)], commit=False)
    try:
        provider.get_read_store(3)
    except MissingVersion:
        console.print("version 3 does not exist: nothing of the aborted batch was published")
    add(2, BATCHES[2])

    newest = len(BATCHES)
    table = Table("version", "user", "orders", "total", title="The state, version by version")
    for version in (newest - 1, newest):
        with provider.get_read_store(version) as store:
            rows = sorted((users.decode_one(key), totals.decode_one(value)) for key, value in store.iterator())
            for (user,), (count, total) in rows:
                table.add_row(str(version), user, str(count), str(total))
            table.add_section()
    console.print(table)
    # Recounted from the orders, so that the demo notices if the store forgot anything.
    expected: dict[str, tuple[int, int]] = {}
    for user, amount in (order for batch in BATCHES for order in batch):
        count, total = expected.get(user, (0, 0))
        expected[user] = (count + 1, total + amount)
    with provider.get_read_store(newest) as store:
        found = {users.decode_one(key)[0]: totals.decode_one(value) for key, value in store.iterator()}
    if found != expected:
        raise SystemExit(f"the state is wrong: found {found}, expected {expected}")
    console.print("[green]The state equals a recount of all committed orders.[/]")
