"""Configuration of access control: keys of `broker.conf` for authentication, authorization and quotas.

All switches are off by default. A switch that is on without a provider uses the default provider; Apache's broker then
checks nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection
from typing import Any, Final, Self

from rmqpy.config.addresses import is_loopback
from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError

_BELOW: Final = "org.apache.rocketmq.auth."
#: Key → the classes of Apache's broker that may be named; the checks themselves are built in.
PROVIDERS: Final = {
    "authenticationProvider": _BELOW + "authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": _BELOW + "authentication.provider.LocalAuthenticationMetadataProvider",
    "authenticationStrategy": _BELOW + "authentication.strategy.StatelessAuthenticationStrategy",
    "authorizationProvider": _BELOW + "authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": _BELOW + "authorization.provider.LocalAuthorizationMetadataProvider",
    "authorizationStrategy": _BELOW + "authorization.strategy.StatelessAuthorizationStrategy",
}
_STATELESS, _STATEFUL = ".Stateless", ".Stateful"


def _provider(wire: str) -> Any:
    """The key of a class, which may also be empty."""
    choices: tuple[str, ...] = ("", PROVIDERS[wire])
    doc = (
        "Empty selects this class. Other classes cannot be loaded; if empty, Apache's broker checks nothing."
    )
    if _STATELESS in PROVIDERS[wire]:
        choices += (PROVIDERS[wire].replace(_STATELESS, _STATEFUL),)
        doc = "Every request is checked with either value; allowed actions are cached for the connection."
    return key(wire, "", doc, choices=choices)


@dataclasses.dataclass(frozen=True)
class Secret:
    """Name and secret of a user. Never shown."""

    name: str
    secret: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccessConfig(Settings):
    """Authentication, authorization and initial users."""

    authenticates: bool = key(
        "authenticationEnabled", False, "Requests must be signed by a user of config/users.json."
    )
    authentication_provider: str = _provider("authenticationProvider")
    authentication_metadata_provider: str = _provider("authenticationMetadataProvider")
    authentication_strategy: str = _provider("authenticationStrategy")
    unsigned_codes: str = key(
        "authenticationWhitelist", "", "Request codes that need no signature, separated by commas."
    )
    authorizes: bool = key(
        "authorizationEnabled",
        False,
        "Users other than super users need a policy of config/acls.json for each action. Without "
        "authenticationEnabled, user names are not verified.",
    )
    authorization_provider: str = _provider("authorizationProvider")
    authorization_metadata_provider: str = _provider("authorizationMetadataProvider")
    authorization_strategy: str = _provider("authorizationStrategy")
    unguarded_codes: str = key(
        "authorizationWhitelist", "", "Request codes that need no policy, separated by commas."
    )
    init_user: str = key(
        "initAuthenticationUser",
        "",
        'Super user to create at the start if this name does not exist: `{"username":"…","password":"…"}`.',
        secret=True,
    )
    inner_credentials: str = key(
        "innerClientAuthenticationCredentials",
        "",
        'Credentials for requests of the broker: `{"accessKey":"…","secretKey":"…"}`. The start creates a super '
        "user with them.",
        secret=True,
    )

    takes_certificates: bool = key(
        "certificateAuthenticationEnabled",
        False,
        "The common name of a client certificate is the user of requests without a signature; see "
        "tls.server.need.client.auth. Apache's broker has no such key.",
    )
    is_plain: bool = key(
        "aclEnable",
        False,
        "ACL 1.0, the access control of releases up to 5.3.2: accounts of conf/plain_acl.yml and conf/acl/*.yml in "
        "rocketmqHome. `rmqpy acl migrate` converts them to users and policies.",
    )
    home: str = key(
        "rocketmqHome",
        lambda: os.environ.get("ROCKETMQ_HOME", ""),
        "Folder that contains conf/plain_acl.yml. Default: $ROCKETMQ_HOME.",
    )
    migrates_plain: bool = key(
        "migrateAuthFromV1Enabled",
        False,
        "Convert accounts of ACL 1.0 to users with policies at the start, except for existing user names.",
    )
    http_token: str = key(
        "httpToken",
        "",
        "Token that /metrics, /healthz and /readyz require as `Authorization: Bearer TOKEN` if the HTTP port is not on "
        "loopback. With access control and no token they refuse every request. Apache's broker has no such key.",
        secret=True,
    )
    user_connections_max: int = key(
        "maxConnectionsPerUser",
        0,
        "Maximum connections of one user, except super users; 0: no limit. Apache's broker has no such key.",
        low=0,
        high=1_000_000,
    )
    user_requests_max: int = key(
        "maxRequestsPerSecondPerUser",
        0,
        "Maximum requests of one user in a second, except super users; the broker refuses more with [OVERLOAD]. 0: no "
        "limit. Apache's broker has no such key.",
        low=0,
        high=1_000_000_000,
    )
    user_bytes_max: int = key(
        "maxBytesPerSecondPerUser",
        0,
        "Maximum request bytes of one user in a second, except super users; 0: no limit. Apache's broker has no such "
        "key.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )

    #: A super user of this process only, stored nowhere: signs requests between its servers.
    process_user: Secret | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_plain and (self.authenticates or self.authorizes):
            raise ConfigError(
                "aclEnable and authenticationEnabled exclude each other",
                hint="convert accounts with rmqpy acl migrate, then set aclEnable=false",
            )
        if (self.is_plain or self.migrates_plain) and not self.home:
            raise ConfigError(
                "aclEnable=true needs rocketmqHome, whose conf/plain_acl.yml has the accounts",
                hint="set it, or ROCKETMQ_HOME, to the folder that contains conf/plain_acl.yml",
            )
        if self.takes_certificates and not self.is_on:
            raise ConfigError(
                "certificateAuthenticationEnabled=true has no effect: authentication is off",
                hint="set authenticationEnabled=true and authorizationEnabled=true",
            )
        # Parsed once here, so that a mistake fails the start and not a request.
        _ = self.codes_unsigned, self.codes_unguarded, self.first_user, self.inner_user

    def check_certificates(self, *, is_encrypted: bool, asks_clients: bool) -> None:
        """Raise `ConfigError` if users are known by certificates, but clients are not asked for one."""
        if self.takes_certificates and not is_encrypted:
            raise ConfigError(
                "certificateAuthenticationEnabled=true: this server has no certificate, so TLS is off",
                hint="set tls.server.certPath and tls.server.keyPath",
            )
        if self.takes_certificates and not asks_clients:
            raise ConfigError(
                "certificateAuthenticationEnabled=true: clients are not asked for a certificate",
                hint="set tls.server.need.client.auth=optional, or require, with tls.server.trustCertPath",
            )

    @property
    def is_on(self) -> bool:
        """Whether requests are checked."""
        return self.authenticates or self.authorizes or self.is_plain

    @property
    def is_closed(self) -> bool:
        """Whether every action needs an authenticated and authorized user."""
        return self.is_plain or (self.authenticates and self.authorizes)

    def page_token(self, host: str) -> str | None:
        """Return the token that HTTP pages at `host` require: None for none, empty for no access."""
        if is_loopback(host) or not (self.http_token or self.is_on):
            return None
        return self.http_token

    @property
    def codes_unsigned(self) -> Collection[int]:
        """Request codes that need no signature."""
        return _codes("authenticationWhitelist", self.unsigned_codes)

    @property
    def codes_unguarded(self) -> Collection[int]:
        """Request codes that need no policy."""
        return _codes("authorizationWhitelist", self.unguarded_codes)

    @property
    def first_user(self) -> Secret | None:
        """The super user to create at the start unless the name exists."""
        return _secret("initAuthenticationUser", self.init_user, "username", "password")

    @property
    def inner_user(self) -> Secret | None:
        """The super user of the broker's own requests."""
        return self.configured_inner_user or self.process_user

    @property
    def configured_inner_user(self) -> Secret | None:
        """The same, if the configuration names one."""
        return _secret(
            "innerClientAuthenticationCredentials", self.inner_credentials, "accessKey", "secretKey"
        )

    def with_process_user(self, user: Secret) -> Self:
        """The same, with this user for requests between servers of one process unless one is configured."""
        return dataclasses.replace(self, process_user=user)

    @property
    def remarks(self) -> list[str]:
        """Return warnings for the log of the start."""
        said = []
        for is_on, what, provider in (
            (self.authenticates, "authentication", self.authentication_provider),
            (self.authorizes, "authorization", self.authorization_provider),
        ):
            if is_on and not provider:
                said.append(
                    f"{what}Enabled without {what}Provider uses the default one; Apache's broker then checks nothing"
                )
        if self.authorizes and not self.authenticates:
            said.append("user names are not verified: authenticationEnabled is off")
        return said


def _codes(wire: str, text: str) -> Collection[int]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    # Names of gRPC messages belong to another port.
    return frozenset(int(name) for name in names if name.isdecimal() and len(name) < 10)


def _secret(wire: str, text: str, name: str, secret: str) -> Secret | None:
    if not text.strip():
        return None
    try:
        members = json.loads(text)
        found = Secret(str(members[name]).strip(), str(members[secret]))
    except (ValueError, TypeError, KeyError):
        found = Secret("", "")
    if not found.name or not found.secret:
        # Without the value: it may be a secret.
        raise ConfigError(f'{wire}: must be {{"{name}":"…","{secret}":"…"}}')
    return found
