import contextlib

import pytest
from sample_messages import Behaviour, address_of, make_client, make_server


@pytest.fixture
def behaviour():
    return Behaviour()


@pytest.fixture
def server(behaviour):
    with make_server(behaviour) as server:
        yield server
        behaviour.proceed.set()


@pytest.fixture
def connect():
    """Makes clients that are closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def make(address, **options):
            client = make_client(address, **options)
            stack.callback(client.close)
            return client

        yield make


@pytest.fixture
def client(server, connect):
    return connect(address_of(server))
