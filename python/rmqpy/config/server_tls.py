"""TLS of a server: the `tls.*` keys of its file and of `tls.properties`.

Apache's broker reads them from a separate file or from JVM properties. Here they may also stand in broker.conf,
namesrv.conf and on the command line, which win.
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

#: Apache's default path of the file.
DEFAULT_FILE: Final = "/etc/rocketmq/tls.properties"
_FILE: Final = "tls.config.file"
_PREFIX: Final = "tls."


@dataclasses.dataclass(frozen=True, kw_only=True)
class TlsConfig(Settings):
    """Certificates of a server, its demands on clients, and its own connections to servers."""

    file: str = key(
        _FILE, DEFAULT_FILE, "File with more of these keys, if it exists; the server's own file wins."
    )
    mode: str = key(
        "tls.server.mode",
        "",
        "TLS connections are refused (disabled), accepted (permissive) or required (enforcing). Empty: enforcing if "
        "there is a certificate, else disabled; Apache's default is permissive.",
        choices=("", "disabled", "permissive", "enforcing"),
    )
    is_test: bool = key(
        "tls.test.mode.enable",
        False,
        "Create a self-signed certificate at the start, and trust any server in this server's own requests. Apache's "
        "default is true.",
    )
    client_auth: str = key(
        "tls.server.need.client.auth",
        "none",
        "Whether clients need a certificate signed by tls.server.trustCertPath; HTTP included.",
        choices=("none", "optional", "require"),
    )
    key_path: str = key("tls.server.keyPath", "", "The private key, PEM.")
    key_password: str = key("tls.server.keyPassword", "", "The password of that key.", secret=True)
    cert_path: str = key(
        "tls.server.certPath",
        "",
        "The certificate with intermediate certificates, PEM. Reloaded when the file changes.",
    )
    checks_clients: bool = key(
        "tls.server.authClient",
        True,
        "Client certificates are always checked; Apache's default is false.",
    )
    trust_path: str = key("tls.server.trustCertPath", "", "CA certificates for client certificates, PEM.")
    protocols: str = key(
        "tls.protocols", "", "TLSv1.2, TLSv1.3, or both, separated by commas; empty: both. HTTP included."
    )
    ciphers: str = key(
        "tls.ciphers",
        "",
        "Ciphers by their names in Java, OpenSSL or rustls, separated by commas or colons, HTTP included; empty: all "
        "of rustls with ring. An unsupported one fails the start.",
    )
    is_client: bool = key(
        "tls.enable", False, "Encrypt this server's own connections, to name servers and masters."
    )
    client_key_path: str = key("tls.client.keyPath", "", "The private key of those connections, PEM.")
    client_key_password: str = key("tls.client.keyPassword", "", "The password of that key.", secret=True)
    client_cert_path: str = key("tls.client.certPath", "", "The certificate of those connections, PEM.")
    checks_servers: bool = key(
        "tls.client.authServer",
        True,
        "Check servers' certificates, including their names. Apache's default is false.",
    )
    client_trust_path: str = key(
        "tls.client.trustCertPath", "", "CA certificates for other servers, PEM; empty: those of the system."
    )
    client_server_name: str = key(
        "tls.client.serverName",
        "",
        "Name in other servers' certificates, if it is not their address. Apache's broker has no such key.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        # An unsupported cipher or protocol fails the start.
        tls_suites(self.protocols, self.ciphers)
        if not self.checks_clients and self.client_auth != "none":
            raise ConfigError(
                "tls.server.authClient=false: client certificates are always checked; leave it out, or set "
                "tls.server.need.client.auth=none"
            )
        if bool(self.key_path) != bool(self.cert_path):
            raise ConfigError("tls.server.keyPath and tls.server.certPath must both be set")
        if self.mode in ("permissive", "enforcing") and not self.has_certificate:
            raise ConfigError(
                f"tls.server.mode={self.mode} needs a certificate: set tls.server.certPath and "
                "tls.server.keyPath, or tls.test.mode.enable=true for a self-signed one"
            )
        if self.asks_clients and not self.trust_path:
            raise ConfigError(
                f"tls.server.need.client.auth={self.client_auth} needs CA certificates for clients: set "
                "tls.server.trustCertPath"
            )

    @property
    def has_certificate(self) -> bool:
        """Whether there is or will be a certificate."""
        return bool(self.cert_path) or self.is_test

    @property
    def is_served(self) -> bool:
        """Whether TLS connections are accepted."""
        return self.has_certificate and self.mode != "disabled"

    @property
    def is_enforced(self) -> bool:
        """Whether TLS is required."""
        return self.is_served and self.mode in ("", "enforcing")

    @property
    def asks_clients(self) -> bool:
        """Whether clients may have a certificate."""
        return self.is_served and self.client_auth != "none"

    def native_client(self) -> ClientTls | None:
        """TLS of this server's own connections for the native module; None if they are not encrypted."""
        return self.client.native(protocols=self.protocols, ciphers=self.ciphers) if self.client else None

    @property
    def client(self) -> TLS | None:
        """TLS of this server's own connections; None if they are not encrypted."""
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
        """Return OpenSSL's names of the TLS 1.2 ciphers, and whether HTTP accepts TLS 1.3, whose ciphers Python cannot
        choose. Raises `ConfigError` if neither is left."""
        suites = tls_suites(self.protocols, self.ciphers)
        of_12, of_13 = (
            [name for spoken, name in suites if spoken == each] for each in ("TLSv1.2", "TLSv1.3")
        )
        has_13 = {*of_13} == {name for _, name in tls_suites("TLSv1.3", "")}
        if not of_12 and not has_13:
            raise ConfigError(
                f"tls.ciphers={self.ciphers}: ciphers of TLSv1.3 cannot be chosen for HTTP",
                hint="name all of them, or add one of TLSv1.2, or set httpPort=-1",
            )
        return of_12, has_13

    @property
    def remarks(self) -> list[str]:
        """Return warnings for the log of the start."""
        if self.is_test and self.is_served and not self.cert_path:
            return ["tls.test.mode.enable: the certificate is self-signed, and created again at each start"]
        return []


def with_file(given: Mapping[str, str]) -> dict[str, str]:
    """Return entries of a server's configuration, over those of `tls.config.file`.

    Raises `ConfigError` if a named file cannot be read.
    """
    named = given.get(_FILE)
    path = home.expand(named or DEFAULT_FILE)
    if not named and not Path(path).is_file():
        return dict(given)
    found = {wire: value for wire, value in read_file(path).items() if wire.startswith(_PREFIX)}
    return found | dict(given)
