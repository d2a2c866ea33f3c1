"""Certificates of a server: loaded, watched, and replaced while connections are open.

Owns the TLS state of one server's ports. A changed file is loaded within a second; unreadable files, or a certificate
and a key that do not match, leave the previous ones in force, with a warning if they stay so. Threads: the event
loop's; `http` that of HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmqpy._native import ClientTls, ServerTls, certificate_expiry, make_certificate
from rmqpy.config import home
from rmqpy.config.server_tls import TlsConfig
from rmqpy.errors import ConfigError

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

#: The interval for checking files and logging failed handshakes.
WATCH_SECONDS: Final = 1.0
#: Days before expiry from which a certificate is warned of.
EXPIRY_DAYS_MIN: Final = 30
#: Days that the certificate of tls.test.mode.enable is valid.
TEST_DAYS: Final = 365
#: Identity of a file's content: inode, size and modification time.
_Signature = tuple[tuple[int, int, int] | None, ...]


def ends_soon(certificate: bytes) -> str | None:
    """Return a warning for a PEM certificate that has expired or expires soon, or None. Raises `ConfigError` if it
    cannot be read."""
    end = certificate_expiry(certificate)
    left = end - time.time()
    if left > EXPIRY_DAYS_MIN * 86_400:
        return None
    day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(end))
    return f"expires in {left / 86_400:.0f} days, {day}" if left > 0 else f"has expired, {day}"


class Certificates:
    """The certificates of one server, from its start to its end."""

    def __init__(self, config: TlsConfig, names: Iterable[str] = ()) -> None:
        """`names` are further names of a test mode certificate, besides this machine's. Raises `ConfigError` naming
        an unusable file."""
        self._config = config
        self._names = tuple(names)
        self._made: tuple[bytes, bytes] | None = None
        self._contexts: list[ssl.SSLContext] = []
        #: TLS of the server's ports; None for plain connections.
        self.server: ServerTls | None = None
        #: TLS of the server's own connections.
        self.client: ClientTls | None = config.native_client()
        self._signature = self._look()
        self._failed: _Signature | None = None
        self._client_signature = self._look_client()
        if config.is_served:
            if not config.cert_path:
                certificate, key = make_certificate(_names(self._names), days=TEST_DAYS)
                self._made = certificate.encode(), key.encode()
            self.server = self._read()
        for remark in config.remarks:
            log.warning("%s", remark)
        for path in (
            config.cert_path if config.is_served else "",
            config.client_cert_path if config.is_client else "",
        ):
            if path and (ending := ends_soon(_bytes("a certificate", path))) is not None:
                log.warning(
                    "the certificate %s %s: replace the file; it is reloaded without a restart", path, ending
                )

    @property
    def is_enforced(self) -> bool:
        """Whether connections must be encrypted."""
        return self._config.is_enforced

    async def watch(self) -> None:
        """Load changed files, and log failed connections."""
        if self.server is not None:
            if self._config.cert_path:
                await asyncio.to_thread(self._refresh, self.server)
            failures, more = self.server.take_failures()
            for address, why in failures:
                log.warning("%s could not connect: %s", address, why)
            if more:
                log.warning("%d more TLS connections failed", more)
        if self.client is not None:
            await asyncio.to_thread(self._refresh_client, self.client)

    def grpc(self) -> ServerTls:
        """TLS of the gRPC port: that of the server, or a self-signed certificate next to plain connections, because
        most 5.x clients encrypt by default and verify nothing."""
        if self.server is not None:
            return self.server
        certificate, key = make_certificate(_names(self._names), days=TEST_DAYS)
        return ServerTls(certificate.encode(), key.encode(), is_enforced=False)

    def http(self) -> ssl.SSLContext | None:
        """The context for HTTP; None if HTTP is plain. Blocks on files."""
        if self.server is None:
            return None
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._limit(context)
        self._load(context)
        self._contexts.append(context)
        return context

    def _limit(self, context: ssl.SSLContext) -> None:
        """Allow only the configured suites."""
        from ssl import TLSVersion

        of_12, has_13 = self._config.http_suites
        context.minimum_version = TLSVersion.TLSv1_2 if of_12 else TLSVersion.TLSv1_3
        context.maximum_version = TLSVersion.TLSv1_3 if has_13 else TLSVersion.TLSv1_2
        if of_12:
            context.set_ciphers(":".join(of_12))

    def _load(self, context: ssl.SSLContext) -> None:
        import ssl

        config = self._config
        password = config.key_password or None
        if self._made is None:
            context.load_cert_chain(config.cert_path, config.key_path, password)
        else:
            # It only reads files.
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "test.pem"
                path.touch(mode=0o600)
                path.write_bytes(b"".join(self._made))
                context.load_cert_chain(path)
        if config.client_auth != "none":
            context.load_verify_locations(config.trust_path)
            context.verify_mode = ssl.CERT_REQUIRED if config.client_auth == "require" else ssl.CERT_OPTIONAL

    def _read(self) -> ServerTls:
        certificate, key, trust = self._files()
        try:
            return ServerTls(
                certificate,
                key,
                is_enforced=self._config.is_enforced,
                password=self._config.key_password or None,
                client_auth=self._config.client_auth,
                trust=trust,
                protocols=self._config.protocols,
                ciphers=self._config.ciphers,
            )
        except ConfigError as error:
            raise self._named(error) from None

    def _files(self) -> tuple[bytes, bytes, bytes | None]:
        config = self._config
        if self._made is not None:
            certificate, key = self._made
        else:
            certificate = _bytes("tls.server.certPath", config.cert_path)
            key = _bytes("tls.server.keyPath", config.key_path)
        return (
            certificate,
            key,
            _bytes("tls.server.trustCertPath", config.trust_path) if config.trust_path else None,
        )

    def _named(self, error: ConfigError) -> ConfigError:
        config = self._config
        paths = (config.cert_path, config.key_path, config.trust_path)
        return ConfigError(f"cannot set up TLS ({', '.join(path for path in paths if path)}): {error}")

    def _refresh(self, server: ServerTls) -> None:
        """Load the files if they have changed."""
        signature = self._look()
        if signature == self._signature:
            return
        try:
            certificate, key, trust = self._files()
            server.replace(
                certificate,
                key,
                password=self._config.key_password or None,
                client_auth=self._config.client_auth,
                trust=trust,
            )
            for context in self._contexts:
                self._load(context)
        except (ConfigError, OSError) as error:
            # A replacement may be half done: files are replaced one by one.
            if self._failed == signature:
                log.warning("keeping the previous certificate: %s", self._named(ConfigError(str(error))))
                self._signature = signature
            self._failed = signature
            return
        self._signature, self._failed = signature, None
        log.info("reloaded the certificate %s for new connections", self._config.cert_path)

    def _refresh_client(self, client: ClientTls) -> None:
        signature = self._look_client()
        if signature == self._client_signature:
            return
        self._client_signature = signature
        try:
            if (fresh := self._config.native_client()) is not None:
                client.replace(fresh)
        except ConfigError as error:
            log.warning("keeping the previous certificate of this server's own connections: %s", error)

    def _look(self) -> _Signature:
        config = self._config
        return tuple(_signature(path) for path in (config.cert_path, config.key_path, config.trust_path))

    def _look_client(self) -> _Signature:
        config = self._config
        paths = (config.client_cert_path, config.client_key_path, config.client_trust_path)
        return tuple(_signature(path) for path in paths)


def _signature(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _bytes(wire: str, path: str) -> bytes:
    try:
        return Path(home.expand(path)).read_bytes()
    except OSError as error:
        raise ConfigError(f"{wire}: {error}") from error


def _names(more: Iterable[str]) -> list[str]:
    """Names in a test mode certificate."""
    names = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *more]
    return [name for name in dict.fromkeys(names) if name and name not in ("0.0.0.0", "::")]
