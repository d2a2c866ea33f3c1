"""Raw POP requests of one group to either broker, and what varies in their answers left out."""

import asyncio
import base64
import json
import re
import time
from dataclasses import dataclass
from typing import Any, Final

from broker.popping import Popped, messages
from broker.talk import send
from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import Frame, Peer

from . import wire
from .servers import Cluster

#: What a scenario observed, by name.
Observed = dict[str, Any]

INVISIBLE_MS: Final = 3_000
#: The time in which either broker delivers a message again after its invisible time: Apache's takes 2 to 6 s more.
AGAIN_MS: Final = 9_000
_ADDRESS: Final = re.compile(r"/?\d+\.\d+\.\d+\.\d+:\d+")
#: Fields that are times, or that are counted over all requests.
_VARYING: Final = frozenset({"popTime", "reviveQid"})


@dataclass
class Pops:
    """One group that pops one topic, over one connection."""

    cluster: Cluster
    peer: Peer
    topic: str
    group: str

    async def create(self, queues: int = 1, attributes: str = "") -> None:
        await asyncio.to_thread(
            wire.create_topic, self.cluster.namesrv, self.cluster.broker, self.topic, queues, attributes
        )

    async def sent(self, *bodies: bytes, queue: int = 0, **properties: str) -> None:
        for body in bodies:
            named = {"UNIQ_KEY": f"AC11000100{time.time_ns():022d}"} | properties
            text = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
            stored = await send(self.peer, self.topic, body, e=str(queue), i=text)
            assert stored.code == 0
        # Apache's broker shows a message to pops a moment after its answer.
        last = int((stored.ext or {})["queueOffset"])
        await until_async(lambda: self.end_of(queue), wanted=lambda end: end > last)

    async def end_of(self, queue: int) -> int:
        fields = {"topic": self.topic, "queueId": str(queue)}
        reply = await self.peer.call(RequestCode.GET_MAX_OFFSET, fields)
        return int((reply.ext or {})["offset"])

    async def pop(
        self,
        count: int = 32,
        *,
        invisible: int = INVISIBLE_MS,
        wait: int = 0,
        peer: Peer | None = None,
        **changes: str,
    ) -> Frame:
        ext = {
            "consumerGroup": self.group, "topic": self.topic, "queueId": "-1", "maxMsgNums": str(count),
            "invisibleTime": str(invisible), "pollTime": str(wait), "bornTime": str(round(time.time() * 1000)),
            "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
        }  # fmt: skip
        return await (peer or self.peer).call(RequestCode.POP_MESSAGE, ext | changes)

    async def popped(self, count: int = 32, *, wait: int = AGAIN_MS, **changes: Any) -> list[Popped]:
        return messages(await self.pop(count, wait=wait, **changes))

    async def all_popped(self, number: int, **changes: Any) -> list[Popped]:
        """So many messages, of several pops; fewer where no more come."""
        found: list[Popped] = []
        while len(found) < number and (more := await self.popped(**changes)):
            found += more
        return found

    def named(self, message: Popped, **changes: str) -> dict[str, str]:
        mark = message.handle.split(" ")[4]
        topic = {"0": self.topic, "1": f"%RETRY%{self.group}_{self.topic}"}[mark]
        fields = {
            "consumerGroup": self.group, "topic": topic, "queueId": str(message.queue_id),
            "extraInfo": message.handle, "offset": str(message.offset),
        }  # fmt: skip
        return fields | changes

    async def ack(self, message: Popped, **changes: str) -> Frame:
        return await self.peer.call(RequestCode.ACK_MESSAGE, self.named(message, **changes))

    async def change(self, message: Popped, invisible: int, **changes: str) -> Frame:
        ext = self.named(message, invisibleTime=str(invisible), **changes)
        return await self.peer.call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext)

    async def batch_ack(self, *found: Popped) -> Frame:
        entries: dict[tuple[str, ...], dict[str, Any]] = {}
        for message in found:
            start, popped, invisible, revive, mark, _, queue, offset = message.handle.split(" ")
            entry = entries.setdefault(
                (start, popped, queue, mark),
                {"c": self.group, "t": self.topic, "r": mark, "so": int(start), "q": int(queue), "rq": int(revive),
                 "pt": int(popped), "it": int(invisible), "bits": 0},
            )  # fmt: skip
            entry["bits"] |= 1 << (int(offset) - int(start))
        for entry in entries.values():
            bits = entry.pop("bits")
            entry["b"] = base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
        body = json.dumps({"brokerName": "broker-a", "acks": list(entries.values())}).encode()
        return await self.peer.call(RequestCode.BATCH_ACK_MESSAGE, {}, body)

    def answer(self, frame: Frame) -> Observed:
        """A frame without what varies."""
        remark = None if frame.remark is None else self._plain(_ADDRESS.sub("ADDRESS", frame.remark))
        fields = {
            name: self._plain(value)
            for name, value in sorted((frame.ext or {}).items())
            if name not in _VARYING
        }
        return {"code": frame.code, "remark": remark, **fields}

    def message(self, message: Popped, first: Popped | None = None) -> Observed:
        """A message without what varies; `first` is its delivery before."""
        handle = message.handle.split(" ")
        observed = {
            "body": message.body.decode(), "topic": self._plain(message.topic), "queue": message.queue_id,
            "offset": message.offset, "times": message.reconsume_times, "mark": handle[4],
            "has POP_CK": "POP_CK" in message.properties,
            "names": sorted(set(message.properties) - {"CLUSTER", "TRACE_ON", "MSG_REGION"}),
        }  # fmt: skip
        if first is not None:
            observed["keeps UNIQ_KEY"] = message.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"]
            observed["ORIGIN_GROUP"] = self._plain(message.properties.get("ORIGIN_GROUP", ""))
            observed["1ST_POP_TIME is the first"] = (
                message.properties.get("1ST_POP_TIME") == first.handle.split(" ")[1]
            )
        return observed

    def _plain(self, text: str) -> str:
        return text.replace(self.group, "GROUP").replace(self.topic, "TOPIC")

    async def committed(self, queue: int = 0) -> int:
        # Apache's broker commits a moment after its answer.
        await asyncio.sleep(0.5)
        return wire.committed(self.cluster.broker, self.group, self.topic, queue)
