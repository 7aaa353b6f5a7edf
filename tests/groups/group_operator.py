"""Drives a plan over micro-batches of one partition, on the memory backend."""

import pyarrow as pa

from holdfast.conformance import Backend
from holdfast.groups import Moment

PLENTY = 1 << 30


class Operator:
    """One partition of an operator; each call of `run` is a micro-batch."""

    def __init__(self, plan, folder, memory_limit=PLENTY):
        self.plan = plan
        self.folder = folder
        self.memory_limit = memory_limit
        self.version = 0
        backend = Backend("memory", str(folder))
        self.providers = {
            name: backend.open(store_name=name, key_schema=schema.key, value_schema=schema.value)
            for name, schema in plan.stores.items()
        }

    def run(self, *batches, watermark_ms=None, batch_time_ms=None):
        """Rows of output of one micro-batch, as dicts; the state is committed."""
        return self.table(*batches, watermark_ms=watermark_ms, batch_time_ms=batch_time_ms).to_pylist()

    def table(self, *batches, watermark_ms=None, batch_time_ms=None):
        stores = {name: provider.get_store(self.version) for name, provider in self.providers.items()}
        moment = Moment(self.version, watermark_ms, batch_time_ms)
        try:
            with self.plan.engine(self.memory_limit, str(self.folder)) as engine:
                for batch in batches:
                    engine.consume(batch)
                output = list(engine.finish(stores, moment))
            for store in stores.values():
                store.commit()
            self.version += 1
        finally:
            for store in stores.values():
                store.abort()
        for batch in output:
            assert batch.schema.equals(self.plan.output_schema)
            batch.validate(full=True)
        return pa.Table.from_batches(output, self.plan.output_schema)

    def num_keys(self, name="default"):
        with self.providers[name].get_read_store(self.version) as store:
            return store.metrics.num_keys


def batch(schema, *rows):
    """A batch of tuples."""
    from holdfast.rows import arrow_schema

    schema = arrow_schema(schema)
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
