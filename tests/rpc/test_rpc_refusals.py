"""What a server refuses, and that it lives on: tokens, certificates, garbage, sizes, unknown and half-sent messages."""

import contextlib
import datetime
import ipaddress
import json
import logging
import random
import socket

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pyarrow import flight
from relay import Relay
from sample_messages import TOKEN, Echo, Note, Tell, address_of, make_client, make_server

from holdfast.errors import InvalidRequest, InvalidSetting, Unavailable
from holdfast.rpc.address import Address
from holdfast.rpc.tls import Tls

WRONG_TOKEN = "an-entirely-wrong-token"


@pytest.fixture(autouse=True)
def all_logs(caplog):
    caplog.set_level(logging.DEBUG)


# Tokens


@pytest.mark.parametrize("token", [WRONG_TOKEN, TOKEN[:-1], TOKEN + "x", TOKEN.upper(), ""])
def test_a_wrong_token_is_refused_once_and_never_shown(server, behaviour, connect, caplog, token):
    with pytest.raises(InvalidRequest, match="refused Hello: the token does not match") as refused:
        connect(address_of(server, token)).ask(Note(1))
    assert behaviour.noted == []
    refusals = [record.getMessage() for record in caplog.records if "refused a call" in record.getMessage()]
    assert len(refusals) == 1, "a refusal is final: asking again cannot help"
    for text in (str(refused.value), caplog.text):
        assert TOKEN not in text
        assert not token or token not in text


def raw_calls(client, options):
    """Every kind of call that Flight has."""
    table = pa.table({"n": [1]})
    descriptor = flight.FlightDescriptor.for_command(b"x")

    def put():
        writer, _ = client.do_put(descriptor, table.schema, options)
        writer.write_table(table)
        writer.close()

    def exchange():
        writer, reader = client.do_exchange(descriptor, options)
        try:
            reader.read_all()
        finally:
            with contextlib.suppress(pa.ArrowException):
                writer.close()

    return {
        "action": lambda: list(client.do_action(flight.Action("Note", b'{"number":1}'), options)),
        "get": lambda: client.do_get(flight.Ticket(b"x"), options).read_all(),
        "put": put,
        "exchange": exchange,
        "list": lambda: list(client.list_flights(options=options)),
        "info": lambda: client.get_flight_info(descriptor, options),
        "schema": lambda: client.get_schema(descriptor, options),
        "actions": lambda: list(client.list_actions(options)),
    }


@pytest.mark.parametrize("kind", ["action", "get", "put", "exchange", "list", "info", "schema", "actions"])
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", WRONG_TOKEN.encode())],
        [(b"authorization", TOKEN.encode())],
        [(b"authorization", b"Bearer " + TOKEN.encode()), (b"authorization", b"Bearer x")],
        [(b"other", b"Bearer " + TOKEN.encode())],
    ],
    ids=["none", "wrong", "unprefixed", "two", "elsewhere"],
)
def test_no_call_of_any_kind_gets_through_without_the_token(server, behaviour, client, kind, headers):
    with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as raw:
        options = flight.FlightCallOptions(timeout=20, headers=headers)
        # An OSError is pyarrow's form of it for get_schema alone.
        with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="token"):
            raw_calls(raw, options)[kind]()
    assert behaviour.noted == []
    assert client.ask(Echo("x")) == "x"


def test_a_server_without_a_token_is_not_made(behaviour, monkeypatch):
    monkeypatch.setattr("sample_messages.TOKEN", "")
    with pytest.raises(InvalidSetting, match="needs a token"):
        make_server(behaviour)


def authorised(server):
    client = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    return client, flight.FlightCallOptions(timeout=20, headers=[(b"authorization", b"Bearer " + TOKEN.encode())])


def raw_ask(server, name, body):
    """What a client that has the token, but not our code, gets."""
    client, options = authorised(server)
    with client:
        (answer,) = client.do_action(flight.Action(name, body), options)
        return json.loads(answer.body.to_pybytes())


# Messages that are none


@pytest.mark.parametrize(
    ("name", "body", "problem"),
    [
        ("Note", b"", "not JSON"),
        ("Note", b"\x80\x04\x95 a pickle", "not JSON"),
        ("Note", b'{"number":', "not JSON"),
        ("Note", b"[" * 100_000, "nested too deeply"),
        ("Note", b'{"number":"1"}', "Note.number: must be int"),
        ("Note", b'{"number":1,"more":2}', "unknown fields 'more'"),
        ("Note", b"{}", "lacks the fields 'number'"),
        ("Hello", b"{}", "lacks the fields"),
        ("NoSuchMessage", b"{}", "knows no message 'NoSuchMessage'"),
        ("x" * 5000, b"{}", "knows no message 'xxxx"),
        ("Note\nFAKE LOG LINE", b"{}", "knows no message 'Note\\nFAKE"),
        ("__class__", b"{}", "knows no message '__class__'"),
    ],
)
def test_what_is_no_message_is_refused_and_logged(server, behaviour, client, caplog, name, body, problem):
    answer = raw_ask(server, name, body)
    assert answer["error"]["type"] == "InvalidRequest"
    assert problem in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 1000
    assert "refused a message from" in caplog.text
    assert "\nFAKE" not in caplog.text
    assert behaviour.noted == []
    assert client.ask(Echo("x")) == "x"


def test_calls_of_a_kind_that_is_not_served_are_refused(server, client):
    raw, options = authorised(server)
    with raw:
        for kind in ("get", "put", "exchange", "list", "info", "schema", "actions"):
            with pytest.raises((pa.ArrowException, NotImplementedError)):
                raw_calls(raw, options)[kind]()
    assert client.ask(Echo("x")) == "x"


# Sizes


def test_a_message_over_the_limit_is_refused_by_the_server(behaviour, connect):
    with make_server(behaviour, max_message_bytes=100) as server:
        body = json.dumps({"number": 1}).encode()
        assert raw_ask(server, "Note", body + b" " * (100 - len(body))) == {"ok": None}
        refused = raw_ask(server, "Note", body + b" " * (101 - len(body)))
        assert refused["error"] == {
            "type": "InvalidRequest",
            "message": "Note of 101 bytes is larger than 100; send less at once",
        }
        assert behaviour.noted == [1]


def test_the_default_limit_is_16_mib(server, behaviour, client):
    body = b'{"number":1}' + b" " * (16 * 1024 * 1024)
    assert "is larger than 16777216" in raw_ask(server, "Note", body)["error"]["message"]
    assert behaviour.noted == []
    assert client.ask(Echo("x")) == "x"


def test_a_message_over_the_limit_does_not_leave_the_client(server, behaviour, connect):
    with pytest.raises(InvalidRequest, match=r"Echo of 1011 bytes is larger than 1000"):
        connect(address_of(server), max_message_bytes=1000).ask(Echo("x" * 1000))


# Bytes that are no call

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
RANDOM = random.Random(20).randbytes(5000)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00",
        RANDOM,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        PREFACE[:10],
        PREFACE,
        PREFACE + RANDOM,
        PREFACE + SETTINGS + RANDOM,
        PREFACE + SETTINGS + b"\x00\xff\xff\x00\x00\x00\x00\x00\x01partial",
        PREFACE + SETTINGS + b"\xff\xff\xff\x01\x04\x00\x00\x00\x01",
    ],
    ids=[
        "nothing",
        "zero",
        "random",
        "http1",
        "tls",
        "half-preface",
        "preface",
        "p+random",
        "s+random",
        "half",
        "huge",
    ],
)
def test_bytes_that_are_no_call_disturb_nobody(server, client, garbage):
    assert client.ask(Echo("before")) == "before"
    with contextlib.ExitStack() as stack:
        for reset in (False, True) * 10:
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            with contextlib.suppress(ConnectionError):
                raw.sendall(garbage)
            if reset:
                raw.close()
        assert client.ask(Echo("during")) == "during"  # with ten such connections still open
    assert client.ask(Echo("after")) == "after"


def test_a_message_that_is_cut_off_anywhere_is_not_handled(server, behaviour, client):
    body = b'{"number":1}' + b" " * 3000
    for cut_after in [*range(1, 3000, 130), None]:
        with Relay(server.port, cut_after=cut_after) as relay:
            options = flight.FlightCallOptions(timeout=20, headers=[(b"authorization", b"Bearer " + TOKEN.encode())])
            cut = contextlib.nullcontext() if cut_after is None else pytest.raises(flight.FlightError)
            with flight.FlightClient(f"grpc://127.0.0.1:{relay.port}") as raw, cut:
                list(raw.do_action(flight.Action("Note", body), options))
        assert behaviour.noted == ([1] if cut_after is None else [])
    assert client.ask(Echo("x")) == "x"


def test_an_answer_that_is_cut_off_is_unavailable(server, connect):
    with Relay(server.port, cut_answers_after=20_000) as relay:
        client = connect(Address(f"grpc://127.0.0.1:{relay.port}", TOKEN), retries=0)
        assert len(client.ask(Tell(5_000))) == 5_000
        with pytest.raises(Unavailable, match="Tell at grpc://"):
            client.ask(Tell(50_000))


# Certificates


def make_certificate(folder, name):
    """A self-signed certificate for this machine; returns the paths of certificate and key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(certificate_path), str(key_path)


@pytest.fixture
def certificate(tmp_path):
    return Tls(*make_certificate(tmp_path, "localhost"))


@pytest.fixture
def tls_server(behaviour, certificate):
    with make_server(behaviour, "grpc+tls://localhost:0", tls=certificate) as server:
        yield server


def test_tls_with_the_right_certificate(tls_server, certificate, connect):
    address = Address(f"grpc+tls://localhost:{tls_server.port}", TOKEN, certificate.certificate)
    assert connect(address).ask(Echo("x")) == "x"


def test_tls_still_needs_the_token(tls_server, certificate, connect):
    address = Address(f"grpc+tls://localhost:{tls_server.port}", WRONG_TOKEN, certificate.certificate)
    with pytest.raises(InvalidRequest, match="the token does not match"):
        connect(address).ask(Echo("x"))


def test_tls_with_a_certificate_that_is_not_trusted(tls_server, behaviour, tmp_path, connect, certificate):
    other, _ = make_certificate(tmp_path, "other")
    for location, root in [
        (f"grpc+tls://localhost:{tls_server.port}", other),
        (f"grpc+tls://localhost:{tls_server.port}", None),
        (f"grpc://localhost:{tls_server.port}", None),
    ]:
        with pytest.raises(Unavailable, match="Hello at grpc"):
            connect(Address(location, TOKEN, root), retries=0, timeout=5.0).ask(Note(1))
    assert behaviour.noted == []
    address = Address(f"grpc+tls://localhost:{tls_server.port}", TOKEN, certificate.certificate)
    assert connect(address).ask(Echo("x")) == "x"


def test_a_tls_client_does_not_send_its_token_to_a_server_without_tls(server, certificate, connect):
    address = Address(f"grpc+tls://localhost:{server.port}", TOKEN, certificate.certificate)
    with pytest.raises(Unavailable):
        connect(address, retries=0, timeout=5.0).ask(Echo("x"))


def test_certificate_files_that_cannot_be_used_are_named(behaviour, certificate, tmp_path):
    with pytest.raises(InvalidSetting, match=r"absent\.pem: No such file"):
        make_server(behaviour, "grpc+tls://localhost:0", tls=Tls(str(tmp_path / "absent.pem"), "k")).start()
    with pytest.raises(InvalidSetting, match=r"absent\.pem: No such file"):
        make_client(Address("grpc+tls://localhost:1", TOKEN, str(tmp_path / "absent.pem")))
    with pytest.raises(InvalidSetting, match=r"a certificate goes with a grpc\+tls:// location"):
        make_server(behaviour, "grpc://localhost:0", tls=certificate)
    with pytest.raises(InvalidSetting, match=r"a certificate goes with a grpc\+tls:// location"):
        make_server(behaviour, "grpc+tls://localhost:0")
