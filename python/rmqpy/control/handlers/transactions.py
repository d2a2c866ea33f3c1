"""Half messages that producers are to be asked about again. Runs on the event loop; the store is read in a worker."""

from __future__ import annotations

import asyncio
import logging

from rmqpy._native import Transactions
from rmqpy.errors import BrokerError, StoreError
from rmqpy.protocol import ids
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.transactions import ResumeCheckHalfMessage
from rmqpy.remoting.server import Refused, handles

log = logging.getLogger(__name__)


class TransactionHandlers:
    """Transactions, for operators."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @handles(ResumeCheckHalfMessage)
    async def resume(self, ask: ResumeCheckHalfMessage) -> None:
        place = ids.decode(ask.msg_id)
        if not isinstance(place, ids.OffsetId):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{ask.msg_id} is no offset message id")
        try:
            await asyncio.to_thread(self._transactions.resume, place.offset)
        except BrokerError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except StoreError as error:
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)) from error
        log.info("producers are asked again about the half message %s", ask.msg_id)
