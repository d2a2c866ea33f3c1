"""Dispatch from upcalls to handlers and back, with a native module made of a list and a socket pair."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.declare import Request, reply, request
from rmqpy.remoting import pending_requests
from rmqpy.remoting.endpoint import Endpoint
from rmqpy.remoting.large_bodies import LARGE_BODY_BYTES
from rmqpy.remoting.server import ConnectionClosed, Refused, RequestContext, TopicWanted, handles


@reply
class Offset:
    offset: int


@request(RequestCode.GET_MAX_OFFSET)
class GetMax(Request[Offset]):
    topic: str


@request(RequestCode.GET_MIN_OFFSET)
class GetMin(Request[Offset]):
    topic: str


@dataclass
class Upcall:
    code: int = 0
    token: int = 1
    kind: str = "request"
    connection: int = 5
    peer: str = "10.0.0.9:1234"
    is_vip: bool = False
    version: int = 317
    language: str = "GO"
    is_oneway: bool = False
    user: str | None = None
    is_guarded: bool = False
    local: str = "10.0.0.1:9876"
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    name: str = ""

    @property
    def body_bytes(self) -> int:
        return len(self.body)


class Native:
    """The part of `_native.Server` that the endpoint uses."""

    def __init__(self) -> None:
        self._bell, self._ringer = socket.socketpair()
        self._waiting: list[Upcall] = []
        self.batches: list[list[Any]] = []
        self._answered: asyncio.Queue[Any] = asyncio.Queue()
        self.is_stopped = False
        self.overloads: list[bool] = []

    def fileno(self) -> int:
        return self._bell.fileno()

    def take(self, limit: int) -> list[Upcall]:
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        if not self._waiting:
            self._bell.recv(4096)
        return taken

    def declare_requests(self, bodies_bytes_max: Mapping[int, int]) -> None:
        pass

    def count_overload(self, is_oneway: bool) -> None:
        self.overloads.append(is_oneway)

    def answer(self, answers: Sequence[Any]) -> None:
        self.batches.append(list(answers))
        for answer in answers:
            self._answered.put_nowait(answer)

    def stop(self, grace_ms: int) -> None:
        self.is_stopped = True

    def put(self, *upcalls: Upcall) -> None:
        self._waiting.extend(upcalls)
        self._ringer.send(b"!")

    async def answers(self, count: int) -> list[Any]:
        """The next answers, in the order in which they went down."""
        async with asyncio.timeout(30):
            return [await self._answered.get() for _ in range(count)]


class Handlers:
    """One handler of each kind."""

    def __init__(self) -> None:
        self.contexts: list[RequestContext] = []
        self.events: list[object] = []
        self.gate = asyncio.Event()

    @handles(GetMax)
    def maximum(self, ask: GetMax, context: RequestContext) -> Offset:
        self.contexts.append(context)
        match ask.topic:
            case "refused":
                raise Refused(ResponseCode.QUERY_NOT_FOUND, "nothing there", Offset(offset=-1))
            case "broken":
                raise RuntimeError("out of order")
            case "half":
                raise Refused(ResponseCode.SYSTEM_ERROR, "\ud800" * 9_000)
            case "unspeakable":
                return Offset(offset=object())  # type: ignore[arg-type]
        return Offset(offset=9)

    @handles(GetMin)
    async def minimum(self, ask: GetMin) -> Offset:
        await self.gate.wait()
        if ask.topic == "broken":
            raise RuntimeError("out of order")
        return Offset(offset=1)

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self.events.append(event)

    @handles(TopicWanted)
    async def wanted(self, event: TopicWanted) -> None:
        self.events.append(event)
        self.gate.set()


class MoreHandlers:
    """A second part that also wants to know of closed connections."""

    def __init__(self, events: list[object]) -> None:
        self.events = events

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self.events.append("again")


@pytest.fixture
async def native() -> Native:
    return Native()


@pytest.fixture
async def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
async def endpoint(native: Native, handlers: Handlers) -> AsyncIterator[Endpoint]:
    parts = (handlers, MoreHandlers(handlers.events))
    made = Endpoint(native, parts, role="broker", hot={RequestCode.SEND_MESSAGE})  # type: ignore[arg-type]
    made.start()
    yield made
    handlers.gate.set()
    await made.stop()
    assert native.is_stopped


MAX, MIN = RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET


@pytest.mark.parametrize(
    ("upcall", "answer"),
    [
        (Upcall(MAX, ext={"topic": "t"}), (1, 0, None, {"offset": "9"}, None)),
        (Upcall(MAX), (1, 1, "the custom field <topic> is null", None, None)),
        (Upcall(MAX, ext={"topic": "refused"}), (1, 22, "nothing there", {"offset": "-1"}, None)),
        (Upcall(MAX, ext={"topic": "broken"}), (1, 1, "RuntimeError: out of order", None, None)),
        (Upcall(MAX, ext={"topic": "half"}), (1, 1, "?" * 2_000, None, None)),
        (
            Upcall(MAX, ext={"topic": "unspeakable"}),
            (
                1,
                1,
                "TypeError: int() argument must be a string, a bytes-like object or a real number, "
                "not 'object'",
                None,
                None,
            ),
        ),
        (Upcall(9999), (1, 3, " request type 9999 not supported", None, None)),
        (
            Upcall(RequestCode.SEND_REPLY_MESSAGE),
            (
                1,
                3,
                " request type 324 not supported: SEND_REPLY_MESSAGE is not served by this broker",
                None,
                None,
            ),
        ),
    ],
)
async def test_a_request_is_answered(native: Native, endpoint: Endpoint, upcall: Upcall, answer: Any) -> None:
    native.put(upcall)
    assert await native.answers(1) == [answer]


async def test_handlers_can_receive_the_request_context(
    native: Native, endpoint: Endpoint, handlers: Handlers
) -> None:
    native.put(Upcall(MAX, ext={"topic": "t"}))
    await native.answers(1)
    assert handlers.contexts == [RequestContext(5, "10.0.0.9:1234", 317, "GO", local="10.0.0.1:9876")]


async def test_requests_of_one_batch_are_answered_together(native: Native, endpoint: Endpoint) -> None:
    native.put(*(Upcall(MAX, token=token, ext={"topic": "t"}) for token in range(50)))
    answers = await native.answers(50)
    assert [answer[0] for answer in answers] == list(range(50))
    assert [len(batch) for batch in native.batches] == [8] * 6 + [2]


async def test_waiting_handlers_do_not_delay_others(
    native: Native, endpoint: Endpoint, handlers: Handlers
) -> None:
    native.put(
        Upcall(MIN, token=1, ext={"topic": "t"}),
        Upcall(MIN, token=2, ext={"topic": "broken"}),
        Upcall(MAX, token=3, ext={"topic": "t"}),
    )
    assert [answer[0] for answer in await native.answers(1)] == [3]
    handlers.gate.set()
    answers = await native.answers(2)
    assert [answer[:3] for answer in answers] == [(1, 0, None), (2, 1, "RuntimeError: out of order")]
    assert len(native.batches) == 2


async def test_started_requests_run_before_further_ones_are_taken(
    native: Native, endpoint: Endpoint, handlers: Handlers
) -> None:
    handlers.gate.set()
    native.put(*(Upcall(MIN, token=token, ext={"topic": "t"}) for token in range(40)))
    assert [answer[0] for answer in await native.answers(40)] == list(range(40))
    assert [len(batch) for batch in native.batches] == [8] * 5
    native.put(
        *(Upcall(kind="create_topic", token=0, name=f"new-{number}") for number in range(8)),
        Upcall(MAX, token=50, ext={"topic": "t"}),
    )
    await native.answers(1)
    assert len(handlers.events) == 8


@pytest.mark.parametrize("topic", ["t", "refused", "broken"])
@pytest.mark.parametrize("code", [MAX, MIN, 9999])
async def test_t8_a_oneway_request_is_never_answered(
    native: Native, endpoint: Endpoint, handlers: Handlers, code: int, topic: str
) -> None:
    handlers.gate.set()
    native.put(
        Upcall(code, token=1, is_oneway=True, ext={"topic": topic}), Upcall(MIN, token=2, ext={"topic": "t"})
    )
    assert [answer[0] for answer in await native.answers(1)] == [2]


async def test_t40_every_handler_is_notified_of_a_closed_connection(
    native: Native, endpoint: Endpoint, handlers: Handlers
) -> None:
    native.put(Upcall(kind="closed", token=0), Upcall(MAX, ext={"topic": "t"}))
    await native.answers(1)
    assert handlers.events == [ConnectionClosed(5), "again"]


async def test_connection_end_is_delivered_after_its_requests(native: Native) -> None:
    heard: list[str] = []

    class InOrder:
        @handles(GetMax)
        async def maximum(self, ask: GetMax) -> Offset:
            heard.append("asked")
            return Offset(offset=1)

        @handles(ConnectionClosed)
        def closed(self, event: ConnectionClosed) -> None:
            heard.append("closed")

    made = Endpoint(native, (InOrder(),), role="broker", hot=set())  # type: ignore[arg-type]
    made.start()
    native.put(Upcall(MAX, ext={"topic": "t"}), Upcall(kind="closed", token=0))
    await native.answers(1)
    await made.stop()
    assert heard == ["asked", "closed"]


async def test_requests_behind_a_large_body_wait_for_it(
    native: Native, endpoint: Endpoint, handlers: Handlers
) -> None:
    large, small = b" " * LARGE_BODY_BYTES, {"topic": "t"}
    native.put(
        Upcall(MAX, token=1, ext=small, body=large),
        Upcall(9999, token=2),
        Upcall(MAX, token=3, ext=small, body=large),
        Upcall(MAX, token=4, ext=small),
        Upcall(kind="closed", token=0),
        Upcall(MAX, token=9, ext=small, connection=6),
    )
    assert [answer[0] for answer in await native.answers(5)] == [9, 1, 2, 3, 4]
    native.put(Upcall(MAX, token=10, ext=small, connection=6))
    await native.answers(1)
    assert handlers.events == [ConnectionClosed(5), "again"]


async def test_connection_beyond_its_share_is_refused_alone(
    native: Native, endpoint: Endpoint, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_requests, "REQUESTS_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(pending_requests, "BYTES_PER_CONNECTION_MAX", 100)
    native.put(*(Upcall(MIN, token=token, ext={"topic": "t"}) for token in range(3)))
    native.put(*(Upcall(MIN, token=10 + token, connection=6, ext={"topic": "t" * 60}) for token in range(2)))
    native.put(Upcall(MIN, token=20, connection=7, ext={"topic": "t" * 600}))
    assert [(answer[0], answer[1]) for answer in await native.answers(2)] == [(2, 2), (11, 2)]
    assert native.overloads == [False, False]
    handlers.gate.set()
    assert {answer[0] for answer in await native.answers(4)} == {0, 1, 10, 20}
    native.put(*(Upcall(MIN, token=30 + token, ext={"topic": "t"}) for token in range(2)))
    assert [answer[1] for answer in await native.answers(2)] == [0, 0]


async def test_oneway_request_beyond_the_share_is_dropped_and_counted(
    native: Native, endpoint: Endpoint, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_requests, "REQUESTS_PER_CONNECTION_MAX", 2)
    native.put(*(Upcall(MIN, token=token, ext={"topic": "t"}) for token in range(2)))
    native.put(*(Upcall(MIN, token=0, is_oneway=True, ext={"topic": "t"}) for _ in range(3)))
    native.put(Upcall(MIN, token=20, connection=7, ext={"topic": "t"}))
    handlers.gate.set()
    assert [answer[0] for answer in await native.answers(3)] == [0, 1, 20]
    assert native.overloads == [True] * 3


async def test_too_many_waiting_bytes_pause_the_endpoint(
    native: Native, endpoint: Endpoint, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_requests, "BYTES_MAX", 1_000)
    native.put(Upcall(MIN, token=1, ext={"topic": "t" * 2_000}))
    native.put(Upcall(MAX, token=2, connection=6, ext={"topic": "t"}))
    assert [answer[0] for answer in await native.answers(1)] == [2]
    native.put(Upcall(MAX, token=3, connection=6, ext={"topic": "t"}))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(handlers.contexts) == 1, "the second waits in the native ring"
    handlers.gate.set()
    assert {answer[0] for answer in await native.answers(2)} == {1, 3}


async def test_topic_wanted_by_parked_sends_is_announced(
    native: Native, endpoint: Endpoint, handlers: Handlers
) -> None:
    native.put(Upcall(310, kind="create_topic", name="orders", ext={"b": "orders"}))
    async with asyncio.timeout(30):
        await handlers.gate.wait()
    assert handlers.events == [TopicWanted("orders", {"b": "orders"})]


async def test_too_many_waiting_handlers_pause_the_endpoint(
    native: Native, endpoint: Endpoint, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_requests, "REQUESTS_MAX", 10)
    native.put(*(Upcall(MIN, token=token, ext={"topic": "t"}) for token in range(10)))
    native.put(Upcall(MAX, token=98, ext={"topic": "t"}))
    assert [answer[0] for answer in await native.answers(1)] == [98]
    native.put(Upcall(MAX, token=99, ext={"topic": "t"}))
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(handlers.contexts) == 1, "the second waits in the native ring"
    handlers.gate.set()
    assert {answer[0] for answer in await native.answers(11)} == {*range(10), 99}


def test_table_lists_the_handler_of_every_code() -> None:
    table = Endpoint(
        Native.__new__(Native),  # type: ignore[arg-type]
        (Handlers.__new__(Handlers),),
        role="broker",
        hot={RequestCode.SEND_MESSAGE},
    ).table()
    assert set(table) == set(RequestCode)
    assert table[MAX] == "Handlers.maximum"
    assert table[RequestCode.SEND_MESSAGE] == "native"
    assert table[RequestCode.POP_MESSAGE] == "not served"


def test_two_handlers_of_one_code_are_refused() -> None:
    handlers = (Handlers.__new__(Handlers), Handlers.__new__(Handlers))
    with pytest.raises(TypeError, match=r"is handled by Handlers\.maximum and by Handlers\.maximum"):
        Endpoint(Native.__new__(Native), handlers, role="broker")  # type: ignore[arg-type]


def test_handler_must_accept_its_request_type() -> None:
    with pytest.raises(TypeError, match="must take"):

        @handles(GetMax)
        def wrong(self: object, ask: GetMin) -> Offset:
            raise NotImplementedError
