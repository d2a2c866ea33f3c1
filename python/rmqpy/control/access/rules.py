"""Rules: users and policies together, as the native half decides by them.

Owns what is published: the whole picture, at the start and with each change that is on the disk. Threads: the event
loop's.
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

#: Folders of Apache's tables, beside ours.
_APACHE: Final = ("users", "acls")


class AccessRules:
    """What is checked, of whom, and by which policies."""

    def __init__(
        self,
        config: AccessConfig,
        cluster: str,
        folder: Path,
        clock: Clock,
        *,
        open_codes: Collection[int] = (),
    ) -> None:
        """Requests with `open_codes` are served whoever sends them."""
        self._config = config
        self._cluster = cluster
        self._folder = folder
        self._open_codes = frozenset(open_codes)
        self.users = Users(folder / "users.json", clock)
        self.policies = Policies(folder / "acls.json", clock)
        #: Of ACL 1.0: its accounts are asked in the place of users and policies.
        self.plain = PlainFiles(Path(config.home), clock) if config.is_plain else None
        self._clock = clock
        self._server: Server | None = None

    async def load(self) -> None:
        """Read the tables, and make the users that the configuration names. Raises `ConfigError` where a table cannot
        be read, or Apache's are in use here, and `StoreError` where ours cannot be written."""
        config, folder = self._config, self._folder
        await asyncio.to_thread(self.users.load)
        await asyncio.to_thread(self.policies.load)
        if config.is_on:
            for name in _APACHE:
                if (folder / name / "CURRENT").exists() and not (folder / f"{name}.json").exists():
                    raise ConfigError(
                        f"{folder / name} is a table of Apache's broker, which cannot be read here",
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
                log.warning(
                    "there is no super user, so that nobody can administer this broker: set initAuthenticationUser"
                )

    async def _make(self, secret: Secret) -> None:
        await self.users.put(_super_user(secret))

    async def _migrate(self) -> None:
        """Make users of the accounts of ACL 1.0, where there are none of their names."""
        files = PlainFiles(Path(self._config.home), self._clock)
        await files.load()
        for key, account in files.accounts.items():
            if key in self.users.next_table:
                continue
            if (acl := plain_acl.acl_of(account)) is not None:
                # Before its user, who may do nothing until then.
                kept = dataclasses.replace(acl, policies=checked(acl.policies))
                await self.policies.put(kept)
            await self.users.put(plain_acl.user_of(account))
            audit.info("the account %s became User:%s", key, key)
        if files.white_addresses or any(account.white_address for account in files.accounts.values()):
            log.warning("white lists of addresses are not migrated: their requests must be signed now")

    def follow(self, server: Server) -> None:
        """Publish the rules to a server, now and with each change."""
        self._server = server
        self.users.on_change = self.policies.on_change = self._publish
        if self.plain is not None:
            self.plain.on_change = self._publish
        self._publish()

    def _publish(self) -> None:
        if self._server is None or not self._config.is_on:
            return
        config, plain = self._config, self.plain
        self._server.set_access(
            authenticates=config.authenticates or config.is_plain,
            authorizes=config.authorizes or config.is_plain,
            takes_certificates=config.takes_certificates,
            unsigned_codes=self._open_codes | set(config.codes_unsigned),
            unguarded_codes=self._open_codes | set(config.codes_unguarded),
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
            trusted=plain.white_addresses if plain is not None else (),
            limits=(config.user_connections_max, config.user_requests_max, config.user_bytes_max),
        )

    def _people(self) -> Iterator[tuple[UserInfo, AclInfo | None, str]]:
        """Everybody who may sign, their policies, and from where they need not."""
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
        """Whether anything is checked."""
        return self._config.is_on

    def is_super(self, name: str | None) -> bool:
        """Whether a user of this name may do everything."""
        return any(
            user.username == name and is_super(user) and is_enabled(user) for user, *_ in self._people()
        )

    def log_refusals(self) -> None:
        """Write what was refused since the last call."""
        if self._server is None or not self._config.is_on:
            return
        refusals, more = self._server.take_refusals()
        for code, peer, sentence in refusals:
            note_refusal(code, peer, sentence)
        if more:
            audit.warning("refused %d more requests", more)


def _super_user(secret: Secret) -> UserInfo:
    return UserInfo(
        username=secret.name,
        password=secret.secret,
        user_type=UserType.Super.name,
        user_status=UserStatus.enable.name,
    )
