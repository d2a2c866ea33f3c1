"""Users and policies of brokers, and of name servers with access control. Each server has its own tables; a change
goes to all of them."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from rmqpy._native import decide
from rmqpy.admin.connection import Part
from rmqpy.errors import AuthError, ConfigError, ConnectError, RequestTimeout
from rmqpy.protocol import plain_acl
from rmqpy.protocol.access import Action, ResourceKind
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import Request
from rmqpy.protocol.plain_acl import PlainAccount
from rmqpy.protocol.requests.access import (
    AclInfo,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    Policy,
    PolicyEntry,
    PolicyType,
    UpdateUser,
    UserInfo,
)
from rmqpy.protocol.requests.clients import UnregisterClient


class UserState(NamedTuple):
    """One user on one broker."""

    broker: str
    name: str
    is_super: bool
    is_enabled: bool


class AccessRule(NamedTuple):
    """One entry of a user's policies on one broker."""

    broker: str
    user: str
    kind: str
    resource: str
    actions: list[str]
    sources: list[str]
    decision: str


class AccessAnswer(NamedTuple):
    """Decision of a broker about a request, and the deciding entry."""

    broker: str
    is_allowed: bool
    rule: str


class Authentication(NamedTuple):
    """Whether a broker accepts the user of our requests."""

    broker: str
    #: The reason for a refusal; None if accepted, as by every broker without access control.
    refusal: str | None


class MigratedAccount(NamedTuple):
    """An account of ACL 1.0 on one broker, and whether it was converted to a user: not if the name exists."""

    broker: str
    user: str
    is_super: bool
    entries: int
    is_made: bool


class Access(Part):
    """Users and policies of one cluster."""

    async def authentication(self) -> list[Authentication]:
        """Ask every reachable master whether it accepts our user, which requires no permission."""
        found = []
        for name, address in await self._brokers(None):
            try:
                # Without a group: there is nothing to leave, so no permission is needed.
                await self._cluster.ask(address, UnregisterClient(client_id="authentication"))
            except AuthError as error:
                found.append(Authentication(name, str(error)))
            except (ConnectError, RequestTimeout):
                continue
            else:
                found.append(Authentication(name, None))
        return found

    async def users(self, broker: str | None = None) -> list[UserState]:
        """List all users of one broker or all."""
        return [
            UserState(name, user.username or "", user.user_type == "Super", user.user_status == "enable")
            for name, _, reply in await self._cluster.ask_each(await self._of(broker), ListUsers())
            for user in reply.body or ()
        ]

    async def create_user(
        self, name: str, secret: str, *, is_super: bool = False, broker: str | None = None
    ) -> list[str]:
        """Create a user on one broker or all. Returns their names."""
        user = UserInfo(username=name, password=secret, user_type="Super" if is_super else "Normal")
        return await self._each(broker, CreateUser(username=name, body=user))

    async def update_user(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """Change the given fields of a user on one broker or all. Returns their names."""
        user = UserInfo(
            username=name,
            password=secret,
            user_type=None if is_super is None else "Super" if is_super else "Normal",
            user_status=None if is_enabled is None else "enable" if is_enabled else "disable",
        )
        return await self._each(broker, UpdateUser(username=name, body=user))

    async def delete_user(self, name: str, *, broker: str | None = None) -> list[str]:
        """Delete a user and its policies on one broker or all. Returns their names."""
        return await self._each(broker, DeleteUser(username=name))

    async def rules(self, broker: str | None = None) -> list[AccessRule]:
        """List all entries of all policies on one broker or all."""
        return [
            rule
            for name, _, reply in await self._cluster.ask_each(await self._of(broker), ListAcls())
            for acl in reply.body or ()
            for rule in rules_of(name, acl)
        ]

    async def set_rule(
        self,
        user: str,
        resource: str,
        actions: Sequence[str],
        *,
        decision: str = "Allow",
        sources: Sequence[str] = (),
        kind: str = PolicyType.Custom.name,
        broker: str | None = None,
    ) -> list[str]:
        """Set a user's entry for a resource, replacing the previous one, on one broker or all. Returns their names."""
        entry = PolicyEntry(
            resource=resource, actions=list(actions), source_ips=list(sources), decision=decision
        )
        subject = f"User:{user}"
        acl = AclInfo(subject=subject, policies=[Policy(policy_type=kind, entries=[entry])])
        return await self._each(broker, CreateAcl(subject=subject, body=acl))

    async def delete_rule(
        self,
        user: str,
        resource: str | None = None,
        *,
        kind: str = PolicyType.Custom.name,
        broker: str | None = None,
    ) -> list[str]:
        """Delete a user's entry for a resource, or all entries, on one broker or all. Returns their names."""
        return await self._each(
            broker, DeleteAcl(subject=f"User:{user}", policy_type=kind, resource=resource)
        )

    async def check(
        self, user: str, action: str, resource: str, source: str, *, broker: str | None = None
    ) -> list[AccessAnswer]:
        """Check whether a user may act from an address, on one broker or all, and by which entry."""
        kind, name = _asked(action, resource, source)
        answers = []
        for each, address in await self._brokers(broker):
            found = (await self._cluster.ask(address, GetUser(username=user))).body
            if found is None or found.user_status != "enable":
                answers.append(AccessAnswer(each, False, "no such user" if found is None else "disabled"))
                continue
            if found.user_type == "Super":
                answers.append(AccessAnswer(each, True, "super user"))
                continue
            acl = (await self._cluster.ask(address, GetAcl(subject=f"User:{user}"))).body
            custom, default = (_rows(acl, kind.name) for kind in (PolicyType.Custom, PolicyType.Default))
            is_allowed, rule = decide(custom, default, (kind, name, [action]), source)
            answers.append(AccessAnswer(each, is_allowed, rule or "no policy allows it"))
        return answers

    async def migrate(
        self, accounts: Iterable[PlainAccount], *, broker: str | None = None
    ) -> list[MigratedAccount]:
        """Convert accounts of ACL 1.0, as parsed by `rmqpy.protocol.plain_acl.read`, to users with policies on one
        broker or all. Existing users stay unchanged."""
        found, accounts = [], list(accounts)
        for name, address in await self._of(broker, is_change=True):
            known = {user.username for user in (await self._cluster.ask(address, ListUsers())).body or ()}
            for account in accounts:
                user, acl = plain_acl.user_of(account), plain_acl.acl_of(account)
                is_made = user.username not in known
                if is_made:
                    key = account.access_key
                    await self._cluster.ask(address, CreateUser(username=key, body=user))
                    if acl is not None:
                        await self._cluster.ask(address, CreateAcl(subject=f"User:{key}", body=acl))
                entries = len(rules_of(name, acl)) if acl is not None else 0
                found.append(
                    MigratedAccount(name, account.access_key, account.may_everything, entries, is_made)
                )
        return found

    async def servers(self) -> list[tuple[str, str]]:
        """Return name and address of every server that has users."""
        return await self._of(None, is_change=True)

    async def _brokers(self, broker: str | None, *, is_change: bool = False) -> list[tuple[str, str]]:
        if broker is not None:
            return [(broker, await self._cluster.master_of(broker))]
        return sorted((await self._cluster.masters(is_change=is_change)).items())

    async def _of(self, broker: str | None, *, is_change: bool = False) -> list[tuple[str, str]]:
        """The servers with users, or one broker."""
        brokers = await self._brokers(broker, is_change=is_change)
        return brokers if broker is not None else brokers + await self._name_servers()

    async def _name_servers(self) -> list[tuple[str, str]]:
        """Name servers with access control, which have their own tables."""
        found = []
        for address in self._cluster.name_servers.addresses:
            name = f"namesrv {address}"
            with self._cluster.may_miss(name):
                asked = await self._cluster.ask_unless(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED, address, ListUsers()
                )
                if asked is not None:
                    found.append((name, address))
        return found

    async def _each(self, broker: str | None, ask: Request[None]) -> list[str]:
        found = await self._of(broker, is_change=True)
        for _, address in found:
            await self._cluster.ask(address, ask)
        return [name for name, _ in found]


def _asked(action: str, resource: str, source: str) -> tuple[str, str]:
    """Return kind and name of a resource. Raises `ConfigError` for an invalid question."""
    kind, _, name = resource.partition(":")
    actions, kinds = (list(map(str, each)) for each in (Action, ResourceKind))
    if action.lower() not in map(str.lower, actions):
        raise ConfigError(f"{action!r} is not an action", hint=f"actions are {', '.join(actions)}")
    if kind.lower() not in map(str.lower, kinds) or not name:
        raise ConfigError(
            f"{resource!r} is not a resource",
            hint=f"resources are {', '.join(f'{each}:NAME' for each in kinds)}",
        )
    try:
        ip_address(source)
    except ValueError:
        raise ConfigError(f"{source!r} is not an address", hint="write an address like 10.0.0.7") from None
    return kind, name


def rules_of(broker: str, acl: AclInfo) -> list[AccessRule]:
    return [
        AccessRule(
            broker,
            (acl.subject or "").removeprefix("User:"),
            policy.policy_type or PolicyType.Custom.name,
            entry.resource or "",
            entry.actions or [],
            entry.source_ips or [],
            entry.decision or "",
        )
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]


def _rows(acl: AclInfo | None, kind: str) -> list[tuple[str, list[str], list[str], str]]:
    rules = rules_of("", acl) if acl is not None else []
    return [(rule.resource, rule.actions, rule.sources, rule.decision) for rule in rules if rule.kind == kind]
