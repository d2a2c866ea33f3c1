"""Single messages, for the tools that look at them. Runs on the event loop; the store reads in a worker."""

from __future__ import annotations

import asyncio
from typing import Final

from rmqpy._native import Store
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.messages import QueriedMessages, QueryMessage, ViewedMessage, ViewMessageById
from rmqpy.remoting.server import Refused, handles

#: What a query by unique key may find, whatever it asks for: retries share the key of their message.
_UNIQUE_HITS_MAX: Final = 32
_HITS_MAX: Final = 64
#: Room for a header and one more message below the largest frame.
_ANSWER_BYTES_MAX: Final = 8 << 20


class MessageHandlers:
    """Look messages up."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @handles(QueryMessage)
    async def query(self, ask: QueryMessage) -> QueriedMessages:
        maximum = _UNIQUE_HITS_MAX if ask.is_unique_key else min(max(ask.max_num, 0), _HITS_MAX)
        records: list[bytes] = []
        if maximum and ask.index_type != "T":
            records, timestamp, position = await asyncio.to_thread(
                self._store.query, ask.topic, ask.key, maximum, ask.begin_timestamp, ask.end_timestamp
            )
        if not records:
            remark = "can not find message, maybe time range not correct"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        body = bytearray()
        for record in records:
            if body and len(body) + len(record) > _ANSWER_BYTES_MAX:
                break
            body += record
        return QueriedMessages(
            index_last_update_timestamp=timestamp, index_last_update_phyoffset=position, body=bytes(body)
        )

    @handles(ViewMessageById)
    async def view(self, ask: ViewMessageById) -> ViewedMessage:
        record = None
        if ask.offset >= 0:
            record = await asyncio.to_thread(self._store.message, ask.offset)
        if record is None:
            remark = f"can not find message by the offset, {ask.offset}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        return ViewedMessage(body=record)
