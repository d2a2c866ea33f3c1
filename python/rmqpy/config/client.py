"""Client configuration: addresses, timeouts, credentials and TLS of a cluster.

Shared by all clients of a cluster. Immutable and comparable: clients of one process with equal configurations share
connections and routes.
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self

from rmqpy._native import Namespace
from rmqpy.config.addresses import parse
from rmqpy.config.arguments import FOREVER_S, check_range, check_types
from rmqpy.config.tls import TLS
from rmqpy.errors import ConfigError

NAMESRV_PORT = 9876
DEFAULT_NAMESRV = f"127.0.0.1:{NAMESRV_PORT}"

#: Addresses of name servers: `"a:9876;b:9876"`, a list of such, or `"rmq://a:9876,b:9876"`; or the URL of an address
#: server that returns them: `"http://host:8080/rocketmq/nsaddr"`.
Address = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Name and secret of a user, `access_key` and `secret_key`, that sign the requests of a client; `token` for
    services that require one.

    >>> Credentials("alice", "not shown")
    Credentials(access_key='alice')
    """

    access_key: str
    secret_key: str = dataclasses.field(repr=False)
    token: str | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_types(access_key=(self.access_key, str), secret_key=(self.secret_key, str))
        if not self.access_key.strip() or not self.secret_key:
            raise ConfigError("credentials need an access key and a secret key, both not empty")

    @classmethod
    def from_env(cls) -> "Credentials | None":
        """From `RMQPY_ACCESS_KEY` and `RMQPY_SECRET_KEY`; None if neither is set."""
        return cls.of(os.environ.get("RMQPY_ACCESS_KEY"), os.environ.get("RMQPY_SECRET_KEY"))

    @classmethod
    def of(cls, access_key: str | None, secret_key: str | None) -> "Credentials | None":
        """Credentials of both, or None without both. Raises `ConfigError` if only one is given."""
        return cls(access_key or "", secret_key or "") if access_key or secret_key else None

    @property
    def native(self) -> tuple[str, str, str | None]:
        """As passed to the native module."""
        return self.access_key, self.secret_key, self.token


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Addresses and settings a client needs to reach a cluster. Times are in seconds.

    `namesrv`: in any form of `Address`. `address_map`: advertised broker address → the address to use instead, for NAT,
    containers and port-forwards. `connect_timeout`: for opening a connection. `request_timeout`: for each
    administrative request: routes, offsets, topics. `route_refresh`: age at which a route in use is refreshed in the
    background. `header`: encoding of request headers; all brokers read both, some proxies only `json`. `zone`: use
    only brokers of this zone, and those of groups without a master. `vip`: producers send to the VIP ports of
    brokers, two below the advertised ones, which serve no consumers. `unit`: unit of this client, part of its ids and
    of requests to an address server. `namespace`: namespace of all topics and groups; its users see plain names, and
    brokers know `orders` of the namespace `shop` as `shop%orders`, as with Java clients. `credentials`: sign every
    request. `tls`: encrypt every connection; True stands for `TLS()`.

    >>> ClientConfig(namesrv=("10.0.0.1:9876", "10.0.0.2:9876")).request_timeout
    3.0
    """

    namesrv: tuple[str, ...] = (DEFAULT_NAMESRV,)
    connect_timeout: float = 3.0
    request_timeout: float = 3.0
    route_refresh: float = 30.0
    address_map: tuple[tuple[str, str], ...] = ()
    header: Literal["json", "binary"] = "json"
    zone: str | None = None
    vip: bool = False
    unit: str = ""
    namespace: str = ""
    credentials: Credentials | None = None
    tls: TLS | None = None

    if TYPE_CHECKING:
        # Accepts more forms than it stores.
        def __init__(
            self,
            *,
            namesrv: Address = ...,
            connect_timeout: float = ...,
            request_timeout: float = ...,
            route_refresh: float = ...,
            address_map: Mapping[str, str] | tuple[tuple[str, str], ...] = ...,
            header: Literal["json", "binary"] = ...,
            zone: str | None = ...,
            vip: bool = ...,
            unit: str = ...,
            namespace: str = ...,
            credentials: Credentials | None = ...,
            tls: TLS | bool | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "namesrv", addresses(self.namesrv))
        object.__setattr__(self, "tls", TLS.of(self.tls))
        if isinstance(self.address_map, Mapping):
            object.__setattr__(self, "address_map", tuple(sorted(self.address_map.items())))
        for name in ("connect_timeout", "request_timeout", "route_refresh"):
            object.__setattr__(self, name, seconds(getattr(self, name), name))
        check_types(
            address_map=(self.address_map, tuple),
            header=(self.header, str),
            zone=(self.zone, str | None),
            vip=(self.vip, bool),
            unit=(self.unit, str),
        )
        if self.header not in ("json", "binary"):
            raise ConfigError(f"header must be 'json' or 'binary', not {self.header!r}")
        if not all(part.isalnum() for part in self.unit.replace("_", "-").split("-") if part):
            raise ConfigError(f"unit {self.unit!r} may only contain letters, digits, - and _")
        check_types(namespace=(self.namespace, str), credentials=(self.credentials, Credentials | None))
        if self.namespace:
            Namespace(self.namespace)

    @property
    def signing(self) -> tuple[str, str, str | None] | None:
        """Access key, secret key and token, as passed to the native module; None without credentials."""
        return None if self.credentials is None else self.credentials.native

    @classmethod
    def of(cls, namesrv: "Address | ClientConfig | None") -> "ClientConfig":
        """Return the configuration for a client's `namesrv` argument; `None` reads the environment."""
        if isinstance(namesrv, ClientConfig):
            return namesrv
        if namesrv is None:
            return cls.from_env()
        return cls(namesrv=addresses(namesrv), credentials=Credentials.from_env(), tls=TLS.from_env())

    @classmethod
    def from_env(cls) -> Self:
        """From `NAMESRV_ADDR`, or a name server on this machine; from `RMQPY_ACCESS_KEY` and `RMQPY_SECRET_KEY`; as
        `TLS.from_env`; and from `ROCKETMQ_ZONE` if `ROCKETMQ_ZONE_MODE` is true, as in the Java client."""
        is_zoned = os.environ.get("ROCKETMQ_ZONE_MODE", "").lower() == "true"
        return cls(
            namesrv=addresses(os.environ.get("NAMESRV_ADDR") or DEFAULT_NAMESRV),
            zone=os.environ.get("ROCKETMQ_ZONE") or None if is_zoned else None,
            credentials=Credentials.from_env(),
            tls=TLS.from_env(),
        )

    @classmethod
    def from_profile(cls, name: str) -> Self:
        """From a profile in the file that `rmqpy -p NAME` reads. Raises `ConfigError` if it does not exist."""
        from rmqpy.config import profiles

        profile = profiles.get(name)
        config = cls.from_env() if profile.namesrv is None else cls(namesrv=addresses(profile.namesrv))
        credentials = Credentials.of(profile.access_key, profile.secret_key) or config.credentials
        config = dataclasses.replace(
            config,
            namespace=profile.namespace or "",
            credentials=credentials,
            tls=profile.tls or config.tls or TLS.from_env(),
        )
        if profile.timeout is None:
            return config
        return dataclasses.replace(config, connect_timeout=profile.timeout, request_timeout=profile.timeout)


def addresses(namesrv: Address) -> tuple[str, ...]:
    """Return the single addresses of any accepted form, each `host:port`; or the URL of an address server.

    >>> addresses("a:9876;b")
    ('a:9876', 'b:9876')
    >>> addresses("rmq://a:1,b:2")
    ('a:1', 'b:2')
    >>> addresses("::1")
    ('[::1]:9876',)
    >>> addresses("http://a:8080/rocketmq/nsaddr")
    ('http://a:8080/rocketmq/nsaddr',)
    """
    if not isinstance(namesrv, str):
        check_types(namesrv=(namesrv, str | Iterable))
        found = tuple(one for text in namesrv for one in addresses(text))
    else:
        if "://" in namesrv:
            from urllib.parse import urlsplit

            url = urlsplit(namesrv)
            if url.scheme in ("http", "https") and url.hostname:
                return (namesrv,)
            if url.scheme != "rmq" or url.query or url.path.strip("/") or "@" in url.netloc:
                raise ConfigError(
                    f"{namesrv!r} is not a name server address", hint="write rmq://host:9876,host:9876"
                )
            namesrv = url.netloc
        parts = [part.strip() for part in namesrv.replace(",", ";").split(";")]
        found = tuple(str(parse(part, port=NAMESRV_PORT)) for part in parts if part)
    if len(found) > 1 and any("://" in one for one in found):
        raise ConfigError(
            "an address server cannot be combined with other addresses", hint="name it, or the name servers"
        )
    if not found:
        raise ConfigError("no name server given", hint="pass namesrv='host:9876' or set NAMESRV_ADDR")
    return found


def seconds(time: float | timedelta, name: str = "timeout", *, row: str | None = None) -> float:
    """Return a time of a public method in seconds, a century at most; `math.inf` means no limit. Raises `TypeError` and
    `ConfigError` with the argument's name; `row` names its range if that differs.

    >>> seconds(timedelta(minutes=1)), seconds(2)
    (60.0, 2.0)
    """
    if isinstance(time, timedelta):
        time = time.total_seconds()
    check_types(**{name: (time, float | int | timedelta)})
    check_range(name, time, row or name)
    return float(min(time, FOREVER_S))
