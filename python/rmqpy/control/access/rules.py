"""Rules: users and policies together, as the native half decides by them.

Owns what is published: the whole picture, at the start and with each change that is on the disk. Threads: the event
loop's.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from rmqpy._native import Server
from rmqpy.clock import Clock
from rmqpy.config.access import AccessConfig, Secret
from rmqpy.control.access.policies import SUBJECT_PREFIX, Policies, rows
from rmqpy.control.access.users import Users, is_enabled, is_super
from rmqpy.errors import ConfigError
from rmqpy.protocol.requests.access import PolicyType, UserInfo, UserStatus, UserType

log = logging.getLogger(__name__)

#: Who was refused what, and who changed users and policies; never with a secret or a body.
audit: Final = logging.getLogger("rmqpy.audit")

#: How often refusals of the native half are written.
AUDIT_SECONDS: Final = 1.0
#: Folders of Apache's tables, beside ours.
_APACHE: Final = ("users", "acls")


class AccessRules:
    """What is checked, of whom, and by which policies."""

    def __init__(self, config: AccessConfig, cluster: str, folder: Path, clock: Clock) -> None:
        self._config = config
        self._cluster = cluster
        self._folder = folder
        self.users = Users(folder / "users.json", clock)
        self.policies = Policies(folder / "acls.json", clock)
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
        if config.inner_user is not None:
            await self._make(config.inner_user)
        if config.authenticates:
            supers = sorted(name for name, user in self.users.table.items() if is_super(user))
            log.info("super users: %s", ", ".join(supers) or "none")
            if not supers:
                log.warning(
                    "there is no super user, so that nobody can administer this broker: set initAuthenticationUser"
                )

    async def _make(self, secret: Secret) -> None:
        user = UserInfo(
            username=secret.name,
            password=secret.secret,
            user_type=UserType.Super.name,
            user_status=UserStatus.enable.name,
        )
        await self.users.put(user)

    def follow(self, server: Server) -> None:
        """Publish the rules to a server, now and with each change."""
        self._server = server
        self.users.on_change = self.policies.on_change = self._publish
        self._publish()

    def _publish(self) -> None:
        if self._server is None or not self._config.is_on:
            return
        acls = self.policies.table
        self._server.set_access(
            authenticates=self._config.authenticates,
            authorizes=self._config.authorizes,
            unsigned_codes=set(self._config.codes_unsigned),
            unguarded_codes=set(self._config.codes_unguarded),
            cluster=self._cluster,
            users=[
                (
                    name,
                    user.password or "",
                    is_super(user),
                    is_enabled(user),
                    rows(acl := acls.get(SUBJECT_PREFIX + name), PolicyType.Custom),
                    rows(acl, PolicyType.Default),
                )
                for name, user in self.users.table.items()
            ],
        )

    def log_refusals(self) -> None:
        """Write what was refused since the last call."""
        if self._server is None or not self._config.is_on:
            return
        refusals, more = self._server.take_refusals()
        for code, peer, sentence in refusals:
            audit.warning("refused request %d from %s: %s", code, peer, sentence)
        if more:
            audit.warning("refused %d more requests", more)
