"""Messages that only tests send, and a server that answers them."""

import threading
from dataclasses import dataclass, field
from typing import ClassVar

from holdfast.errors import Fenced
from holdfast.rpc.address import Address
from holdfast.rpc.client import RpcClient
from holdfast.rpc.messages import PROTOCOL, Hello, Message
from holdfast.rpc.server import RpcServer

TOKEN = "a-secret-of-these-tests"
SOFTWARE = {"holdfast": "1.0", "acme-stores": "2.0"}
HELLO = Hello(PROTOCOL, SOFTWARE, "executor 7 on host-b")


@dataclass(frozen=True, slots=True)
class Echo(Message[str]):
    """Answered with the text."""

    text: str


@dataclass(frozen=True, slots=True)
class Note(Message[None]):
    """Written down in the order of arrival."""

    number: int


@dataclass(frozen=True, slots=True)
class Once(Message[None]):
    """Must not be repeated."""

    idempotent: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Forbidden(Message[None]):
    """Always refused."""


@dataclass(frozen=True, slots=True)
class Broken(Message[None]):
    """Its handler has a defect."""


@dataclass(frozen=True, slots=True)
class Wait(Message[None]):
    """Answered when ``Behaviour.proceed`` is set."""


@dataclass(frozen=True, slots=True)
class Tell(Message[str]):
    """Answered with a text of this length."""

    length: int


@dataclass
class Behaviour:
    """What the handlers do and remember."""

    noted: list[int] = field(default_factory=list)
    once: int = 0
    before_answer: list = field(default_factory=list)
    proceed: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)

    def handlers(self):
        return {
            Echo: lambda message: message.text,
            Note: self.note,
            Once: self.count,
            Forbidden: self.refuse,
            Broken: lambda message: {}["no such key"],
            Wait: self.wait,
            Tell: lambda message: "x" * message.length,
        }

    def note(self, message):
        self.noted.append(message.number)
        for action in self.before_answer:
            action()

    def count(self, message):
        self.once += 1
        for action in self.before_answer:
            action()

    def refuse(self, message):
        raise Fenced("attempt 3 of partition 5 came too late; drop it")

    def wait(self, message):
        self.waiting.set()
        assert self.proceed.wait(60)


def make_server(behaviour, location="grpc://127.0.0.1:0", **options):
    """A server that is not started yet."""
    return RpcServer(location, TOKEN, behaviour.handlers(), software=SOFTWARE, name="the test server", **options)


def address_of(server, token=TOKEN):
    return Address(f"grpc://127.0.0.1:{server.port}", token)


def make_client(address, **options):
    return RpcClient(address, **{"hello": HELLO, "timeout": 20.0, **options})
