"""Accounts of ACL 1.0: the requests of tools of releases up to 5.3.2."""

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, reply, request


@request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, needs=cluster(Action.UPDATE))
class UpdateAccount(Request[None]):
    """Add an account, or change its given fields. Permissions are separated by commas: `NAME=PUB|SUB`."""

    access_key: str = ""
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


@request(RequestCode.DELETE_ACL_CONFIG, needs=cluster(Action.UPDATE))
class DeleteAccount(Request[None]):
    """Remove an account."""

    access_key: str = ""


@reply
class AccountVersions:
    """Version of the account file, and of all of them by path, as JSON."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str


@request(RequestCode.GET_BROKER_CLUSTER_ACL_INFO, needs=cluster(Action.GET))
class GetAccountVersions(Request[AccountVersions]):
    """The number of changes of the account files."""


@request(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, needs=cluster(Action.UPDATE))
class UpdateWhiteAddresses(Request[None]):
    """Replace a file's white list by these addresses, separated by commas."""

    global_white_addrs: str = ""
    acl_file_full_path: str | None = None
