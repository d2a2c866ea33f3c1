"""Requests of servers to clients, frame by frame: a waiting server is answered once, whatever the handler does."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rmqpy import errors
from rmqpy._native import Client
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.requests.clients import NotifyConsumerIdsChanged
from rmqpy.protocol.requests.introspection import (
    ConsumeMessageDirectly,
    ConsumerStatus,
    GetConsumerRunningInfo,
    GetConsumerStatusFromClient,
)
from rmqpy.remoting import listener
from rmqpy.remoting.listener import Listener
from rmqpy.remoting.server import Refused, handles
from waiting import until_async
from wire import BINARY, ONEWAY, RESPONSE, Frame, Peer

WAIT_S = 30.0


class Handlers:
    """One of each kind."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.changed: asyncio.Queue[str] = asyncio.Queue()

    @handles(NotifyConsumerIdsChanged)
    def notified(self, ask: NotifyConsumerIdsChanged) -> None:
        self.changed.put_nowait(ask.consumer_group)

    @handles(GetConsumerStatusFromClient)
    def status(self, ask: GetConsumerStatusFromClient) -> ConsumerStatus:
        if ask.topic == "refused":
            raise Refused(ResponseCode.NO_PERMISSION, "not for you")
        if ask.topic == "broken":
            raise ValueError("a mistake")
        return ConsumerStatus(message_queue_table={}, consumer_table={})

    @handles(GetConsumerRunningInfo)
    async def running_info(self, ask: GetConsumerRunningInfo) -> bytes:
        await self.gate.wait()
        return b"at last"

    @handles(ConsumeMessageDirectly)
    async def consume(self, ask: ConsumeMessageDirectly) -> bytes:
        raise errors.DecodeError("no message", code=ResponseCode.SYSTEM_ERROR)


class BrokerConnection:
    """A client with handlers, and the server's end of its connection."""

    def __init__(self, handlers: Handlers, server: Peer, closed: list[str], address: str) -> None:
        self.handlers, self.server, self.closed, self.address = handlers, server, closed, address

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"", opaque: int = 7) -> Frame:
        await self.server.raw(Frame(code, opaque=opaque, ext=ext, body=body).pack())
        answer = await self.server.receive()
        assert (answer.opaque, answer.flag) == (opaque, RESPONSE)
        return answer


@pytest.fixture(params=["json", "binary"])
async def connection(request: pytest.FixtureRequest) -> AsyncIterator[BrokerConnection]:
    accepted: asyncio.Queue[Peer] = asyncio.Queue()
    server = await asyncio.start_server(lambda *ends: accepted.put_nowait(Peer(*ends)), "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = Client(binary=request.param == "binary")
    handlers, closed = Handlers(), list[str]()
    listening = Listener(client, [handlers], closed.append)
    listening.start()
    client.call_oneway(address, RequestCode.HEART_BEAT, {})
    peer = await asyncio.wait_for(accepted.get(), WAIT_S)
    assert (await peer.receive()).flag & ONEWAY
    yield BrokerConnection(handlers, peer, closed, address)
    listening.close()
    await asyncio.to_thread(client.close)
    await peer.close()
    server.close()


GROUP = {"consumerGroup": "billing", "clientId": "one"}


async def test_a_query_is_answered_in_the_clients_encoding(
    connection: BrokerConnection, request: pytest.FixtureRequest
) -> None:
    answer = await connection.ask(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "orders", "group": "billing"}
    )
    assert (answer.code, answer.body) == (0, b'{"consumerTable":{},"messageQueueTable":{}}')
    assert (answer.encoding == BINARY) == ("binary" in request.node.name)


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            {"topic": "refused", "group": "g"},
            (16, "not for you"),
        ),
        (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            {"topic": "broken", "group": "g"},
            (1, "ValueError: a mistake"),
        ),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, GROUP, (1, "no message")),
        (RequestCode.CHECK_TRANSACTION_STATE, {}, (3, "request 39 is not served by this client")),
    ],
)
async def test_a_query_that_cannot_be_answered_is_refused(
    connection: BrokerConnection, code: int, ext: dict[str, str], expected: tuple[int, str]
) -> None:
    answer = await connection.ask(code, ext)
    assert (answer.code, answer.remark) == expected


async def test_a_query_that_lacks_a_field_is_refused_and_the_next_is_answered(
    connection: BrokerConnection,
) -> None:
    assert (await connection.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"group": "billing"})).code != 0
    answer = await connection.ask(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "orders", "group": "g"}, opaque=8
    )
    assert answer.code == 0


async def test_notification_has_no_reply_and_a_waiting_one_delays_no_other(
    connection: BrokerConnection,
) -> None:
    notice = Frame(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, flag=ONEWAY, ext={"consumerGroup": "billing"})
    await connection.server.raw(
        Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=1, ext=GROUP).pack() + notice.pack()
    )
    assert await asyncio.wait_for(connection.handlers.changed.get(), WAIT_S) == "billing"
    connection.handlers.gate.set()
    answer = await connection.server.receive()
    assert (answer.opaque, answer.body) == (1, b"at last")


async def test_too_many_concurrent_queries_are_refused(
    connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "TASKS_MAX", 2)
    for opaque in (1, 2):
        await connection.server.raw(
            Frame(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=opaque, ext=GROUP).pack()
        )
    refused = await connection.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, GROUP, opaque=3)
    assert (refused.code, refused.remark) == (2, "[OVERLOAD]too many concurrent requests")
    connection.handlers.gate.set()
    assert {(await connection.server.receive()).opaque for _ in range(2)} == {1, 2}


async def test_listener_is_notified_of_a_lost_connection(connection: BrokerConnection) -> None:
    await connection.server.close()
    await until_async(lambda: connection.closed)
    assert connection.closed == [connection.address]
