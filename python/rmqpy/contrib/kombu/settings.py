"""Settings of a kombu connection: its URL, its TLS options, and its transport options.

Pure.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import unquote, urlsplit

from rmqpy.config.client import ClientConfig, Credentials
from rmqpy.config.tls import TLS
from rmqpy.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Options:
    """The transport options of this transport; others are kombu's own, and ignored here.

    `group`: the consumer group of all workers. `visibility_timeout`: seconds until a message of a dead worker is
    delivered again. `extend_for`: seconds for which a live worker keeps a message. `topic_queues`: queues of a topic
    that this transport creates.
    """

    group: str = "celery"
    visibility_timeout: float = 30.0
    extend_for: float = 30 * 86_400.0
    topic_queues: int = 8

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Return the options among those given. Raises `ConfigError` for a value outside its range."""
        options = cls(**{each.name: given[each.name] for each in fields(cls) if each.name in given})
        for name in ("visibility_timeout", "extend_for", "topic_queues"):
            value = getattr(options, name)
            if not isinstance(value, int | float) or value < 1:
                raise ConfigError(f"{name} must be a number of at least 1, not {value!r}")
        return options


def client_config(client: Any) -> ClientConfig:
    """Return the configuration of a kombu connection's clients. All name servers of its URLs form one cluster."""
    urls: Sequence[str] = client.alt or [_url(client)]
    parts = [urlsplit(url if "://" in url else f"rocketmq://{url}") for url in urls]
    users = [part.netloc.rpartition("@")[0] for part in parts]
    user, _, password = next((user for user in users if user), "").partition(":")
    namespaces = [unquote(part.path.strip("/")) for part in parts]
    is_encrypted = bool(client.ssl) or any(part.scheme == "rocketmqs" for part in parts)
    config = ClientConfig.of([part.netloc.rpartition("@")[2] or "localhost" for part in parts])
    return ClientConfig(
        namesrv=config.namesrv,
        namespace=next((name for name in namespaces if name), ""),
        credentials=Credentials.of(unquote(user), unquote(password)) or config.credentials,
        tls=_tls(client.ssl) if is_encrypted else config.tls,
        connect_timeout=client.connect_timeout or 3.0,
    )


def _url(client: Any) -> str:
    """The URL of a connection without alternates, of the parts into which kombu splits it."""
    from urllib.parse import quote

    user = f"{quote(client.userid or '', safe='')}:{quote(client.password or '', safe='')}@"
    host = client.hostname or "localhost"
    address = f"[{host}]" if ":" in host else host
    path = (client.virtual_host or "").strip("/")
    return (
        f"{client.transport_cls if isinstance(client.transport_cls, str) else 'rocketmq'}://"
        f"{user if client.userid else ''}{address}:{client.port or 9876}/{quote(path, safe='')}"
    )


def _tls(given: object) -> TLS:
    """Return the TLS that `broker_use_ssl`, or the `ssl_…` parameters of a URL, describe."""
    if not isinstance(given, Mapping):
        return TLS()
    named = {name.removeprefix("ssl_"): value for name, value in given.items()}
    return TLS(
        ca=named.get("ca_certs"),
        cert=named.get("certfile"),
        key=named.get("keyfile"),
        password=named.get("password"),
        server_name=named.get("server_hostname"),
        verify=named.get("cert_reqs", ssl.CERT_REQUIRED) != ssl.CERT_NONE,
    )
