"""Requests to check half messages again. On the event loop; a worker reads the store."""

from __future__ import annotations

import asyncio
import logging

from rmqpy._native import Store, Transactions
from rmqpy.control.access.records import RecordRights
from rmqpy.errors import BrokerError, StoreError
from rmqpy.protocol import ids
from rmqpy.protocol.access import Action
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.transactions import ResumeCheckHalfMessage
from rmqpy.remoting.server import Refused, RequestContext, handles

log = logging.getLogger(__name__)


class TransactionHandlers:
    """Transactions, for operators."""

    def __init__(self, transactions: Transactions, store: Store, rights: RecordRights) -> None:
        self._transactions = transactions
        self._store = store
        self._rights = rights

    @handles(ResumeCheckHalfMessage)
    async def resume(self, ask: ResumeCheckHalfMessage, context: RequestContext) -> None:
        place = ids.decode(ask.msg_id)
        if not isinstance(place, ids.OffsetId):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{ask.msg_id} is not an offset message id")
        half = await asyncio.to_thread(self._store.message, place.offset)
        if half is not None:
            self._rights.check_destination(half, Action.UPDATE, ask.code, context)
        try:
            await asyncio.to_thread(self._transactions.resume, place.offset)
        except BrokerError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except StoreError as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
        log.info("producers will be asked about half message %s again", ask.msg_id)
