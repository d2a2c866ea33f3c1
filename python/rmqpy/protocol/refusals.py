"""Refusals: response codes that are errors, and their exceptions. Pure; any thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy.protocol.codes import ResponseCode


class _Meaning(NamedTuple):
    kind: type[errors.RocketMQError]
    retriable: bool = False
    hint: str | None = None


#: Response codes that are errors, and their meaning for a caller. The sender of a request handles codes that are
#: results (an empty pull, a send with a slow flush), so they do not get here.
_MEANINGS: Final[Mapping[int, _Meaning]] = {
    ResponseCode.SYSTEM_ERROR: _Meaning(errors.BrokerError, retriable=True),
    ResponseCode.SYSTEM_BUSY: _Meaning(errors.FlowControl, retriable=True),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: _Meaning(errors.Unsupported),
    ResponseCode.TRANSACTION_FAILED: _Meaning(errors.TransactionError),
    ResponseCode.MESSAGE_ILLEGAL: _Meaning(
        errors.SendError, hint="check its size, properties and delivery time, and the topic's name"
    ),
    ResponseCode.SERVICE_NOT_AVAILABLE: _Meaning(errors.NotStored, retriable=True),
    ResponseCode.VERSION_NOT_SUPPORTED: _Meaning(errors.Unsupported),
    ResponseCode.NO_PERMISSION: _Meaning(errors.AuthError),
    ResponseCode.TOPIC_NOT_EXIST: _Meaning(errors.TopicNotFound),
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: _Meaning(
        errors.BrokerError, hint="correct the filter expression"
    ),
    ResponseCode.SUBSCRIPTION_NOT_EXIST: _Meaning(
        errors.BrokerError, retriable=True
    ),  # until the next heartbeat
    ResponseCode.SUBSCRIPTION_NOT_LATEST: _Meaning(
        errors.BrokerError, retriable=True
    ),  # until the next heartbeat
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: _Meaning(errors.GroupNotFound),
    ResponseCode.TRANSACTION_STATE_GROUP_WRONG: _Meaning(errors.TransactionError),
    ResponseCode.NO_BUYER_ID: _Meaning(errors.BrokerError, retriable=True),
    ResponseCode.NOT_IN_CURRENT_UNIT: _Meaning(errors.BrokerError, retriable=True),
    ResponseCode.CONSUME_MSG_TIMEOUT: _Meaning(errors.BrokerError, retriable=True),
    ResponseCode.POLLING_FULL: _Meaning(errors.FlowControl, retriable=True),
    ResponseCode.BROKER_DISPATCH_NOT_COMPLETE: _Meaning(errors.BrokerError, retriable=True),
    ResponseCode.FLOW_CONTROL: _Meaning(errors.FlowControl, retriable=True),
    ResponseCode.GO_AWAY: _Meaning(errors.ConnectError, retriable=True),
    # Another broker leads the logical queue now: the route is outdated.
    ResponseCode.NOT_LEADER_FOR_QUEUE: _Meaning(errors.ConnectError, retriable=True),
}

#: The text of brokers of all versions with property filters turned off. The code alone is ambiguous.
_SQL_OFF: Final = "does not support consumer to filter message by SQL92"
_SQL_IS_OFF: Final = _Meaning(
    errors.Unsupported, hint="set enablePropertyFilter=true in the broker's configuration, or filter by tags"
)


def from_response(
    code: int, remark: str | None = None, *, broker: str | None = None, topic: str | None = None
) -> errors.RocketMQError:
    """Return the exception for a refusal. A code without a row is a plain `BrokerError`.

    >>> from_response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no group named billing", broker="broker-a")
    GroupNotFound('no group named billing (code 26 from broker-a)')
    """
    meaning = _MEANINGS.get(code, _Meaning(errors.BrokerError))
    origin = f"code {code} from {broker}" if broker else f"code {code}"
    hint = meaning.hint
    if code == ResponseCode.SYSTEM_ERROR and _SQL_OFF in (remark or ""):
        meaning = _SQL_IS_OFF
        hint = meaning.hint
    if meaning.kind is errors.TopicNotFound and topic:
        hint = f"create it: rmqpy topic create {topic}"
    return meaning.kind(
        f"{(remark or 'refused').strip()} ({origin})",
        code=code,
        remark=remark,
        broker=broker,
        topic=topic,
        retriable=meaning.retriable,
        hint=hint,
    )
