"""Looks through a whole environment in a process of its own: ``python probe.py FOLDER``.

LMDB trusts its file, and one that is damaged can kill the process that reads it. So a file that was not closed in
order is read here first, and only if this process ends well does the host open it.
"""

from __future__ import annotations

import sys


def main(folder: str) -> None:
    """Touch every entry of every database."""
    import lmdb

    with lmdb.open(folder, readonly=True, lock=False, max_dbs=8) as environment, environment.begin() as transaction:
        for name in list(transaction.cursor().iternext(values=False)):
            database = environment.open_db(name, transaction, create=False)
            entries = sum(1 for _ in transaction.cursor(database))
            if entries != transaction.stat(database)["entries"]:
                raise SystemExit(f"{name!r} has {entries} entries, and says otherwise")


if __name__ == "__main__":
    main(sys.argv[1])
