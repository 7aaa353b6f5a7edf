"""A task in a process of its own: opens a store, puts one pair, says so, and does what it reads from standard input."""

import json
import sys

from cluster import Query, put

from holdfast.executor.client import StateHostClient
from holdfast.executor.launch import ExecutorInfo
from holdfast.rpc.address import Address


def main(arguments):
    coordinator = Address(**arguments["coordinator"])
    client = StateHostClient(ExecutorInfo(**arguments["executor"], coordinator=coordinator), arguments["conf"])
    query = Query(arguments["root"], arguments["query_conf"])
    store = query.open(client, arguments["version"], attempt=arguments["attempt"])
    put(store, {"child": arguments["attempt"]})
    store.get_many([b"x" * 16])  # what was put has arrived
    print("open", flush=True)
    for line in sys.stdin:
        if line.strip() == "commit":
            print("committed", store.commit(), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
