"""Queue locks: at most one member of a group consumes a queue in order."""

from rmqpy.protocol.access import Action, group, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request, wire
from rmqpy.protocol.requests.queues import MessageQueue


@record
class LockBatch:
    """Queues a client wants to hold or to give up."""

    client_id: str
    consumer_group: Resource
    mq_set: list[MessageQueue]
    only_this_broker: bool = False


@record
class LockedQueues:
    """The queues the client holds now."""

    lock_ok_mq_set: list[MessageQueue] = wire("lockOKMQSet")


@request(
    RequestCode.LOCK_BATCH_MQ,
    needs=(group("body.consumer_group", Action.SUB), topic("body.mq_set[].topic", Action.SUB)),
)
class LockBatchMq(Request[LockedQueues]):
    """Lock queues, or renew the locks; sent every 20 s."""

    body: LockBatch


@request(
    RequestCode.UNLOCK_BATCH_MQ,
    needs=(group("body.consumer_group", Action.SUB), topic("body.mq_set[].topic", Action.SUB)),
)
class UnlockBatchMq(Request[None]):
    """Unlock queues."""

    body: LockBatch
