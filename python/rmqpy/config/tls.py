"""TLS of a client: trusted authorities and its own certificate.

Frozen and comparable, like the rest of a client's configuration; files are read when a client is made.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqpy._native import ClientTls
from rmqpy.config.arguments import check_types
from rmqpy.errors import ConfigError

_OFF, _ON = frozenset({"", "0", "false", "no", "off"}), frozenset({"1", "true", "yes", "on"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """TLS of a client's connections. Paths are PEM files.

    `ca`: CA certificates that servers are checked against; those of the system by default. A server's certificate
    must match its address, or `server_name` if given. `cert` and `key`: the certificate of this client, for servers
    that ask for one, with the `password` of its key if it has one. Without `verify` any server is accepted: a man in
    the middle can read and change everything.

    >>> TLS(ca="ca.pem").verify
    True
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password: str | None = dataclasses.field(default=None, repr=False)
    server_name: str | None = None
    verify: bool = True

    def __post_init__(self) -> None:
        for name in ("ca", "cert", "key"):
            given = getattr(self, name)
            if isinstance(given, os.PathLike):
                object.__setattr__(self, name, os.fspath(given))
            check_types(**{name: (getattr(self, name), str | None)})
        check_types(
            password=(self.password, str | None),
            server_name=(self.server_name, str | None),
            verify=(self.verify, bool),
        )
        if self.key is not None and self.cert is None:
            raise ConfigError("a key goes with its certificate: give cert, too")

    @classmethod
    def of(cls, given: TLS | bool | None) -> TLS | None:
        """Return the meaning of the `tls` argument: True is TLS with the authorities of the system."""
        check_types(tls=(given, TLS | bool | None))
        if isinstance(given, TLS):
            return given
        return cls() if given else None

    @classmethod
    def from_env(cls) -> TLS | None:
        """From `RMQPY_TLS`, `RMQPY_TLS_CA`, `RMQPY_TLS_CERT`, `RMQPY_TLS_KEY` and `RMQPY_TLS_SERVER_NAME`; None if
        `RMQPY_TLS` is off, or none of them is set."""
        is_on = switch(os.environ.get("RMQPY_TLS", ""), "RMQPY_TLS") if "RMQPY_TLS" in os.environ else None
        given: dict[str, Any] = {
            name: os.environ.get(f"RMQPY_TLS_{name.upper()}") or None
            for name in ("ca", "cert", "key", "server_name")
        }
        if is_on is False or (is_on is None and not any(given.values())):
            return None
        return cls(**given)

    def native(self, *, protocols: str = "", ciphers: str = "") -> ClientTls:
        """As passed to the native module, with lists as in `tls_suites`. Raises `ConfigError` naming a file that cannot
        be used."""
        trust = (_read("ca", self.ca) if self.ca else _system_authorities()) if self.verify else None
        certificate = _read("cert", self.cert) if self.cert else None
        # One file may hold both.
        key = _read("key", self.key or self.cert) if self.cert else None
        try:
            return ClientTls(
                trust=trust,
                certificate=certificate,
                key=key,
                password=self.password,
                server_name=self.server_name,
                protocols=protocols,
                ciphers=ciphers,
            )
        except ConfigError as error:
            files = ", ".join(path for path in (self.ca, self.cert, self.key) if path)
            raise ConfigError(f"cannot set up TLS ({files or 'without files'}): {error}") from None


def switch(text: str, name: str) -> bool:
    """Parse a switch. Raises `ConfigError` with its name."""
    lowered = text.strip().lower()
    if lowered not in _ON | _OFF:
        raise ConfigError(f"{name}={text}: must be true or false")
    return lowered in _ON


def _read(name: str, path: str | None) -> bytes:
    try:
        return Path(path or "").read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the {name} of TLS: {error}") from error


def _system_authorities() -> bytes:
    # Imported here: the import takes longer than most clients need to start.
    import ssl

    paths = ssl.get_default_verify_paths()
    for candidate in (paths.cafile, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"):
        if candidate and Path(candidate).is_file():
            return Path(candidate).read_bytes()
    raise ConfigError("this system has no CA certificates", hint="name a file: TLS(ca=…)")
