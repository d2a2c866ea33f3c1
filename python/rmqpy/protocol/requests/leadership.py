"""Leadership: the epochs of a broker's log, and the end of a master's time. The original's, of its controllers."""

from dataclasses import field

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request

#: End of an epoch that has not ended.
OPEN_END = (1 << 63) - 1

#: Replicas of one name never begin epochs of one number: the lowest digit of the number is the id.
_IDS = 16


def next_epoch(highest: int, broker_id: int) -> int:
    """The epoch that a broker begins when it has heard of those up to `highest`, as the native half counts.

    >>> next_epoch(16, 1)
    33
    """
    return (highest // _IDS + 1) * _IDS + broker_id % _IDS


@record
class EpochEntry:
    """An epoch: from where to where the log was written under one leadership."""

    epoch: int
    start_offset: int
    end_offset: int = OPEN_END


@record
class EpochCache:
    """The epochs of a log, oldest first, and its end. Where it begins is said by our brokers alone."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: int = 0
    min_offset: int | None = None

    @property
    def epoch(self) -> int:
        """The youngest; 0 where there is none."""
        return self.epoch_list[-1].epoch if self.epoch_list else 0


@reply
class BrokerEpochs:
    """With the digest that was asked for, where the log has all of that part."""

    body: EpochCache = EpochCache()
    digest: int | None = None


@request(RequestCode.GET_BROKER_EPOCH_CACHE, needs=cluster(Action.GET))
class GetBrokerEpochCache(Request[BrokerEpochs]):
    """The epochs of the log, and the CRC-32 of a part of it. Apache's brokers have epochs under a controller alone."""

    digest_begin: int | None = None
    digest_end: int | None = None


@reply
class RoleChanged:
    """Where the log of a master ended that was replaced; of our brokers."""

    log_end: int | None = None


@request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, needs=cluster(Action.UPDATE))
class NotifyBrokerRoleChanged(Request[RoleChanged]):
    """From an epoch on another broker leads, or the one that is told.

    Our brokers compare their name, where it is given, and take the role that is given.
    """

    master_broker_id: int
    master_epoch: int
    master_address: str | None = None
    sync_state_set_epoch: int | None = None
    broker_name: str | None = None
    broker_role: str | None = None
