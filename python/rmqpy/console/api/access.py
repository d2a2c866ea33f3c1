"""Access: users of the brokers and what they may do; made, changed, removed; what a user may, and by which entry."""

from typing import Annotated, Literal

from rmqpy.admin.access import AccessAnswer, AccessRule, UserState
from rmqpy.admin.client import AsyncAdmin
from rmqpy.console.endpoints import change, rows, value
from rmqpy.console.schema import Chars
from rmqpy.protocol.access import Action

Name = Annotated[str, Chars(255)]
Decision = Literal["Allow", "Deny"]


@rows("/users", sort="name")
async def users(admin: AsyncAdmin) -> list[UserState]:
    """Users of every broker; no secret is told."""
    return await admin.users()


@change("POST", "/users")
async def create_user(admin: AsyncAdmin, user: Name, secret: Name, is_super: bool = False) -> list[str]:
    """Make a user at every broker; the names of these."""
    return await admin.create_user(user, secret, is_super=is_super)


@change("POST", "/users/{user}")
async def update_user(
    admin: AsyncAdmin,
    user: str,
    secret: Name | None = None,
    is_super: bool | None = None,
    is_enabled: bool | None = None,
) -> list[str]:
    """Change what is given of a user at every broker; the names of these."""
    return await admin.update_user(user, secret=secret, is_super=is_super, is_enabled=is_enabled)


@change("DELETE", "/users/{user}")
async def delete_user(admin: AsyncAdmin, user: str) -> list[str]:
    """Remove a user with its rules from every broker; the names of these."""
    return await admin.delete_user(user)


@rows("/rules", sort="user")
async def rules(admin: AsyncAdmin) -> list[AccessRule]:
    """Every entry of every user's policies, at every broker."""
    return await admin.rules()


@change("POST", "/rules")
async def set_rule(
    admin: AsyncAdmin,
    user: Name,
    resource: Name,
    actions: Annotated[list[str], Chars(len(Action))],
    decision: Decision = "Allow",
    sources: Annotated[list[str], Chars(100)] | None = None,
) -> list[str]:
    """Give a user an entry at every broker, in the place of the one on that resource; the names of these."""
    return await admin.set_rule(user, resource, actions, decision=decision, sources=sources or ())


@change("DELETE", "/rules")
async def delete_rule(admin: AsyncAdmin, user: Name, resource: Name) -> list[str]:
    """Take the entry on a resource from a user at every broker; the names of these."""
    return await admin.delete_rule(user, resource)


@value("/access/check")
async def check_access(
    admin: AsyncAdmin, user: str, action: str, resource: str, source: str = "127.0.0.1"
) -> list[AccessAnswer]:
    """Whether a user may do that from an address, at every broker, and by which entry."""
    return await admin.check_access(user, action, resource, source)
