"""Endpoints for users and policies: list, create, change, delete, check."""

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
    """List users of every broker, without secrets."""
    return await admin.users()


@change("POST", "/users")
async def create_user(admin: AsyncAdmin, user: Name, secret: Name, is_super: bool = False) -> list[str]:
    """Create a user on every broker. Returns their names."""
    return await admin.create_user(user, secret, is_super=is_super)


@change("POST", "/users/{user}")
async def update_user(
    admin: AsyncAdmin,
    user: str,
    secret: Name | None = None,
    is_super: bool | None = None,
    is_enabled: bool | None = None,
) -> list[str]:
    """Change the given fields of a user on every broker. Returns their names."""
    return await admin.update_user(user, secret=secret, is_super=is_super, is_enabled=is_enabled)


@change("DELETE", "/users/{user}")
async def delete_user(admin: AsyncAdmin, user: str) -> list[str]:
    """Delete a user and its policies on every broker. Returns their names."""
    return await admin.delete_user(user)


@rows("/rules", sort="user")
async def rules(admin: AsyncAdmin) -> list[AccessRule]:
    """List every entry of every user's policies, on every broker."""
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
    """Set a user's entry for a resource on every broker, replacing the previous one. Returns their names."""
    return await admin.set_rule(user, resource, actions, decision=decision, sources=sources or ())


@change("DELETE", "/rules")
async def delete_rule(admin: AsyncAdmin, user: Name, resource: Name) -> list[str]:
    """Delete a user's entry for a resource on every broker. Returns their names."""
    return await admin.delete_rule(user, resource)


@value("/access/check")
async def check_access(
    admin: AsyncAdmin, user: str, action: str, resource: str, source: str = "127.0.0.1"
) -> list[AccessAnswer]:
    """Check whether a user may act from an address, on every broker, and by which entry."""
    return await admin.check_access(user, action, resource, source)
