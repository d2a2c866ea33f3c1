"""Leadership: epochs of a broker's log, and the replacement of a master, as of RocketMQ's controllers."""

from dataclasses import field

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request
from rmqpy.protocol.requests.controller import SyncStateSet

#: The end of the current epoch.
OPEN_END = (1 << 63) - 1

#: Replicas of one name never begin epochs with the same number: its lowest digit is the brokerId.
_IDS = 16


def next_epoch(highest: int, broker_id: int) -> int:
    """The next epoch of a broker that knows epochs up to `highest`, as the native module counts.

    >>> next_epoch(16, 1)
    33
    """
    return (highest // _IDS + 1) * _IDS + broker_id % _IDS


@record
class EpochEntry:
    """One epoch: the part of the log written under one leadership."""

    epoch: int
    start_offset: int
    end_offset: int = OPEN_END


@record
class EpochCache:
    """The epochs of a log, oldest first, and its end. Only rmqpy's brokers report the start."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: int = 0
    min_offset: int | None = None

    @property
    def epoch(self) -> int:
        """The newest epoch; 0 without one."""
        return self.epoch_list[-1].epoch if self.epoch_list else 0


@reply
class BrokerEpochs:
    """With the requested digest, if the log has all of that part."""

    body: EpochCache = EpochCache()
    digest: int | None = None


@request(RequestCode.GET_BROKER_EPOCH_CACHE, needs=cluster(Action.GET))
class GetBrokerEpochCache(Request[BrokerEpochs]):
    """The epochs of the log, and the CRC-32 of a part of it. Apache's brokers have epochs under a controller alone."""

    digest_begin: int | None = None
    digest_end: int | None = None


@reply
class RoleChanged:
    """The end of a replaced master's log; rmqpy only."""

    log_end: int | None = None


@request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, needs=cluster(Action.UPDATE))
class NotifyBrokerRoleChanged(Request[RoleChanged]):
    """From an epoch on another broker leads, or the receiver.

    rmqpy's brokers compare their name, if given, and take the given role.
    """

    master_broker_id: int
    master_epoch: int
    master_address: str | None = None
    sync_state_set_epoch: int | None = None
    broker_name: str | None = None
    broker_role: str | None = None
    #: The in-sync set, from a controller.
    body: SyncStateSet | None = None
