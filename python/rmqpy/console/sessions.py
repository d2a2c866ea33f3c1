"""Login sessions: the user of each visitor, and connections to the cluster in that user's name.

A session signs requests with the secret of a user of the cluster's access control, so brokers authorize them as for any
other client. A cluster without authentication has no logins. Owns the sessions, bounded in number and time. Threads:
only that of HTTP.
"""

import asyncio
import dataclasses
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rmqpy.admin.client import AsyncAdmin
from rmqpy.config.addresses import is_loopback
from rmqpy.config.client import ClientConfig, Credentials
from rmqpy.errors import AuthError, ConnectError, FlowControl, RequestTimeout

#: The most sessions, and of one user. Beyond that the longest unused session ends: of the same user or, if all are
#: taken, of the user with the most.
SESSIONS_MAX: Final = 64
SESSIONS_PER_USER: Final = 8
#: Seconds until an unused session ends, and its longest life.
IDLE_S: Final = 30 * 60.0
LIFE_S: Final = 12 * 3600.0
#: Seconds until the rights of a session are checked again.
RIGHTS_S: Final = 30.0
#: Concurrent logins as one user from one address, from one remote address, in all; and the seconds that a failed one
#: takes. More are refused instead of queued, so failed logins never delay valid ones.
LOGINS_PER_USER: Final = 4
LOGINS_PER_PEER: Final = 32
LOGINS_MAX: Final = 64
WRONG_S: Final = 1.0
#: Seconds for which it is remembered that brokers refuse unsigned requests.
_REFUSES_S: Final = 60.0
_TOKEN_BYTES: Final = 32


class TooManyLogins(FlowControl):
    """Too many logins are in progress."""


#: Whether a session is open, and whether its user is a super user.
Rights = tuple[bool, bool]


@dataclasses.dataclass(eq=False)
class Visitor:
    """A user of the console."""

    admin: AsyncAdmin
    #: None for a local user without a login.
    user: str | None = None
    is_super: bool = False
    began: float = 0.0
    used: float = 0.0
    #: When brokers were asked for the rights; held while they are.
    asked: float = 0.0
    asking: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    is_open: bool = True

    @property
    def rights(self) -> Rights:
        return self.is_open, self.is_super


class Sessions:
    """Visitors by the secret in their cookie."""

    def __init__(self, config: ClientConfig, now: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._now = now
        self._visitors: dict[str, Visitor] = {}
        self._logins: Counter[tuple[str, str]] = Counter()
        self._refused_at: dict[str, float] = {}

    async def find(self, token: str | None) -> Visitor | None:
        """The visitor of an open session."""
        await self._drop_old()
        visitor = self._visitors.get(token or "")
        if visitor is None:
            return None
        visitor.used = self._now()
        await self.renew(visitor)
        return visitor if visitor.is_open else None

    async def renew(self, visitor: Visitor) -> None:
        """Ask brokers for the rights of a session, unless asked recently. Ends the session of a user that none of them
        knows any more; a user that is not shown to be a super user is not treated as one."""
        async with visitor.asking:
            now = self._now()
            if now - visitor.began > LIFE_S:
                await self._end(visitor)
            if not visitor.is_open or now - visitor.asked < RIGHTS_S:
                return
            visitor.asked = now
            try:
                answers = await visitor.admin.authentication()
                known = {each.broker for each in answers if each.refusal is None}
                is_super = bool(known) and await _is_super(visitor.admin, visitor.user or "", known)
            except (ConnectError, RequestTimeout):
                answers, known, is_super = [], set(), False
            visitor.is_super = is_super
            if answers and not known:
                await self._end(visitor)

    async def log_in(self, user: str, secret: str, *, peer: str = "") -> tuple[str, Visitor]:
        """Return a new session's secret and its visitor. Raises `AuthError` for credentials that brokers do not
        accept, and for a cluster without authentication; `ConnectError` if no broker answers; `TooManyLogins` if too
        many are in progress."""
        with self._tried(peer, user):
            admin = AsyncAdmin(dataclasses.replace(self._config, credentials=Credentials(user, secret)))
            await admin.__aenter__()
            try:
                brokers = await self._known_at(admin)
                is_super = await _is_super(admin, user, brokers)
            except BaseException:
                await admin.close()
                raise
        await self._drop_old()
        await self._make_room(user)
        now = self._now()
        token, visitor = secrets.token_urlsafe(_TOKEN_BYTES), Visitor(admin, user, is_super, now, now, now)
        self._visitors[token] = visitor
        return token, visitor

    async def log_out(self, token: str | None) -> Visitor | None:
        """End a session and return its user, or None if it does not exist."""
        visitor = self._visitors.pop(token or "", None)
        if visitor is not None:
            visitor.is_open = False
            await visitor.admin.close()
        return visitor

    async def _end(self, visitor: Visitor) -> None:
        for token in [token for token, each in self._visitors.items() if each is visitor]:
            await self.log_out(token)

    async def _make_room(self, user: str) -> None:
        """End sessions until the user may have one more."""
        while (own := self._of(user)) >= SESSIONS_PER_USER or len(self._visitors) >= SESSIONS_MAX:
            is_own = own >= SESSIONS_PER_USER
            most = max(self._of(each.user) for each in self._visitors.values())
            chosen = [
                token
                for token, each in self._visitors.items()
                if (each.user == user if is_own else self._of(each.user) == most)
            ]
            await self.log_out(min(chosen, key=lambda each: self._visitors[each].used))

    def _of(self, user: str | None) -> int:
        return sum(each.user == user for each in self._visitors.values())

    @contextmanager
    def _tried(self, peer: str, user: str) -> Iterator[None]:
        """Count a login while it is in progress."""
        of_peer = sum(count for (each, _), count in self._logins.items() if each == peer)
        is_full = (
            self._logins[peer, user] >= LOGINS_PER_USER
            or (of_peer >= LOGINS_PER_PEER and not is_loopback(peer))
            or self._logins.total() >= LOGINS_MAX
        )
        if is_full:
            raise TooManyLogins("too many logins are in progress", hint="try again in a second")
        self._logins[peer, user] += 1
        try:
            yield
        finally:
            self._logins[peer, user] -= 1
            if not self._logins[peer, user]:
                del self._logins[peer, user]

    async def close(self) -> None:
        """End all sessions."""
        for token in list(self._visitors):
            await self.log_out(token)

    @property
    def _unknown(self) -> Credentials | None:
        """The user that every broker with authentication refuses. The console's certificate may stand for a user, and
        unsigned requests would then be that user's."""
        tls = self._config.tls
        is_anonymous = tls is None or tls.cert is None
        return None if is_anonymous else Credentials("unknown-user", secrets.token_urlsafe(_TOKEN_BYTES))

    async def _drop_old(self) -> None:
        now = self._now()
        for token, each in list(self._visitors.items()):
            if now - each.used > IDLE_S or now - each.began > LIFE_S:
                await self.log_out(token)

    async def _known_at(self, admin: AsyncAdmin) -> set[str]:
        """Brokers that accept the user of this admin and refuse unknown ones."""
        answers = await admin.authentication()
        if not answers:
            raise ConnectError("no broker with authentication answers")
        known = {each.broker for each in answers if each.refusal is None}
        if not known:
            await asyncio.sleep(WRONG_S)
            raise AuthError(answers[0].refusal or "", hint="check the name and the secret")
        now = self._now()
        if any(now - self._refused_at.get(each, -_REFUSES_S) >= _REFUSES_S for each in known):
            async with AsyncAdmin(dataclasses.replace(self._config, credentials=self._unknown)) as stranger:
                refused = {
                    each.broker for each in await stranger.authentication() if each.refusal is not None
                }
            if unguarded := known - refused:
                raise AuthError(
                    f"the broker {min(unguarded)} has no authentication, so logins cannot be verified",
                    hint="set authenticationEnabled=true on every broker",
                )
            self._refused_at.update(dict.fromkeys(known, now))
        return known


async def _is_super(admin: AsyncAdmin, user: str, brokers: set[str]) -> bool:
    """Whether all of these brokers know it as a super user; others may not ask."""
    try:
        found = [each for each in await admin.users() if each.name == user and each.broker in brokers]
    except AuthError:
        return False
    return bool(found) and all(each.is_super for each in found)
