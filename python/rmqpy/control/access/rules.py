"""Rules: users and policies together, as the native module evaluates them.

Owns the published snapshot: complete, at the start and after each durable change. Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from rmqpy._native import Server
from rmqpy.clock import Clock
from rmqpy.config.access import AccessConfig, Secret
from rmqpy.control.access.audit import audit, note_refusal
from rmqpy.control.access.plain_files import PlainFiles
from rmqpy.control.access.policies import SUBJECT_PREFIX, Policies, checked, rows
from rmqpy.control.access.users import Users, is_enabled, is_super
from rmqpy.errors import ConfigError
from rmqpy.protocol import plain_acl
from rmqpy.protocol.requests.access import AclInfo, PolicyType, UserInfo, UserStatus, UserType

log = logging.getLogger(__name__)

#: Folders of Apache's tables, next to rmqpy's.
_APACHE: Final = ("users", "acls")


class AccessRules:
    """The access rules of one broker."""

    def __init__(
        self,
        config: AccessConfig,
        cluster: str,
        folder: Path,
        clock: Clock,
        *,
        open_codes: Collection[int] = (),
    ) -> None:
        """Requests with `open_codes` need no authentication."""
        self._config = config
        self._cluster = cluster
        self._folder = folder
        self._open_codes = frozenset(open_codes)
        self.users = Users(folder / "users.json", clock, self._publish)
        self.policies = Policies(folder / "acls.json", clock, self._publish)
        #: ACL 1.0: its accounts replace users and policies.
        self.plain = PlainFiles(Path(config.home), clock, self._publish) if config.is_plain else None
        self._clock = clock
        self._server: Server | None = None

    async def load(self) -> None:
        """Read the tables, and create the users that the configuration names. Raises `ConfigError` if a table is
        unreadable or in Apache's format, and `StoreError` if rmqpy's cannot be written."""
        config, folder = self._config, self._folder
        await asyncio.to_thread(self.users.load)
        await asyncio.to_thread(self.policies.load)
        if config.is_on:
            for name in _APACHE:
                if (folder / name / "CURRENT").exists() and not (folder / f"{name}.json").exists():
                    raise ConfigError(
                        f"{folder / name} is a table in the format of Apache's broker, which this broker cannot read",
                        hint="copy its content to this broker while that one runs, by mqadmin copyUser and copyAcl, "
                        "with authenticationEnabled=false here; or move the folder away",
                    )
            for remark in config.remarks:
                log.warning("%s", remark)
        if config.first_user is not None and config.first_user.name not in self.users.next_table:
            await self._make(config.first_user)
        if config.configured_inner_user is not None:
            await self._make(config.configured_inner_user)
        if config.migrates_plain:
            await self._migrate()
        if self.plain is not None:
            await self.plain.load()
        if config.authenticates:
            supers = sorted(name for name, user in self.users.table.items() if is_super(user))
            log.info("super users: %s", ", ".join(supers) or "none")
            if not supers:
                log.warning("no super user: set initAuthenticationUser to administer this broker")

    async def _make(self, secret: Secret) -> None:
        await self.users.put(_super_user(secret))

    async def _migrate(self) -> None:
        """Convert accounts of ACL 1.0 into users, unless a user of that name exists."""
        files = PlainFiles(Path(self._config.home), self._clock)
        await files.load()
        for key, account in files.accounts.items():
            if key in self.users.next_table:
                continue
            if (acl := plain_acl.acl_of(account)) is not None:
                # Written before its user, who may do nothing until then.
                kept = dataclasses.replace(acl, policies=checked(acl.policies))
                await self.policies.put(kept)
            await self.users.put(plain_acl.user_of(account))
            audit.info("the account %s became User:%s", key, key)
        if files.white_addresses or any(account.white_address for account in files.accounts.values()):
            log.warning("address white lists are not migrated: these clients must sign their requests")

    def follow(self, server: Server) -> None:
        """Publish the rules to a server, now and after each change."""
        self._server = server
        self._publish()

    def _publish(self) -> None:
        if self._server is None or not self._config.is_on:
            return
        self._server.set_access(
            self._config,
            open_codes=self._open_codes,
            cluster=self._cluster,
            users=[
                (
                    user.username or "",
                    user.password or "",
                    is_super(user),
                    is_enabled(user),
                    rows(acl, PolicyType.Custom),
                    rows(acl, PolicyType.Default),
                    white_address,
                )
                for user, acl, white_address in self._people()
            ],
            trusted=self.plain.white_addresses if self.plain is not None else (),
        )

    def _people(self) -> Iterator[tuple[UserInfo, AclInfo | None, str]]:
        """Yield each user with its policies, and the addresses from which it needs no signature."""
        inner = self._config.process_user if self.plain is None else self._config.inner_user
        if inner is not None:
            yield _super_user(inner), None, ""
        if self.plain is None:
            acls = self.policies.table
            for name, user in self.users.table.items():
                if inner is None or name != inner.name:
                    yield user, acls.get(SUBJECT_PREFIX + name), ""
            return
        for key, account in self.plain.accounts.items():
            if inner is None or key != inner.name:
                yield plain_acl.user_of(account), plain_acl.acl_of(account), account.white_address

    @property
    def is_on(self) -> bool:
        """True if requests are checked."""
        return self._config.is_on

    def is_super(self, name: str | None) -> bool:
        """Return whether a user of this name has all permissions."""
        return any(
            user.username == name and is_super(user) and is_enabled(user) for user, *_ in self._people()
        )

    def log_refusals(self) -> None:
        """Log the refusals since the last call."""
        if self._server is None or not self._config.is_on:
            return
        refusals, more = self._server.take_refusals()
        for refusal in refusals:
            note_refusal(refusal.code, refusal.address, refusal.reason)
        if more:
            audit.warning("refused %d more requests", more)


def _super_user(secret: Secret) -> UserInfo:
    return UserInfo(
        username=secret.name,
        password=secret.secret,
        user_type=UserType.Super.name,
        user_status=UserStatus.enable.name,
    )
