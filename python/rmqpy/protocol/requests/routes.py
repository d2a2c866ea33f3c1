"""Routes: topics and brokers, requested from a name server by clients, tools and brokers."""

from dataclasses import field
from typing import Final

from rmqpy.protocol.access import Action, cluster, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, off_wire, record, reply, request, wire

#: The id of a master among the brokers of one name; all others are slaves.
MASTER_ID: Final = 0


@record
class QueueData:
    broker_name: str
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


@record
class BrokerData:
    """A group of brokers under one name."""

    broker_name: str
    cluster: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    enable_acting_master: bool = False
    zone_name: str | None = None


@record
class TopicRoute:
    """Everything a client needs to use a topic. Go reads the first two without checking that they exist."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    #: `broker-a:4;broker-b:4`: an order topic's queues, which then replace `queue_datas` in producers.
    order_topic_conf: str | None = None
    #: Static topics only.
    topic_queue_mapping_by_broker: dict[str, object] | None = None


@reply
class RouteFound:
    """A route. Old clients need bare integer keys, new ones and strict readers quoted ones."""

    body: TopicRoute
    is_strict: bool = off_wire(default=False)


@request(RequestCode.GET_ROUTEINFO_BY_TOPIC, needs=(topic("topic", Action.PUB, Action.SUB, Action.GET),))
class GetRoute(Request[RouteFound]):
    """The route of a topic; 17 if there is none."""

    topic: Resource
    accept_standard_json_only: bool | None = None
    zone_mode: bool | None = wire("__ZONE_MODE", default=None)
    zone_name: str | None = wire("__ZONE_NAME", default=None)


@record
class GoneBroker:
    """A broker that was registered and left."""

    cluster: str
    broker_name: str
    broker_id: int
    #: Its last address.
    broker_addr: str
    #: How long ago it left.
    gone_millis: int
    #: Whether it stopped in order, rather than lost its connection or fell silent.
    is_stopped: bool = False


@record
class ClusterInfo:
    """All groups of brokers, and their names by cluster."""

    broker_addr_table: dict[str, BrokerData]
    cluster_addr_table: dict[str, list[str]]
    #: Name → addresses of conflicting brokers with the same name and id. Not sent by Apache's name server.
    duplicate_broker_addrs: dict[str, list[str]] | None = None
    #: Brokers that left and did not come back. Not sent by Apache's name server.
    gone_brokers: list[GoneBroker] | None = None


@request(RequestCode.GET_BROKER_CLUSTER_INFO, needs=cluster(Action.GET))
class GetClusterInfo(Request[ClusterInfo]):
    """All brokers the name server knows."""


@record
class BrokerMembers:
    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


@record
class BrokerMemberGroup:
    """The envelope of `BrokerMembers`."""

    broker_member_group: BrokerMembers


@request(RequestCode.GET_BROKER_MEMBER_GROUP, needs=cluster(Action.GET))
class GetBrokerMembers(Request[BrokerMemberGroup]):
    """The members of one group."""

    cluster_name: str
    broker_name: str


# ---- topics ------------------------------------------------------------------------------------------------


@record
class TopicList:
    topic_list: list[Resource]
    broker_addr: str | None = None


@request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, needs=cluster(Action.GET))
class GetAllTopics(Request[TopicList]):
    """Every topic with a route."""


@request(RequestCode.GET_TOPICS_BY_CLUSTER, needs=cluster(Action.GET))
class GetTopicsByCluster(Request[TopicList]):
    """The topics that have a queue in one cluster."""

    cluster: str


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, needs=cluster(Action.GET))
class GetSystemTopics(Request[TopicList]):
    """The names of clusters and brokers, which are also topics, and the address of one broker."""


@request(RequestCode.GET_UNIT_TOPIC_LIST, needs=cluster(Action.GET))
class GetUnitTopics(Request[TopicList]):
    """Topics of a deployment unit."""


@request(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, needs=cluster(Action.GET))
class GetUnitSubscribedTopics(Request[TopicList]):
    """Topics that a deployment unit subscribes to."""


@request(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, needs=cluster(Action.GET))
class GetUnitSubscribedCommonTopics(Request[TopicList]):
    """Topics that a deployment unit subscribes to but that belong to no unit."""


@request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, needs=cluster(Action.UPDATE))
class RegisterTopic(Request[None]):
    """Add the queues of one topic on registered brokers."""

    topic: Resource
    body: TopicRoute


@request(RequestCode.DELETE_TOPIC_IN_NAMESRV, needs=cluster(Action.UPDATE))
class DeleteTopic(Request[None]):
    """Delete a topic, everywhere or in one cluster. A broker that still has it registers it again."""

    topic: Resource
    cluster_name: str | None = None


# ---- permission --------------------------------------------------------------------------------------------


@reply
class WritePermissionWiped:
    wipe_topic_count: int


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, needs=cluster(Action.UPDATE))
class WipeWritePermission(Request[WritePermissionWiped]):
    """Forbid sends to a broker, until it registers another table."""

    broker_name: str


@reply
class WritePermissionAdded:
    add_topic_count: int


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER, needs=cluster(Action.UPDATE))
class AddWritePermission(Request[WritePermissionAdded]):
    """Allow sends to a broker again."""

    broker_name: str
