"""Asking and telling: answers, errors, order, retries, timeouts."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pyarrow as pa
import pytest
from pyarrow import flight
from relay import Relay
from sample_messages import (
    SOFTWARE,
    TOKEN,
    Behaviour,
    Broken,
    Echo,
    Forbidden,
    Note,
    Once,
    Tell,
    Wait,
    address_of,
    make_client,
    make_server,
)

from holdfast.errors import Fenced, HoldfastError, InvalidRequest, MissingVersion, Unavailable, VersionSkew
from holdfast.rpc.address import Address
from holdfast.rpc.failures import translated
from holdfast.rpc.messages import PROTOCOL, Hello
from holdfast.rpc.server import RpcServer


def test_an_answer_is_what_the_handler_returned(client):
    assert client.ask(Echo("grüße")) == "grüße"
    assert client.ask(Note(3)) is None


def test_an_error_comes_back_as_it_was_raised(client):
    with pytest.raises(Fenced) as refused:
        client.ask(Forbidden())
    assert str(refused.value) == "attempt 3 of partition 5 came too late; drop it"


def test_a_defect_of_a_handler_is_logged_there_and_the_server_lives_on(client, caplog):
    with pytest.raises(HoldfastError, match=r"Broken failed at the test server: KeyError: 'no such key'; its log"):
        client.ask(Broken())
    assert any(record.exc_info and "Broken" in record.getMessage() for record in caplog.records)
    assert client.ask(Echo("still here")) == "still here"


def test_many_threads_share_a_client(client):
    answers = {}
    threads = [threading.Thread(target=lambda n=n: answers.update({n: client.ask(Echo(str(n)))})) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {n: str(n) for n in range(40)}


def test_a_slow_handler_holds_up_nobody_else(client, behaviour):
    slow = threading.Thread(target=client.ask, args=(Wait(),))
    slow.start()
    assert behaviour.waiting.wait(30)
    assert client.ask(Echo("quick")) == "quick"
    behaviour.proceed.set()
    slow.join(30)
    assert not slow.is_alive()


# One-way messages


def test_one_way_messages_arrive_in_order_and_closing_waits_for_them(server, behaviour):
    client = make_client(address_of(server))
    for number in range(500):
        client.send(Note(number))
    client.close(timeout=60)
    assert behaviour.noted == list(range(500))


def test_a_one_way_message_that_fails_is_logged_and_the_next_one_goes_out(server, behaviour, caplog):
    client = make_client(address_of(server))
    for message in (Note(1), Forbidden(), Note(2)):
        client.send(message)
    client.close(timeout=60)
    assert behaviour.noted == [1, 2]
    assert "Forbidden was not delivered: attempt 3 of partition 5" in caplog.text


def test_the_queue_of_one_way_messages_is_bounded(server, behaviour, caplog):
    client = make_client(address_of(server), max_queued=3)
    client.send(Wait())
    assert behaviour.waiting.wait(30)
    for number in range(10):
        client.send(Note(number))
    assert caplog.text.count("was dropped: 3 others are waiting") == 7
    behaviour.proceed.set()
    client.close(timeout=60)
    assert behaviour.noted == [0, 1, 2]


def test_closing_does_not_wait_for_ever(server, behaviour, caplog):
    client = make_client(address_of(server))
    client.send(Wait())
    assert behaviour.waiting.wait(30)
    client.send(Note(1))
    client.close(timeout=0.1)
    assert "1 messages to" in caplog.text
    with pytest.raises(InvalidRequest, match="is closed"):
        client.ask(Echo("late"))
    client.send(Note(2))
    assert "Note to grpc://127.0.0.1:" in caplog.text


# The hello


def test_another_protocol_is_refused_with_both_numbers_and_versions(server, connect):
    other = Hello(PROTOCOL + 1, {"holdfast": "9.9"}, "executor 7 on host-b")
    with pytest.raises(VersionSkew) as skew:
        connect(address_of(server), hello=other).ask(Echo("x"))
    text = str(skew.value)
    assert f"the test server speaks protocol {PROTOCOL} (acme-stores 2.0, holdfast 1.0)" in text
    assert f"executor 7 on host-b protocol {PROTOCOL + 1} (holdfast 9.9)" in text


@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.ask(Note(1)),
        lambda client: client.do_exchange(flight.FlightDescriptor.for_command(b"x")),
        lambda client: client.do_get(flight.Ticket(b"x")),
    ],
    ids=["ask", "exchange", "get"],
)
def test_other_software_is_refused_before_anything_else(server, connect, behaviour, use):
    client = connect(address_of(server), hello=Hello(PROTOCOL, {**SOFTWARE, "acme-stores": "2.1"}, "executor 7"))
    with pytest.raises(VersionSkew, match=r"acme-stores is 2.0 on the test server and 2.1 on executor 7"):
        use(client)
    assert behaviour.noted == []


def test_a_server_that_came_back_with_other_software_is_noticed(behaviour, connect):
    first = make_server(behaviour)
    first.start()
    client = connect(address_of(first))
    assert client.ask(Echo("x")) == "x"
    port = first.port
    first.stop()
    with pytest.raises(Unavailable):
        client.ask(Echo("x"), timeout=0.5)
    with (
        RpcServer(
            f"grpc://127.0.0.1:{port}", TOKEN, behaviour.handlers(), software={"holdfast": "2"}, name="the new one"
        ),
        pytest.raises(VersionSkew, match=r"holdfast is 2 on the new one and 1.0 on executor 7"),
    ):
        client.ask(Echo("x"))


# Lost connections


def test_an_idempotent_message_is_asked_again_when_its_answer_is_lost(server, behaviour, connect):
    with Relay(server.port) as relay:
        client = connect(Address(f"grpc://127.0.0.1:{relay.port}", TOKEN))
        client.ask(Echo("connected"))
        behaviour.before_answer.append(lambda: len(behaviour.noted) == 1 and relay.cut())
        assert client.ask(Note(5)) is None
    assert behaviour.noted == [5, 5]


@pytest.mark.parametrize("retries", [0, 2])
def test_retries_are_bounded(server, behaviour, connect, retries):
    with Relay(server.port) as relay:
        client = connect(Address(f"grpc://127.0.0.1:{relay.port}", TOKEN), retries=retries)
        client.ask(Echo("connected"))
        behaviour.before_answer.append(relay.cut)
        with pytest.raises(Unavailable, match=rf"Note at grpc://127.0.0.1:{relay.port}: "):
            client.ask(Note(5))
    assert behaviour.noted == [5] * (1 + retries)


def test_a_message_that_must_not_be_repeated_is_not(server, behaviour, connect):
    with Relay(server.port) as relay:
        client = connect(Address(f"grpc://127.0.0.1:{relay.port}", TOKEN))
        client.ask(Echo("connected"))
        behaviour.before_answer.append(relay.cut)
        with pytest.raises(Unavailable):
            client.ask(Once())
    assert behaviour.once == 1


def test_nobody_there_is_unavailable_and_says_where(connect):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unavailable) as gone:
        connect(Address(f"grpc://127.0.0.1:{port}", TOKEN), retries=1).ask(Echo("x"))
    assert f"Hello at grpc://127.0.0.1:{port}: " in str(gone.value)
    assert TOKEN not in str(gone.value)


def test_a_server_that_never_answers_is_given_up(connect):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(Address(f"grpc://127.0.0.1:{silent.getsockname()[1]}", TOKEN), timeout=0.5)
        with pytest.raises(Unavailable):
            client.ask(Echo("x"))


def test_a_handler_that_takes_too_long_is_given_up(client, behaviour):
    client.ask(Echo("connected"))
    with pytest.raises(Unavailable, match=r"Wait at grpc://.*: no answer within"):
        client.ask(Wait(), timeout=0.3)
    behaviour.proceed.set()
    assert client.ask(Echo("x")) == "x"


def test_a_client_finds_the_server_again_after_its_restart_on_the_same_port(behaviour, connect):
    first = make_server(behaviour)
    first.start()
    client = connect(address_of(first), retries=10)
    assert client.ask(Echo("x")) == "x"
    first.stop()
    with make_server(behaviour, f"grpc://127.0.0.1:{first.port}") as second:
        assert second.port == first.port
        assert client.ask(Echo("y")) == "y"


def test_a_port_that_is_taken_is_an_error_that_names_it(server, behaviour):
    location = f"grpc://127.0.0.1:{server.port}"
    with pytest.raises(Unavailable, match=rf"the test server cannot listen on {location}"):
        make_server(behaviour, location).start()


def test_a_proxy_in_the_environment_is_not_used(server, connect, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert connect(address_of(server), retries=0).ask(Echo("x")) == "x"


# Stopping


def test_stop_lets_calls_under_way_finish(server, client, behaviour):
    outcome = []
    slow = threading.Thread(target=lambda: outcome.append(client.ask(Wait())))
    slow.start()
    assert behaviour.waiting.wait(30)
    server.stop(wait=False)
    behaviour.proceed.set()
    server.wait()
    slow.join(30)
    assert outcome == [None]
    server.stop()


def test_a_handler_may_stop_its_own_server(connect):
    behaviour = Behaviour()
    server = make_server(behaviour)
    server.start()
    behaviour.before_answer.append(lambda: server.stop(wait=False))
    connect(address_of(server)).ask(Note(1))
    stopped = threading.Thread(target=server.wait)
    stopped.start()
    stopped.join(30)
    assert not stopped.is_alive()


# Streams and Unix sockets


class Doubling(RpcServer):
    """Streams, as a state host does."""

    def do_exchange(self, context, descriptor, reader, writer):
        if descriptor.command == b"missing":
            raise MissingVersion("version 5 of partition 3 is not there")
        if descriptor.command == b"long":
            raise MissingVersion("missing: " + "€" * 20_000)
        if descriptor.command == b"defect":
            raise ZeroDivisionError("oops")
        writer.begin(pa.schema([("n", pa.int64())]))
        for chunk in reader:
            writer.write_batch(pa.record_batch({"n": pa.array([2 * n for n in chunk.data["n"].to_pylist()])}))

    def do_get(self, context, ticket):
        if ticket.ticket == b"missing":
            raise MissingVersion("version 6 is not there")
        return flight.RecordBatchStream(pa.table({"n": [1, 2, 3]}))


@pytest.fixture
def doubling(tmp_path_factory, connect):
    location = f"grpc+unix://{tmp_path_factory.mktemp('s')}/s"
    with Doubling(location, TOKEN, Behaviour().handlers(), software=SOFTWARE, name="the host"):
        yield connect(Address(location, TOKEN))


def test_messages_and_streams_over_a_unix_socket(doubling):
    assert doubling.ask(Echo("x")) == "x"
    writer, reader = doubling.do_exchange(flight.FlightDescriptor.for_command(b"double"), timeout=60)
    with writer:
        writer.begin(pa.schema([("n", pa.int64())]))
        writer.write_batch(pa.record_batch({"n": [1, 2]}))
        writer.done_writing()
        assert reader.read_all().to_pydict() == {"n": [2, 4]}
    assert doubling.do_get(flight.Ticket(b"all"), timeout=60).read_all().to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize(
    ("command", "kind", "message"),
    [
        (b"missing", MissingVersion, "^version 5 of partition 3 is not there$"),
        (b"long", MissingVersion, r"^missing: €+ … \(cut short\)$"),
        (b"defect", HoldfastError, "an exchange failed at the host: ZeroDivisionError: oops; its log"),
    ],
)
def test_errors_of_exchanges_come_back_as_they_were_raised(doubling, command, kind, message):
    writer, reader = doubling.do_exchange(flight.FlightDescriptor.for_command(command), timeout=60)
    with pytest.raises(kind, match=message), translated("reading", "the host"):
        reader.read_chunk()
    with pytest.raises(flight.FlightServerError):
        writer.close()


def test_errors_of_reads_come_back_as_they_were_raised(doubling):
    with pytest.raises(MissingVersion, match="^version 6 is not there$"), translated("reading", "the host"):
        doubling.do_get(flight.Ticket(b"missing"), timeout=60).read_all()


def test_a_server_of_messages_has_no_streams(client):
    with pytest.raises(InvalidRequest, match="serves no streams"), translated("reading", "it"):
        client.do_get(flight.Ticket(b"x")).read_all()


# Forked processes

FORKING = """
import os, signal, sys
from sample_messages import Behaviour, Echo, address_of, make_client, make_server
from holdfast.errors import InvalidRequest

server = make_server(Behaviour())
if sys.argv[1] == "after use":
    server.start()
    client = make_client(address_of(server))
    client.ask(Echo("x"))
child = os.fork()
if child == 0:
    signal.alarm(30)
    try:
        if sys.argv[1] == "after use":
            for use in (lambda: client.ask(Echo("x")), lambda: make_client(address_of(server)), server.start):
                try:
                    use()
                except InvalidRequest as refused:
                    assert "was forked" in str(refused)
                else:
                    os._exit(1)
        else:
            server.start()
            assert make_client(address_of(server)).ask(Echo("y")) == "y"
    except BaseException:
        os._exit(2)
    os._exit(0)
status = os.waitpid(child, 0)[1]
if sys.argv[1] == "after use":
    assert client.ask(Echo("z")) == "z"
    client.close()
    server.stop()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("when", ["after use", "before use"])
def test_a_forked_child_is_refused_where_it_would_hang(when):
    folder = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", FORKING, when], cwd=folder, timeout=60, check=False)
    assert done.returncode == 0, f"ended with {done.returncode} (-{signal.SIGALRM:d} means that it hung)"


def test_an_address_does_not_show_its_token(server, client):
    assert TOKEN not in repr(client.address)
    assert str(client.address) == f"grpc://127.0.0.1:{server.port}"


def test_an_answer_that_is_too_large_is_an_error(behaviour, connect):
    with make_server(behaviour, max_message_bytes=1000) as server:
        client = connect(address_of(server))
        assert len(client.ask(Tell(900))) == 900
        with pytest.raises(InvalidRequest, match="the answer to Tell has 1009 bytes"):
            client.ask(Tell(1000))
