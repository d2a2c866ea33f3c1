"""Topics on a broker: configuration and administration."""

from dataclasses import fields

from rmqpy.protocol import names
from rmqpy.protocol.access import Action, cluster, topic
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, reply, request, wire
from rmqpy.protocol.requests.routes import TopicList
from rmqpy.protocol.static_topics import TopicMapping
from rmqpy.protocol.topics import TopicConfig, TopicFilterType, TopicTable


@request(RequestCode.UPDATE_AND_CREATE_TOPIC, needs=(topic("topic", Action.CREATE),))
class UpdateAndCreateTopic(Request[None]):
    """Create or update a topic; `attributes` are changes: `+key=value,-key`."""

    topic: Resource
    default_topic: str = names.AUTO_CREATE_TOPIC
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: str | None = None
    force: bool | None = None

    def config(self) -> TopicConfig:
        """Return the topic without attributes."""
        return TopicConfig(
            topic_name=self.topic,
            read_queue_nums=self.read_queue_nums,
            write_queue_nums=self.write_queue_nums,
            perm=self.perm,
            topic_filter_type=self.topic_filter_type,
            topic_sys_flag=self.topic_sys_flag,
            order=self.order,
        )


@request(
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    body_bytes_max=4 << 20,
    needs=(topic("topic", Action.CREATE),),
)
class UpdateAndCreateStaticTopic(UpdateAndCreateTopic, Request[None]):
    """Create or update a topic, and with a body its mapping."""

    body: TopicMapping | None = None


@record
class TopicConfigList:
    """Several topics; the names of attributes carry a sign."""

    topic_config_list: list[TopicConfig]


@request(
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    body_bytes_max=4 << 20,
    needs=(topic("body.topic_config_list[].topic_name", Action.CREATE),),
)
class UpdateAndCreateTopicList(Request[None]):
    """The same for several topics."""

    body: TopicConfigList


@request(RequestCode.DELETE_TOPIC_IN_BROKER, needs=(topic("topic", Action.DELETE),))
class DeleteTopicInBroker(Request[None]):
    """Delete a topic with its queues and offsets."""

    topic: Resource


@request(RequestCode.CLEAN_UNUSED_TOPIC, needs=cluster(Action.UPDATE))
class CleanUnusedTopic(Request[None]):
    """Delete the queues of topics that no longer exist."""


@record
class MappedTopicConfig(TopicConfig):
    """One topic with its mapping, if it is static."""

    mapping_detail: TopicMapping | None = None

    def plain(self) -> TopicConfig:
        """Return the topic without its mapping."""
        return TopicConfig(**{each.name: getattr(self, each.name) for each in fields(TopicConfig)})


@request(RequestCode.GET_TOPIC_CONFIG, needs=(topic("topic", Action.GET),))
class GetTopicConfig(Request[MappedTopicConfig]):
    """One topic, with its mapping if `lo` is set."""

    topic: Resource
    lo: bool | None = None


@reply
class AllTopicConfig:
    total_topic_num: int | None = None
    #: Whether `wait_millis` is supported: by rmqpy's brokers.
    can_wait: bool | None = None
    body: TopicTable


@request(RequestCode.GET_ALL_TOPIC_CONFIG, needs=cluster(Action.GET))
class GetAllTopicConfig(Request[AllTopicConfig]):
    """All topics; with header fields one page, from the start again if the version is outdated."""

    topic_seq: int | None = None
    max_topic_num: int | None = None
    data_version: str | None = None
    #: How long the reply may wait for a version other than this one.
    wait_millis: int | None = None
    #: The id that a controller gave to the waiting slave.
    slave_id: int | None = None
    #: Names separated by line ends: rmqpy's brokers return only these.
    names: str | None = wire("rmqpyNames", default=None)


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, needs=cluster(Action.GET))
class GetSystemTopicListFromBroker(Request[TopicList]):
    """The topics that exist from the start."""
