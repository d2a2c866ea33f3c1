"""A broker about itself: what it is doing and how it is set."""

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request


@record
class StringTable:
    """Text by name."""

    table: dict[str, str]


@request(RequestCode.GET_BROKER_RUNTIME_INFO)
class GetBrokerRuntimeInfo(Request[StringTable]):
    """Counters, rates and disk use of a broker."""


@reply
class BrokerConfigReply:
    """Properties text, and the version of the configuration as JSON."""

    version: str
    body: str


@request(RequestCode.GET_BROKER_CONFIG)
class GetBrokerConfig(Request[BrokerConfigReply]):
    """All settings."""


@request(RequestCode.UPDATE_BROKER_CONFIG)
class UpdateBrokerConfig(Request[None]):
    """Change settings: properties text."""

    body: str
