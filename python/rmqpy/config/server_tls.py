"""TLS of a server: the `tls.*` keys, of the file `tls.properties` and of the server's own.

The original reads them from a file of their own, or as properties of the JVM. Here they may stand in broker.conf,
namesrv.conf and on the command line as well; the nearer wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmqpy._native import ClientTls, tls_suites
from rmqpy.config import home
from rmqpy.config.keys import Settings, key, read_file
from rmqpy.config.tls import TLS
from rmqpy.errors import ConfigError

#: Where the original looks for the file.
DEFAULT_FILE: Final = "/etc/rocketmq/tls.properties"
_FILE: Final = "tls.config.file"
_PREFIX: Final = "tls."


@dataclasses.dataclass(frozen=True, kw_only=True)
class TlsConfig(Settings):
    """Certificates of a server, what it asks of clients, and how it connects to other servers itself."""

    file: str = key(
        _FILE, DEFAULT_FILE, "Where more of these keys stand, if the file is there; nearer ones win."
    )
    mode: str = key(
        "tls.server.mode",
        "",
        "Connections that begin with TLS are closed (disabled), served beside others (permissive), or the only ones "
        "served (enforcing). Empty: enforcing where there is a certificate, else disabled; Apache's is permissive.",
        choices=("", "disabled", "permissive", "enforcing"),
    )
    is_test: bool = key(
        "tls.test.mode.enable",
        False,
        "A certificate that nobody vouches for is made at the start, and this server's own requests trust anybody. "
        "Apache's default is true.",
    )
    client_auth: str = key(
        "tls.server.need.client.auth",
        "none",
        "Whether clients show a certificate, which tls.server.trustCertPath vouches for; HTTP included.",
        choices=("none", "optional", "require"),
    )
    key_path: str = key("tls.server.keyPath", "", "The private key, PEM.")
    key_password: str = key("tls.server.keyPassword", "", "The password of that key.", secret=True)
    cert_path: str = key(
        "tls.server.certPath",
        "",
        "The certificate, PEM, with those between it and its authority. Read again when the file changes.",
    )
    checks_clients: bool = key(
        "tls.server.authClient",
        True,
        "A certificate that a client shows is always checked; here because Apache's default is false.",
    )
    trust_path: str = key("tls.server.trustCertPath", "", "Authorities of clients, PEM.")
    protocols: str = key(
        "tls.protocols", "", "TLSv1.2, TLSv1.3, or both, separated by commas; empty: both. HTTP included."
    )
    ciphers: str = key(
        "tls.ciphers",
        "",
        "Ciphers by their names in Java, OpenSSL or rustls, separated by commas or colons, HTTP included; empty: all "
        "that rustls has with ring. One that cannot be had stops the start.",
    )
    is_client: bool = key(
        "tls.enable", False, "This server's own connections, to name servers and masters, are encrypted."
    )
    client_key_path: str = key("tls.client.keyPath", "", "The private key of those connections, PEM.")
    client_key_password: str = key("tls.client.keyPassword", "", "The password of that key.", secret=True)
    client_cert_path: str = key("tls.client.certPath", "", "The certificate of those connections, PEM.")
    checks_servers: bool = key(
        "tls.client.authServer",
        True,
        "Servers' certificates are checked, their names included. Apache's default is false.",
    )
    client_trust_path: str = key(
        "tls.client.trustCertPath", "", "Authorities of other servers, PEM; empty: those of the system."
    )
    client_server_name: str = key(
        "tls.client.serverName",
        "",
        "The name that other servers' certificates are for, whatever their addresses. Apache's has no such key.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # What cannot be had stops the start.
        tls_suites(self.protocols, self.ciphers)
        if not self.checks_clients and self.client_auth != "none":
            raise ConfigError(
                "tls.server.authClient=false: certificates of clients are always checked here; leave it out, or set "
                "tls.server.need.client.auth=none"
            )
        if bool(self.key_path) != bool(self.cert_path):
            raise ConfigError("tls.server.keyPath and tls.server.certPath go together")
        if self.mode in ("permissive", "enforcing") and not self.has_certificate:
            raise ConfigError(
                f"tls.server.mode={self.mode}: there is no certificate; set tls.server.certPath and "
                "tls.server.keyPath, or tls.test.mode.enable=true for one to try things out"
            )
        if self.asks_clients and not self.trust_path:
            raise ConfigError(
                f"tls.server.need.client.auth={self.client_auth}: nobody vouches for clients; set "
                "tls.server.trustCertPath"
            )

    @property
    def has_certificate(self) -> bool:
        """Whether there is a certificate, or will be one."""
        return bool(self.cert_path) or self.is_test

    @property
    def is_served(self) -> bool:
        """Whether connections may begin with TLS."""
        return self.has_certificate and self.mode != "disabled"

    @property
    def is_enforced(self) -> bool:
        """Whether they must."""
        return self.is_served and self.mode in ("", "enforcing")

    @property
    def asks_clients(self) -> bool:
        """Whether clients may show a certificate."""
        return self.is_served and self.client_auth != "none"

    def native_client(self) -> ClientTls | None:
        """The TLS of this server's own connections, as the native half takes it; None where they are not encrypted."""
        return self.client.native(protocols=self.protocols, ciphers=self.ciphers) if self.client else None

    @property
    def client(self) -> TLS | None:
        """How this server's own connections are encrypted; None where they are not."""
        if not self.is_client:
            return None
        return TLS(
            ca=self.client_trust_path or None,
            cert=self.client_cert_path or None,
            key=self.client_key_path or None,
            password=self.client_key_password or None,
            server_name=self.client_server_name or None,
            verify=self.checks_servers and not self.is_test,
        )

    @property
    def http_suites(self) -> tuple[list[str], bool]:
        """OpenSSL's names of the ciphers of TLS 1.2, and whether TLS 1.3 is spoken over HTTP: Python cannot choose
        among the ciphers of that. Raises `ConfigError` where neither is left."""
        suites = tls_suites(self.protocols, self.ciphers)
        of_12, of_13 = (
            [name for spoken, name in suites if spoken == each] for each in ("TLSv1.2", "TLSv1.3")
        )
        has_13 = {*of_13} == {name for _, name in tls_suites("TLSv1.3", "")}
        if not of_12 and not has_13:
            raise ConfigError(
                f"tls.ciphers={self.ciphers}: over HTTP one cannot choose among the ciphers of TLSv1.3",
                hint="name all of them, or one of TLSv1.2 beside; or set httpPort=-1",
            )
        return of_12, has_13

    @property
    def remarks(self) -> list[str]:
        """What is to be said at the start."""
        if self.is_test and self.is_served and not self.cert_path:
            return [
                "tls.test.mode.enable: nobody vouches for this server's certificate; it is made anew at each start"
            ]
        return []


def with_file(given: Mapping[str, str]) -> dict[str, str]:
    """Entries of a server's configuration, and below them those of `tls.config.file`.

    Raises `ConfigError` where that file was named and cannot be read.
    """
    named = given.get(_FILE)
    path = home.expand(named or DEFAULT_FILE)
    if not named and not Path(path).is_file():
        return dict(given)
    found = {wire: value for wire, value in read_file(path).items() if wire.startswith(_PREFIX)}
    return found | dict(given)
