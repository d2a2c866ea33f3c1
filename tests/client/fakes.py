"""A name server and brokers with scripted replies: hand-made frames, on real sockets, in one thread.

They share no code with the client under test beyond request codes. Received requests are kept in order.
"""

import asyncio
import json
import struct
import threading
import zlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

from rmqpy.protocol.codes import RequestCode, ResponseCode
from wire import ONEWAY, RESPONSE, TIMEOUT_S, Frame

CLOSE = "close"
SILENCE = None
Answer = Frame | str | None
Handler = Callable[[Frame], Answer]

ServerT = TypeVar("ServerT", bound="Server")
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
#: Ports of fakes before. A client of an earlier test may be kept, with the routes of the name server at its address.
_USED: set[int] = set()


class Server:
    """One listening socket. `handlers` maps request codes to the functions that answer them."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self.handlers: dict[int, Handler] = {}
        self.asked: list[Frame] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        network.run(self._listen())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> frozenset[object]:
        """Those that are open."""
        return frozenset(self._writers)

    def stop(self) -> None:
        """Refuse connections and drop the existing ones."""
        self._network.run(self._close())

    def start(self) -> None:
        """Listen again on the same port."""
        self._network.run(self._listen())

    def count(self, code: int) -> int:
        """The number of such requests."""
        return sum(frame.code == code for frame in self.asked)

    def push(self, request: Frame) -> None:
        """Send every client a request that it has not asked for."""
        self._network.run(self._push(request.pack()))

    async def _push(self, frame: bytes) -> None:
        for writer in list(self._writers):
            writer.write(frame)

    async def _listen(self) -> None:
        while True:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            port = self._server.sockets[0].getsockname()[1]
            if self.port or port not in _USED:
                break
            self._server.close()
        self.port = port
        _USED.add(port)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                ask = Frame.unpack(await reader.readexactly(size))
                self.asked.append(ask)
                answer = self._answer(ask)
                if answer == CLOSE:
                    break
                if isinstance(answer, Frame) and not ask.flag & ONEWAY:
                    answer.opaque, answer.flag = ask.opaque, RESPONSE
                    writer.write(answer.pack())
        self._writers.discard(writer)
        writer.close()

    def _answer(self, ask: Frame) -> Answer:
        handler = self.handlers.get(ask.code)
        return handler(ask) if handler else Frame(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what?")


class Network:
    """The thread all fakes run on."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fakes", daemon=True)
        self._thread.start()
        self._servers: list[Server] = []

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the thread run this, and wait."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def broker(self, name: str) -> "Broker":
        return self._keep(Broker(self, name))

    def name_server(self, brokers: Iterable["Broker"], topics: Mapping[str, int]) -> "NameServer":
        return self._keep(NameServer(self, brokers, topics))

    def _keep(self, server: ServerT) -> ServerT:
        self._servers.append(server)
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


class NameServer(Server):
    """Knows brokers, and the number of queues of each topic at each."""

    def __init__(self, network: Network, brokers: Iterable["Broker"], topics: Mapping[str, int]) -> None:
        super().__init__(network)
        self.brokers = list(brokers)
        self.topics = dict(topics)
        self.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route

    def _route(self, ask: Frame) -> Answer:
        topic = (ask.ext or {})["topic"]
        count = self.topics.get(topic)
        if count is None:
            return Frame(ResponseCode.TOPIC_NOT_EXIST, remark=f"No topic route info for the topic: {topic}")
        route = {
            "brokerDatas": [
                {
                    "brokerAddrs": {broker.registered_id: broker.address, **broker.replicas},
                    "brokerName": broker.name,
                    "cluster": "c",
                }
                for broker in self.brokers
            ],
            "queueDatas": [
                {
                    "brokerName": broker.name,
                    "perm": broker.permission,
                    "readQueueNums": count,
                    "writeQueueNums": count,
                    "topicSysFlag": 0,
                }
                for broker in self.brokers
            ],
        }
        return Frame(0, body=json.dumps(route).encode())


class Broker(Server):
    """Stores messages by default, and answers pulls from `log`: queue id to records."""

    def __init__(self, network: Network, name: str) -> None:
        super().__init__(network)
        self.name = name
        self.permission = 6
        #: The id in routes; a master's is 0.
        self.registered_id = "0"
        #: Addresses of other replicas of this name, by id.
        self.replicas: dict[str, str] = {}
        #: Queue id to records, the first of which has the offset `begin`.
        self.log: dict[int, list[bytes]] = {}
        self.begin = 0
        self.pull_count_max = 32
        self.committed: dict[int, int] = {}
        #: Topics and queue ids.
        self.locked: set[tuple[str, int]] = set()
        for code in SENDS:
            self.handlers[code] = self.store
        self.handlers[RequestCode.PULL_MESSAGE] = self.pull
        self.handlers[RequestCode.HEART_BEAT] = lambda ask: Frame(0)
        self.handlers[RequestCode.GET_MIN_OFFSET] = lambda ask: Frame(0, ext={"offset": str(self.begin)})
        self.handlers[RequestCode.GET_MAX_OFFSET] = lambda ask: Frame(
            0, ext={"offset": str(self.end(int((ask.ext or {})["queueId"])))}
        )
        self.handlers[RequestCode.QUERY_CONSUMER_OFFSET] = self._progress
        self.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = self._commit

    @property
    def sends(self) -> list[Frame]:
        """The sends it got, whatever it answered."""
        return [frame for frame in self.asked if frame.code in SENDS]

    def unique_id(self, index: int = 0) -> str:
        """The id the sender gave a message."""
        ext = self.sends[index].ext or {}
        return dict(item.split("\x01") for item in ext["i"].split("\x02") if item)["UNIQ_KEY"]

    def serve_groups(self) -> None:
        """Know every client that sends a heartbeat as a member of any group."""
        members: list[str] = []

        def beat(ask: Frame) -> Answer:
            name = json.loads(ask.body)["clientID"]
            if name not in members:
                members.append(name)
            return Frame(0)

        self.handlers[RequestCode.HEART_BEAT] = beat
        self.handlers[RequestCode.UNREGISTER_CLIENT] = lambda ask: Frame(0)
        self.handlers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda ask: Frame(
            0, body=json.dumps({"consumerIdList": members}).encode()
        )
        self.handlers[RequestCode.LOCK_BATCH_MQ] = self.lock
        self.handlers[RequestCode.UNLOCK_BATCH_MQ] = self.unlock

    def lock(self, ask: Frame) -> Answer:
        """Grant whatever is asked for."""
        asked = json.loads(ask.body)["mqSet"]
        self.locked |= {(queue["topic"], queue["queueId"]) for queue in asked}
        return Frame(0, body=json.dumps({"lockOKMQSet": asked}).encode())

    def unlock(self, ask: Frame) -> Answer:
        self.locked -= {(queue["topic"], queue["queueId"]) for queue in json.loads(ask.body)["mqSet"]}
        return Frame(0)

    def end(self, queue_id: int) -> int:
        return self.begin + len(self.log.get(queue_id, ()))

    def store(self, ask: Frame) -> Answer:
        ext = ask.ext or {}
        return Frame(
            0,
            ext={
                "msgId": "7F00000100002A9F" + "0" * 16,
                "queueId": ext["e"],
                "queueOffset": str(len(self.sends) - 1),
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            },
        )

    def refuse(self, code: int, remark: str = "no") -> None:
        """Answer every send with this code."""
        for each in SENDS:
            self.handlers[each] = lambda ask: Frame(code, remark=remark)

    def pull(self, ask: Frame) -> Answer:
        ext = ask.ext or {}
        queue_id, offset = int(ext["queueId"]), int(ext["queueOffset"])
        end = self.end(queue_id)
        if not self.begin <= offset <= end:
            return self.pulled(21, self.begin if offset < self.begin else end, queue_id)
        count = min(int(ext["maxMsgNums"]), self.pull_count_max)
        found = self.log.get(queue_id, [])[offset - self.begin :][:count]
        if not found and int(ext["sysFlag"]) & 2:
            return SILENCE  # Held for longer than any test runs.
        return self.pulled(0 if found else 19, offset + len(found), queue_id, b"".join(found))

    def pulled(self, code: int, next_offset: int, queue_id: int, body: bytes = b"") -> Frame:
        ext = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self.begin),
            "maxOffset": str(self.end(queue_id)),
        }
        return Frame(code, ext=ext, body=body)

    def _progress(self, ask: Frame) -> Answer:
        offset = self.committed.get(int((ask.ext or {})["queueId"]))
        return Frame(22) if offset is None else Frame(0, ext={"offset": str(offset)})

    def _commit(self, ask: Frame) -> Answer:
        ext = ask.ext or {}
        self.committed[int(ext["queueId"])] = int(ext["commitOffset"])
        return Frame(0)


Brokers = tuple[Broker, Broker]


def properties(**values: str) -> bytes:
    """A properties string."""
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items()).encode()


def record(
    body: bytes,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    offset: int = 0,
    props: bytes = b"",
    flag: int = 0,
    sys_flag: int = 0,
    version: int = 1,
) -> bytes:
    """One stored record, born at 10.0.0.1:5000 and stored at 10.0.0.2:10911."""
    magic, topic_size = (0xDAA320A7, ">b") if version == 1 else (0xDAA320AB, ">h")
    fixed = struct.pack(
        ">IIiiqqiq4siq4siiq",
        magic,
        zlib.crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        offset,
        1000 + offset,
        sys_flag,
        1_700_000_000_000,
        bytes([10, 0, 0, 1]),
        5000,
        1_700_000_000_001,
        bytes([10, 0, 0, 2]),
        10911,
        0,
        0,
    )
    tail = (
        struct.pack(">i", len(body))
        + body
        + struct.pack(topic_size, len(topic))
        + topic.encode()
        + struct.pack(">h", len(props))
        + props
    )
    return struct.pack(">i", 4 + len(fixed) + len(tail)) + fixed + tail


def inner(body: bytes, props: bytes = b"", flag: int = 0) -> bytes:
    """One member of a batch body."""
    content = struct.pack(">iiii", 0, 0, flag, len(body)) + body + struct.pack(">h", len(props)) + props
    return struct.pack(">i", 4 + len(content)) + content
