"""Logins: who looks at the console, and over which connections they ask the cluster.

A login is one of a user of the cluster's own access control: its requests are signed with that user's secret, so that
brokers decide what it may see and change, as they do for every other client. A cluster that lets everybody in has no
logins. Owns the sessions, of which so many are open, each for so long. Threads: that of HTTP alone.
"""

import asyncio
import dataclasses
import secrets
import time
from collections.abc import Callable
from typing import Final

from rmqpy.admin.client import AsyncAdmin
from rmqpy.config.client import ClientConfig, Credentials
from rmqpy.errors import AuthError, ConnectError

#: Sessions at once: of more the one that was unused longest ends.
SESSIONS_MAX: Final = 64
#: Seconds that a session may be unused, and that it lasts at most.
IDLE_S: Final = 30 * 60.0
LIFE_S: Final = 12 * 3600.0
#: Logins that are tried at once, and seconds that a wrong one takes.
LOGINS_MAX: Final = 4
WRONG_S: Final = 1.0
#: Seconds for which it is remembered that brokers refuse what is not signed.
_REFUSES_S: Final = 60.0
_TOKEN_BYTES: Final = 32


@dataclasses.dataclass(eq=False)
class Visitor:
    """Somebody who looks at the console."""

    admin: AsyncAdmin
    #: None for somebody on this machine who need not say who they are.
    user: str | None = None
    is_super: bool = False
    began: float = 0.0
    used: float = 0.0


class Sessions:
    """Visitors by the secret that their browsers keep."""

    def __init__(self, config: ClientConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._visitors: dict[str, Visitor] = {}
        self._logins = asyncio.Semaphore(LOGINS_MAX)
        self._refused_at: dict[str, float] = {}

    async def find(self, token: str | None) -> Visitor | None:
        """The visitor of a session that is open."""
        await self._drop_old()
        visitor = self._visitors.get(token or "")
        if visitor is not None:
            visitor.used = self._now()
        return visitor

    async def log_in(self, user: str, secret: str) -> tuple[str, Visitor]:
        """A session's secret, and its visitor. Raises `AuthError` for credentials that brokers do not know, and for a
        cluster whose brokers let everybody in; `ConnectError` where none answers."""
        async with self._logins:
            admin = AsyncAdmin(dataclasses.replace(self._config, credentials=Credentials(user, secret)))
            await admin.__aenter__()
            try:
                brokers = await self._known_at(admin)
                is_super = await _is_super(admin, user, brokers)
            except BaseException:
                await admin.close()
                raise
        await self._drop_old()
        while len(self._visitors) >= SESSIONS_MAX:
            await self.log_out(min(self._visitors, key=lambda each: self._visitors[each].used))
        now = self._now()
        token, visitor = secrets.token_urlsafe(_TOKEN_BYTES), Visitor(admin, user, is_super, now, now)
        self._visitors[token] = visitor
        return token, visitor

    async def log_out(self, token: str | None) -> Visitor | None:
        """End a session; who it was of, None where there is none."""
        visitor = self._visitors.pop(token or "", None)
        if visitor is not None:
            await visitor.admin.close()
        return visitor

    async def close(self) -> None:
        """End all sessions."""
        for token in list(self._visitors):
            await self.log_out(token)

    @property
    def _nobody(self) -> Credentials | None:
        """Whom every broker refuses that asks who its clients are. The certificate of the console may be for a user, so
        that what is not signed would be that user's."""
        tls = self._config.tls
        is_anonymous = tls is None or tls.cert is None
        return None if is_anonymous else Credentials("nobody", secrets.token_urlsafe(_TOKEN_BYTES))

    async def _drop_old(self) -> None:
        now = self._now()
        for token, each in list(self._visitors.items()):
            if now - each.used > IDLE_S or now - each.began > LIFE_S:
                await self.log_out(token)

    async def _known_at(self, admin: AsyncAdmin) -> set[str]:
        """Brokers that know the user of this admin, and refuse those whom they do not know."""
        told = await admin.authentication()
        if not told:
            raise ConnectError("no broker answers that could say who you are")
        known = {each.broker for each in told if each.refusal is None}
        if not known:
            await asyncio.sleep(WRONG_S)
            raise AuthError(told[0].refusal or "", hint="look at the name and the secret")
        now = self._now()
        if any(now - self._refused_at.get(each, -_REFUSES_S) >= _REFUSES_S for each in known):
            async with AsyncAdmin(dataclasses.replace(self._config, credentials=self._nobody)) as nobody:
                refused = {each.broker for each in await nobody.authentication() if each.refusal is not None}
            if unguarded := known - refused:
                raise AuthError(
                    f"the broker {min(unguarded)} lets everybody in, so that nobody can log in",
                    hint="set authenticationEnabled=true at every broker",
                )
            self._refused_at.update(dict.fromkeys(known, now))
        return known


async def _is_super(admin: AsyncAdmin, user: str, brokers: set[str]) -> bool:
    """Whether all of these brokers have it as a super user; others may not ask."""
    try:
        found = [each for each in await admin.users() if each.name == user and each.broker in brokers]
    except AuthError:
        return False
    return bool(found) and all(each.is_super for each in found)
