"""Administration of users and policies, on the event loop.

Replies never contain secrets, unlike those of Apache's broker.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from rmqpy.control.access import policies as rules_of
from rmqpy.control.access.audit import note_change
from rmqpy.control.access.policies import SUBJECT_PREFIX, Policies, user_of
from rmqpy.control.access.users import USERS_MAX, Users, fault, is_enabled, is_super, name_fault
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.access import (
    AclFound,
    AclInfo,
    AclsFound,
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    Policy,
    UpdateAcl,
    UpdateUser,
    UserFound,
    UserInfo,
    UsersFound,
    UserStatus,
    UserType,
)
from rmqpy.remoting.server import Refused, RequestContext, handles


@dataclass(frozen=True, slots=True, eq=False)
class AccessHandlers:
    """Create, change, delete and list users and their policies."""

    _users: Users
    _policies: Policies

    # ---- users ----

    @handles(CreateUser)
    async def create_user(self, ask: CreateUser, context: RequestContext) -> None:
        given = ask.body or UserInfo()
        user = UserInfo(
            username=ask.username or given.username,
            password=given.password,
            user_type=_named(UserType, given.user_type, UserType.Normal.name),
            user_status=_named(UserStatus, given.user_status, UserStatus.enable.name),
        )
        if reason := fault(user):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        if is_super(user):
            self._check_super(context, "created")
        if user.username in self._users.next_table:
            raise Refused(ResponseCode.NO_PERMISSION, "The user is existed")
        if len(self._users.next_table) >= USERS_MAX:
            raise Refused(ResponseCode.NO_PERMISSION, f"There are {USERS_MAX} users, which is the maximum.")
        await self._users.put(user)
        note_change(context, f"created User:{user.username} ({user.user_type}, {user.user_status})")

    @handles(UpdateUser)
    async def update_user(self, ask: UpdateUser, context: RequestContext) -> None:
        given = ask.body or UserInfo()
        known = self._user(ask.username or given.username or "")
        user = dataclasses.replace(
            known,
            password=given.password if (given.password or "").strip() else known.password,
            user_type=_named(UserType, given.user_type, known.user_type),
            user_status=_named(UserStatus, given.user_status, known.user_status),
        )
        if reason := fault(user):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        if is_super(known) or is_super(user):
            self._check_super(context, "changed")
        if not (is_super(user) and is_enabled(user)):
            self._check_not_last(context, known)
        await self._users.put(user)
        secret = ", new secret" if user.password != known.password else ""
        note_change(context, f"changed User:{user.username} ({user.user_type}, {user.user_status}{secret})")

    @handles(DeleteUser)
    async def delete_user(self, ask: DeleteUser, context: RequestContext) -> None:
        if reason := name_fault(ask.username):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        known = self._users.next_table.get(ask.username)
        if known is not None and is_super(known):
            self._check_super(context, "deleted")
            self._check_not_last(context, known)
        # Policies first, so that a new user of that name cannot inherit them.
        await self._policies.remove(SUBJECT_PREFIX + ask.username)
        if await self._users.remove(ask.username):
            note_change(context, f"deleted User:{ask.username}")

    @handles(GetUser)
    def get_user(self, ask: GetUser) -> UserFound:
        if reason := name_fault(ask.username):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        user = self._users.table.get(ask.username)
        return UserFound(body=None if user is None else _shown(user))

    @handles(ListUsers)
    def list_users(self, ask: ListUsers) -> UsersFound:
        found = [
            _shown(user) for name, user in sorted(self._users.table.items()) if (ask.filter or "") in name
        ]
        return UsersFound(body=found or None)

    def _user(self, name: str) -> UserInfo:
        if reason := name_fault(name):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        user = self._users.next_table.get(name)
        if user is None:
            raise Refused(ResponseCode.NO_PERMISSION, "The user is not exist")
        return user

    def _check_super(self, context: RequestContext, what: str) -> None:
        """Raise `Refused` unless the sender is a super user, or requests are not authenticated."""
        if context.user is None and not context.is_guarded:
            return
        asking = self._users.table.get(context.user or "")
        if asking is None or not is_super(asking):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The super user can only be {what} by super user.")

    def _check_not_last(self, context: RequestContext, user: UserInfo) -> None:
        """Raise `Refused` if this is the last enabled super user while all requests are checked: no other one could be
        created."""
        if context.user is None and not context.is_guarded:
            return
        table = self._users.next_table
        supers = [name for name, each in table.items() if is_super(each) and is_enabled(each)]
        if supers == [user.username]:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"User:{user.username} is the last enabled super user: create another one first.",
            )

    # ---- policies ----

    @handles(CreateAcl)
    async def create_acl(self, ask: CreateAcl, context: RequestContext) -> None:
        await self._put(ask.subject, ask.body, context)

    @handles(UpdateAcl)
    async def update_acl(self, ask: UpdateAcl, context: RequestContext) -> None:
        await self._put(ask.subject, ask.body, context)

    async def _put(self, subject: str, given: AclInfo | None, context: RequestContext) -> None:
        if given is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The body of acl is null.")
        name = self._subject(subject or given.subject or "")
        try:
            added = rules_of.checked(given.policies)
            acl = rules_of.merge(self._policies.next_table.get(name), added, name)
        except ValueError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        await self._policies.put(acl)
        note_change(context, f"changed the policies of {name}: {_text(added)}")

    @handles(DeleteAcl)
    async def delete_acl(self, ask: DeleteAcl, context: RequestContext) -> None:
        name = self._subject(ask.subject)
        known = self._policies.next_table.get(name)
        if known is None:
            raise Refused(ResponseCode.NO_PERMISSION, "The acl is not exist.")
        try:
            left = rules_of.without(known, ask.policy_type, ask.resource) if ask.resource else None
        except ValueError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if left is None:
            await self._policies.remove(name)
        else:
            await self._policies.put(left)
        note_change(context, f"deleted policies of {name} on {ask.resource or 'everything'}")

    @handles(GetAcl)
    def get_acl(self, ask: GetAcl) -> AclFound:
        return AclFound(body=self._policies.table.get(self._subject(ask.subject)))

    @handles(ListAcls)
    def list_acls(self, ask: ListAcls) -> AclsFound:
        found = []
        for subject, acl in sorted(self._policies.table.items()):
            if (ask.subject_filter or "") in subject:
                policies = [_on(policy, ask.resource_filter or "") for policy in acl.policies or ()]
                if policies := [policy for policy in policies if policy.entries]:
                    found.append(dataclasses.replace(acl, policies=policies))
        return AclsFound(body=found or None)

    def _subject(self, subject: str) -> str:
        """Return the stored form of a subject. Raises `Refused` without a subject."""
        name = user_of(subject)
        if name is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, "The subject is a user: User:NAME.")
        if name not in self._users.next_table:
            raise Refused(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        return SUBJECT_PREFIX + name


def _named(kind: type[UserType] | type[UserStatus], given: str | None, otherwise: str | None) -> str | None:
    """Return the enum member of this name, ignoring case. An unknown name is returned unchanged, and refused later."""
    if not given:
        return otherwise
    return next((name for name in kind.__members__ if name.lower() == given.lower()), given)


def _shown(user: UserInfo) -> UserInfo:
    return dataclasses.replace(user, password=None)


def _on(policy: Policy, resource: str) -> Policy:
    entries = [entry for entry in policy.entries or () if resource in (entry.resource or "")]
    return dataclasses.replace(policy, entries=entries)


def _text(policies: list[Policy]) -> str:
    return "; ".join(
        f"{policy.policy_type} {entry.decision} {','.join(entry.actions or ())} on {entry.resource}"
        for policy in policies
        for entry in policy.entries or ()
    )
