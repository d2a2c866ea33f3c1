"""Users and policies: requests of administrators, and the content of their files.

No reply contains a secret: the member `password` only travels to the broker.
"""

from dataclasses import field
from enum import Enum

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request
from rmqpy.protocol.topics import DataVersion


class UserType(Enum):
    """Rights of a user without policies: all, or none."""

    Super = "Super"
    Normal = "Normal"


class UserStatus(Enum):
    """Whether a user may do anything at all."""

    enable = "enable"
    disable = "disable"


class PolicyType(Enum):
    """Kind of entries: custom ones are checked first, default ones only if no custom one matches."""

    Custom = "Custom"
    Default = "Default"


@record
class UserInfo:
    """One user. In a change, absent members stay unchanged."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


@record
class PolicyEntry:
    """One rule: whether some actions on a resource are allowed, from anywhere or from some addresses."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@record
class Policy:
    """The entries of one type."""

    policy_type: str | None = None
    entries: list[PolicyEntry] | None = None


@record
class AclInfo:
    """All policies of one subject, `User:name`."""

    subject: str | None = None
    policies: list[Policy] | None = None


@record
class UserTable:
    """The content of `users.json`."""

    data_version: DataVersion
    user_table: dict[str, UserInfo] = field(default_factory=dict)


@record
class AclTable:
    """The content of `acls.json`, by subject."""

    data_version: DataVersion
    acl_table: dict[str, AclInfo] = field(default_factory=dict)


@reply
class UserFound:
    """One user; without a body if the name does not exist."""

    body: UserInfo | None = None


@reply
class UsersFound:
    """Some users; without a body if there are none."""

    body: list[UserInfo] | None = None


@reply
class AclFound:
    """The policies of one subject; without a body if it has none."""

    body: AclInfo | None = None


@reply
class AclsFound:
    """Some subjects with their policies; without a body if there are none."""

    body: list[AclInfo] | None = None


@request(RequestCode.AUTH_CREATE_USER, needs=cluster(Action.UPDATE))
class CreateUser(Request[None]):
    """Add a user."""

    username: str = ""
    body: UserInfo | None = None


@request(RequestCode.AUTH_UPDATE_USER, needs=cluster(Action.UPDATE))
class UpdateUser(Request[None]):
    """Change secret, type or status of a user."""

    username: str = ""
    body: UserInfo | None = None


@request(RequestCode.AUTH_DELETE_USER, needs=cluster(Action.UPDATE))
class DeleteUser(Request[None]):
    """Remove a user, and the policies with it."""

    username: str = ""


@request(RequestCode.AUTH_GET_USER, needs=cluster(Action.GET))
class GetUser(Request[UserFound]):
    """One user."""

    username: str = ""


@request(RequestCode.AUTH_LIST_USER, needs=cluster(Action.GET))
class ListUsers(Request[UsersFound]):
    """All users, or those whose names have a text in them."""

    filter: str | None = None


@request(RequestCode.AUTH_CREATE_ACL, needs=cluster(Action.UPDATE))
class CreateAcl(Request[None]):
    """Add entries to the policies of a subject, replacing those of the same resource."""

    subject: str = ""
    body: AclInfo | None = None


@request(RequestCode.AUTH_UPDATE_ACL, needs=cluster(Action.UPDATE))
class UpdateAcl(Request[None]):
    """The same for a subject with policies."""

    subject: str = ""
    body: AclInfo | None = None


@request(RequestCode.AUTH_DELETE_ACL, needs=cluster(Action.UPDATE))
class DeleteAcl(Request[None]):
    """Remove one resource from the policies of a subject, or all of them."""

    subject: str = ""
    policy_type: str | None = None
    resource: str | None = None


@request(RequestCode.AUTH_GET_ACL, needs=cluster(Action.GET))
class GetAcl(Request[AclFound]):
    """The policies of one subject."""

    subject: str = ""


@request(RequestCode.AUTH_LIST_ACL, needs=cluster(Action.GET))
class ListAcls(Request[AclsFound]):
    """The policies of all subjects, or of those whose names have a text in them, on resources that have another."""

    subject_filter: str | None = None
    resource_filter: str | None = None
