"""Transactions of a dying master: the halves and decisions that it acknowledged."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field

from crash.traffic import QUEUES, read_topic, send_header
from rmqpy.protocol.codes import RequestCode
from wire import Frame, Peer

#: In the flags of a send, and of the end of a transaction.
HALF, COMMIT = 4, 8
SUCCESS, SYSTEM_ERROR = 0, 1
#: Decisions that come at once are about every third half; the others stay open.
DECIDED_EACH = 3
PAUSE_SECONDS = 0.005


@dataclass
class Halves:
    """What was acknowledged in one topic, by the body of the message."""

    topic: str
    #: The fields with which a half is decided about.
    stored: dict[bytes, dict[str, str]] = field(default_factory=dict)
    committed: set[bytes] = field(default_factory=set)
    #: Decisions that were sent; one without an answer may have been stored or not.
    sent: set[bytes] = field(default_factory=set)

    async def store_until_the_end(self, address: str, name: str) -> None:
        """One half after the other, some of them committed; it ends with the connection or a refusal."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async with await Peer.connect(address) as peer:
                for number in range(1_000_000):
                    body = f"{name}/{number}".encode()
                    answer = await self._store(peer, body, number % QUEUES)
                    if answer.code != SUCCESS:
                        return
                    if number % DECIDED_EACH == 0:
                        if (await self._commit(peer, body)).code != SUCCESS:
                            return
                        self.committed.add(body)
                    await asyncio.sleep(PAUSE_SECONDS)  # the rate of the load

    async def _store(self, peer: Peer, body: bytes, queue: int) -> Frame:
        properties = f"UNIQ_KEY\x01{body.hex()}\x02TRAN_MSG\x01true\x02PGROUP\x01transactions\x02"
        header = send_header(self.topic, queue) | {"f": str(HALF), "i": properties}
        answer = await peer.call(RequestCode.SEND_MESSAGE_V2, header, body)
        if answer.code == SUCCESS:
            assert answer.ext is not None
            self.stored[body] = {
                "producerGroup": "transactions",
                "tranStateTableOffset": answer.ext["queueOffset"],
                "commitLogOffset": str(int(answer.ext["msgId"][16:], 16)),
                "commitOrRollback": str(COMMIT),
                "fromTransactionCheck": "false",
                "msgId": body.hex(),
                "transactionId": body.hex(),
            }
        return answer

    async def _commit(self, peer: Peer, body: bytes) -> Frame:
        self.sent.add(body)
        return await peer.call(RequestCode.END_TRANSACTION, self.stored[body])

    async def commit_all(self, address: str) -> None:
        """At the next master: what is open is committed, and what was is not open."""
        async with await Peer.connect(address) as peer:
            for body in self.stored:
                if body in self.committed:
                    continue
                was_sent = body in self.sent
                answer = await self._commit(peer, body)
                may_be = {SUCCESS, SYSTEM_ERROR} if was_sent else {SUCCESS}
                assert answer.code in may_be, f"{body!r} was stored, and is not open: {answer}"
                self.committed.add(body)

    async def audit(self, address: str) -> None:
        """Each is seen once."""
        found = [body for bodies in await read_topic(address, self.topic) for body in bodies]
        assert len(found) == len(set(found)), "a commit was delivered twice"
        assert set(self.stored) <= set(found), "a commit was lost"
