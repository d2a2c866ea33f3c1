"""Configuration of access control: the keys of `broker.conf` that say who must be known, and who may do what.

All switches are off unless set. A switch that is on with no provider named means the default one, as the operator will
have meant it; Apache's broker then checks nothing at all.
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
#: Key to the classes of the original that may be named; what they do is done here.
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
    """The key of a class; it may be empty, too."""
    choices: tuple[str, ...] = ("", PROVIDERS[wire])
    doc = "Empty means this one. Other classes cannot be loaded; without one Apache's broker checks nothing."
    if _STATELESS in PROVIDERS[wire]:
        choices += (PROVIDERS[wire].replace(_STATELESS, _STATEFUL),)
        doc = "Every request is checked, whichever is named; what a connection was allowed is kept for it."
    return key(wire, "", doc, choices=choices)


@dataclasses.dataclass(frozen=True)
class Secret:
    """Name and secret of a user, never shown."""

    name: str
    secret: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AccessConfig(Settings):
    """Who must be known, who may do what, and the first users."""

    authenticates: bool = key(
        "authenticationEnabled", False, "Requests must be signed by a user of config/users.json."
    )
    authentication_provider: str = _provider("authenticationProvider")
    authentication_metadata_provider: str = _provider("authenticationMetadataProvider")
    authentication_strategy: str = _provider("authenticationStrategy")
    unsigned_codes: str = key(
        "authenticationWhitelist", "", "Codes of requests that need no signature, separated by commas."
    )
    authorizes: bool = key(
        "authorizationEnabled",
        False,
        "Users must have a policy of config/acls.json for what they do, but for super users. Without "
        "authenticationEnabled users are who they say.",
    )
    authorization_provider: str = _provider("authorizationProvider")
    authorization_metadata_provider: str = _provider("authorizationMetadataProvider")
    authorization_strategy: str = _provider("authorizationStrategy")
    unguarded_codes: str = key(
        "authorizationWhitelist", "", "Codes of requests that need no policy, separated by commas."
    )
    init_user: str = key(
        "initAuthenticationUser",
        "",
        'A super user made at the start where there is none of this name: `{"username":"…","password":"…"}`.',
        secret=True,
    )
    inner_credentials: str = key(
        "innerClientAuthenticationCredentials",
        "",
        'What the broker signs its own requests with: `{"accessKey":"…","secretKey":"…"}`; made a super user at the '
        "start, with this secret.",
        secret=True,
    )

    takes_certificates: bool = key(
        "certificateAuthenticationEnabled",
        False,
        "A request without a signature is of the user whose name its connection's certificate has as common name; see "
        "tls.server.need.client.auth. Apache's has no such key.",
    )
    is_plain: bool = key(
        "aclEnable",
        False,
        "ACL 1.0, the access control of releases up to 5.3.2: accounts of conf/plain_acl.yml and conf/acl/*.yml in "
        "rocketmqHome. `rmqpy acl migrate` makes users and policies of them.",
    )
    home: str = key(
        "rocketmqHome",
        lambda: os.environ.get("ROCKETMQ_HOME", ""),
        "The folder in which conf/plain_acl.yml is looked for; $ROCKETMQ_HOME where it is not set.",
    )
    migrates_plain: bool = key(
        "migrateAuthFromV1Enabled",
        False,
        "At the start, accounts of ACL 1.0 become users with policies, where there is no user of that name.",
    )
    http_token: str = key(
        "httpToken",
        "",
        "Where the HTTP port is not on loopback, /metrics, /healthz and /readyz are for requests with the header "
        "`Authorization: Bearer TOKEN`; with access control on and no token, for nobody. Apache's has no such key.",
        secret=True,
    )
    user_connections_max: int = key(
        "maxConnectionsPerUser",
        0,
        "Connections of one user at once, super users excepted; 0: as many as there may be. Apache's has no such key.",
        low=0,
        high=1_000_000,
    )
    user_requests_max: int = key(
        "maxRequestsPerSecondPerUser",
        0,
        "Requests of one user in a second, super users excepted; what is beyond is answered [OVERLOAD]. 0: no limit. "
        "Apache's has no such key.",
        low=0,
        high=1_000_000_000,
    )
    user_bytes_max: int = key(
        "maxBytesPerSecondPerUser",
        0,
        "Bytes of requests of one user in a second, likewise. Apache's has no such key.",
        unit="bytes",
        low=0,
        high=1 << 50,
    )

    #: A super user of this process alone, kept in no table: signs what its servers ask of each other.
    process_user: Secret | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_plain and (self.authenticates or self.authorizes):
            raise ConfigError(
                "aclEnable and authenticationEnabled are two kinds of access control, of which one can be on",
                hint="rmqpy acl migrate makes users and policies of accounts; then set aclEnable=false",
            )
        if (self.is_plain or self.migrates_plain) and not self.home:
            raise ConfigError(
                "rocketmqHome is not set, in whose conf/plain_acl.yml the accounts are",
                hint="set it, or ROCKETMQ_HOME, to the folder that conf/plain_acl.yml is in",
            )
        if self.takes_certificates and not self.is_on:
            raise ConfigError(
                "certificateAuthenticationEnabled=true: nothing asks who clients are",
                hint="set authenticationEnabled=true and authorizationEnabled=true",
            )
        # Read once, so that a mistake stops the start and not a request.
        _ = self.codes_unsigned, self.codes_unguarded, self.first_user, self.inner_user

    def check_certificates(self, *, is_encrypted: bool, asks_clients: bool) -> None:
        """Raise `ConfigError` where users are known by certificates that no client is asked for."""
        if self.takes_certificates and not is_encrypted:
            raise ConfigError(
                "certificateAuthenticationEnabled=true: this server has no certificate, so clients show it none",
                hint="set tls.server.certPath and tls.server.keyPath",
            )
        if self.takes_certificates and not asks_clients:
            raise ConfigError(
                "certificateAuthenticationEnabled=true: no client is asked for a certificate",
                hint="set tls.server.need.client.auth=optional, or require, with tls.server.trustCertPath",
            )

    @property
    def is_on(self) -> bool:
        """Whether anything is checked."""
        return self.authenticates or self.authorizes or self.is_plain

    @property
    def is_closed(self) -> bool:
        """Whether nobody does anything who is not known and allowed to."""
        return self.is_plain or (self.authenticates and self.authorizes)

    def page_token(self, host: str) -> str | None:
        """What pages are asked for by, where HTTP is served at `host`: None is nothing, empty is never."""
        if is_loopback(host) or not (self.http_token or self.is_on):
            return None
        return self.http_token

    @property
    def codes_unsigned(self) -> Collection[int]:
        """Codes of requests that need no signature."""
        return _codes("authenticationWhitelist", self.unsigned_codes)

    @property
    def codes_unguarded(self) -> Collection[int]:
        """Codes of requests that need no policy."""
        return _codes("authorizationWhitelist", self.unguarded_codes)

    @property
    def first_user(self) -> Secret | None:
        """The super user to make at the start, if there is none of this name."""
        return _secret("initAuthenticationUser", self.init_user, "username", "password")

    @property
    def inner_user(self) -> Secret | None:
        """The super user of the broker's own requests."""
        return self.configured_inner_user or self.process_user

    @property
    def configured_inner_user(self) -> Secret | None:
        """The same, where the configuration names one."""
        return _secret(
            "innerClientAuthenticationCredentials", self.inner_credentials, "accessKey", "secretKey"
        )

    def with_process_user(self, user: Secret) -> Self:
        """The same with this user for what the servers of one process ask of each other, where none is configured."""
        return dataclasses.replace(self, process_user=user)

    @property
    def remarks(self) -> list[str]:
        """What is to be said at the start."""
        said = []
        for is_on, what, provider in (
            (self.authenticates, "authentication", self.authentication_provider),
            (self.authorizes, "authorization", self.authorization_provider),
        ):
            if is_on and not provider:
                said.append(
                    f"{what}Enabled without {what}Provider means the default one; Apache's broker checks nothing then"
                )
        if self.authorizes and not self.authenticates:
            said.append("users are who they say they are: authenticationEnabled is off")
        return said


def _codes(wire: str, text: str) -> Collection[int]:
    names = [part.strip() for part in text.split(",") if part.strip()]
    # Names of messages of gRPC, which is another port's.
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
        # Not what stands there: it may be a secret.
        raise ConfigError(f'{wire}: must be {{"{name}":"…","{secret}":"…"}}')
    return found
