"""Peers that sign requests, by the protocol's description and with Python's HMAC."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqpy.protocol.requests.access import AclInfo, CreateAcl, CreateUser, Policy, PolicyEntry, UserInfo
from wire import Peer


def signature(secret: str, ext: Mapping[str, str], body: bytes) -> str:
    """Base64 of the HMAC-SHA1 over the values in the order of their names, and the body."""
    content = "".join(value for name, value in sorted(ext.items()) if name != "Signature").encode() + body
    return base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()


@dataclass
class SignedPeer(Peer):
    """A connection whose requests are signed by a user, if one is given."""

    user: str = ""
    secret: str = ""

    async def send(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", **changes: Any
    ) -> int:
        if self.user:
            ext = {**(ext or {}), "AccessKey": self.user}
            ext["Signature"] = signature(self.secret, ext, body)
        return await super().send(code, ext, body, **changes)


async def signed(address: str, user: str = "", secret: str = "", **options: Any) -> SignedPeer:
    """A connection of this user."""
    peer = await SignedPeer.connect(address, **options)
    peer.user, peer.secret = user, secret or f"{user}-secret"
    return peer


async def add_user(root: Peer, name: str, *entries: PolicyEntry, kind: str = "Normal") -> None:
    """Have a super user create a user with these policies."""
    await root.ask(CreateUser(username=name, body=UserInfo(password=f"{name}-secret", user_type=kind)))
    if entries:
        await allow(root, name, *entries)


async def allow(root: Peer, name: str, *entries: PolicyEntry) -> None:
    """Add these entries to a user's policies."""
    subject = f"User:{name}"
    policy = Policy(policy_type="Custom", entries=list(entries))
    await root.ask(CreateAcl(subject=subject, body=AclInfo(subject=subject, policies=[policy])))


def entry(
    resource: str, *actions: str, decision: str = "Allow", sources: tuple[str, ...] = ()
) -> PolicyEntry:
    """One entry."""
    return PolicyEntry(resource=resource, actions=list(actions), source_ips=list(sources), decision=decision)
