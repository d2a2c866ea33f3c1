"""Requests to a controller: identities of brokers, their roles, and the sets of replicas in sync.

A controller answers them on its own port, and only its leader answers, except `GetControllerMetadata` and heartbeats
(`registration.BrokerHeartbeat`).
"""

from dataclasses import field

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request, wire


@record
class SyncStateSet:
    """The ids of the replicas in sync, the master's included, and the epoch of this set."""

    sync_state_set: list[int] = field(default_factory=list)
    sync_state_set_epoch: int = 0


@reply
class ControllerMetadata:
    """The group of a controller, as it sees it. Without a leader, the fields of the leader are missing or empty."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    #: `n0:host:port;n1:host:port;`.
    peers: str | None = None


@request(RequestCode.CONTROLLER_GET_METADATA_INFO, needs=cluster(Action.GET))
class GetControllerMetadata(Request[ControllerMetadata]):
    """The leader of the controllers."""


@reply
class NextBrokerId:
    """The id that the next new broker of a set gets, from 1."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: int


@request(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, needs=cluster(Action.GET))
class GetNextBrokerId(Request[NextBrokerId]):
    """The id for a new broker."""

    cluster_name: str
    broker_name: str


@reply
class BrokerIdApplied:
    """The id belongs to the sender."""

    cluster_name: str | None = None
    broker_name: str | None = None


@request(RequestCode.CONTROLLER_APPLY_BROKER_ID, needs=cluster(Action.UPDATE))
class ApplyBrokerId(Request[BrokerIdApplied]):
    """Take an id. Repeating it with the same check code has no effect."""

    cluster_name: str
    broker_name: str
    applied_broker_id: int
    #: `address;milliseconds`.
    register_check_code: str


@reply
class ReplicaRegistered:
    """The master, if it is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    body: SyncStateSet | None = None


@request(RequestCode.CONTROLLER_REGISTER_BROKER, needs=cluster(Action.UPDATE))
class RegisterReplica(Request[ReplicaRegistered]):
    """Report the address of a broker that has an id."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_address: str
    invoke_time: int | None = None


@record
class MemberGroup:
    """The replicas of a broker set: addresses by id."""

    broker_addrs: dict[str, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""


@record
class MasterElectedBody:
    """The in-sync set, and the members in both shapes that Apache's readers expect."""

    broker_member_group: MemberGroup | None = None
    sync_state_set: list[int] = field(default_factory=list)
    broker_addrs: dict[str, str] | None = None
    broker_name: str | None = None
    cluster: str | None = None


@reply
class MasterElected:
    """The elected master. The body has the members, which brokers do not need."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    body: MasterElectedBody | None = None


@request(RequestCode.CONTROLLER_ELECT_MASTER, needs=cluster(Action.UPDATE))
class ElectMaster(Request[MasterElected]):
    """Elect a master: the given broker if `designate_elect`, otherwise a suitable one."""

    cluster_name: str = ""
    broker_name: str
    broker_id: int = -1
    designate_elect: bool = False
    invoke_time: int | None = None


@reply
class SyncStateSetAltered:
    """The set with its new epoch."""

    new_sync_state_set_epoch: int | None = None
    body: SyncStateSet | None = None


@request(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, needs=cluster(Action.UPDATE))
class AlterSyncStateSet(Request[SyncStateSetAltered]):
    """Replace the set of replicas in sync. The body has the wanted set and the epoch of the current one."""

    broker_name: str
    master_broker_id: int
    master_epoch: int
    invoke_time: int | None = None
    #: Ours: in this epoch the master acknowledges only messages that the whole set has.
    all_ack_in_sync_state_set: bool | None = None
    body: SyncStateSet


@reply
class ReplicaInfo:
    """The master of a set of brokers, if it has one, and the replicas in sync."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    body: SyncStateSet | None = None


@request(RequestCode.CONTROLLER_GET_REPLICA_INFO, needs=cluster(Action.GET))
class GetReplicaInfo(Request[ReplicaInfo]):
    """The master of a set of brokers."""

    broker_name: str


@record
class ReplicaIdentity:
    """One replica."""

    broker_name: str = ""
    broker_id: int = 0
    broker_address: str = ""
    alive: bool | None = None


@record
class ReplicasInfo:
    """All replicas of one set, as tools show them."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@record
class SyncStateData:
    """Replicas by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


@reply
class SyncStates:
    """Unknown names are left out."""

    body: SyncStateData | None = None


@request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, needs=cluster(Action.GET))
class GetSyncStateData(Request[SyncStates]):
    """All replicas of some sets; the body has the broker names."""

    body: list[str] = field(default_factory=list)


@reply
class BrokerMetadataCleaned:
    """The broker set that was cleaned."""

    cluster_name: str | None = None
    broker_name: str | None = None


@request(RequestCode.CLEAN_BROKER_DATA, needs=cluster(Action.UPDATE))
class CleanBrokerMetadata(Request[BrokerMetadataCleaned]):
    """Remove replicas of a set; without ids the whole set, which must have no master."""

    cluster_name: str | None = None
    broker_name: str
    #: Ids separated by semicolons.
    broker_controller_ids_to_clean: str | None = None
    clean_living_broker: bool | None = wire("isCleanLivingBroker", default=None)
    invoke_time: int | None = None


@request(RequestCode.GET_CONTROLLER_CONFIG, needs=cluster(Action.GET))
class GetControllerConfig(Request[str]):
    """All settings of the controller, as properties text."""


@request(RequestCode.UPDATE_CONTROLLER_CONFIG, needs=cluster(Action.UPDATE))
class UpdateControllerConfig(Request[None]):
    """Change settings: properties text."""

    body: str


@reply
class GroupReply:
    """The reply to a `GroupCall`."""

    #: HMAC-SHA256 of the call's seal and the body under the secret of the group; empty without a secret.
    seal: str = ""
    body: bytes = b""


@request(RequestCode.RMQPY_CONTROLLER_CALL, needs=cluster(Action.UPDATE))
class GroupCall(Request[GroupReply]):
    """A call of one controller to another of its group: a vote, entries or a snapshot. rmqpy only."""

    group: str
    #: The name of the calling controller.
    caller: str
    #: The name of the called one.
    target: str
    #: HMAC-SHA256 of the names and the body under the secret of the group; empty without a secret.
    seal: str = ""
    body: bytes = b""
