"""The name server's key-value configuration, and its own."""

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, reply, request
from rmqpy.protocol.requests.registration import KvTable


@request(RequestCode.PUT_KV_CONFIG, needs=cluster(Action.UPDATE))
class PutKv(Request[None]):
    """Set one value."""

    namespace: str
    key: str
    value: str


@reply
class KvFound:
    """The value, absent in the reply 22."""

    value: str | None = None


@request(RequestCode.GET_KV_CONFIG, needs=cluster(Action.GET))
class GetKv(Request[KvFound]):
    """One value; 22 if it does not exist."""

    namespace: str
    key: str


@request(RequestCode.DELETE_KV_CONFIG, needs=cluster(Action.UPDATE))
class DeleteKv(Request[None]):
    """Remove one value; it need not exist."""

    namespace: str
    key: str


@request(RequestCode.GET_KVLIST_BY_NAMESPACE, needs=cluster(Action.GET))
class GetKvList(Request[KvTable]):
    """All values of a namespace; 22 if it does not exist."""

    namespace: str


@request(RequestCode.GET_NAMESRV_CONFIG, needs=cluster(Action.GET))
class GetNameServerConfig(Request[str]):
    """All settings of the name server, as properties text."""


@request(RequestCode.UPDATE_NAMESRV_CONFIG, needs=cluster(Action.UPDATE))
class UpdateNameServerConfig(Request[None]):
    """Change settings: properties text."""

    body: str
