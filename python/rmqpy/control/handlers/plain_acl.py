"""Administration of ACL 1.0 accounts, with `aclEnable`. On the event loop; a worker writes files.

Unlike Apache's broker, where every account may change the others, this needs an administrator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.access.audit import note_change
from rmqpy.control.access.plain_files import Edit, PlainFiles
from rmqpy.errors import ConfigError, DecodeError
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.plain_acl import ACCOUNTS_MAX
from rmqpy.protocol.requests.plain_acl import (
    AccountVersions,
    DeleteAccount,
    GetAccountVersions,
    UpdateAccount,
    UpdateWhiteAddresses,
)
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.server import Refused, RequestContext, handles


@dataclass(frozen=True, slots=True, eq=False)
class PlainAclHandlers:
    """Create, change and delete accounts, and set white lists."""

    _files: PlainFiles | None
    _config: Callable[[], BrokerConfig]
    _address: str

    @handles(UpdateAccount)
    async def update(self, ask: UpdateAccount, context: RequestContext) -> None:
        files = self._on()
        if not ask.access_key.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, "The parameter value accessKey is null or blank.")
        known = files.file_of(ask.access_key)
        if known is None and len(files.accounts) >= ACCOUNTS_MAX:
            raise Refused(
                ResponseCode.INVALID_PARAMETER, f"There are {ACCOUNTS_MAX} accounts, which is the maximum."
            )
        given = _members(ask)

        def edit(found: dict[str, Any]) -> None:
            accounts = found["accounts"] = list(found.get("accounts") or ())
            for account in accounts:
                if isinstance(account, dict) and str(account.get("accessKey")) == ask.access_key:
                    account.update(given)
                    return
            accounts.append(given)

        await self._edit(files, edit, known)
        note_change(context, f"{'created' if known is None else 'changed'} the account {ask.access_key}")

    @handles(DeleteAccount)
    async def delete(self, ask: DeleteAccount, context: RequestContext) -> None:
        files = self._on()
        path = files.file_of(ask.access_key)
        if path is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"The account {ask.access_key} does not exist.")

        def edit(found: dict[str, Any]) -> None:
            found["accounts"] = [
                account
                for account in found.get("accounts") or ()
                if not (isinstance(account, dict) and str(account.get("accessKey")) == ask.access_key)
            ]

        await self._edit(files, edit, path)
        note_change(context, f"deleted the account {ask.access_key}")

    @handles(GetAccountVersions)
    def versions(self, ask: GetAccountVersions) -> AccountVersions:
        files, config = self._on(), self._config()
        main = files.versions.get(files.main, DataVersion())
        every = {str(path): json_tree(version) for path, version in files.versions.items()}
        return AccountVersions(
            version=fastjson.dumps(json_tree(main), strict=True),
            all_acl_file_version=fastjson.dumps(every, strict=True),
            broker_name=config.name,
            broker_addr=self._address,
            cluster_name=config.cluster,
        )

    @handles(UpdateWhiteAddresses)
    async def update_white_addresses(self, ask: UpdateWhiteAddresses, context: RequestContext) -> None:
        files = self._on()
        path = files.known(ask.acl_file_full_path) if ask.acl_file_full_path else files.main
        if path is None:
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{ask.acl_file_full_path} is not an account file.")
        addresses = [each.strip() for each in ask.global_white_addrs.split(",") if each.strip()]

        def edit(found: dict[str, Any]) -> None:
            found["globalWhiteRemoteAddresses"] = addresses

        await self._edit(files, edit, path)
        note_change(context, f"set the white list of {path} to {', '.join(addresses) or 'nothing'}")

    def _on(self) -> PlainFiles:
        if self._files is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "aclEnable is off: users and policies are administered instead, by rmqpy acl or mqadmin createUser",
            )
        return self._files

    @staticmethod
    async def _edit(files: PlainFiles, edit: Edit, path: Path | None) -> None:
        try:
            await files.edit(edit, path)
        except (DecodeError, ConfigError) as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None


def _members(ask: UpdateAccount) -> dict[str, Any]:
    """Return the given settings in the form of the file."""
    given: dict[str, Any] = {"accessKey": ask.access_key}
    for name, value in (
        ("secretKey", ask.secret_key),
        ("whiteRemoteAddress", ask.white_remote_address),
        ("admin", ask.admin),
        ("defaultTopicPerm", ask.default_topic_perm),
        ("defaultGroupPerm", ask.default_group_perm),
    ):
        if value is not None:
            given[name] = value
    for name, listed in (("topicPerms", ask.topic_perms), ("groupPerms", ask.group_perms)):
        if listed:
            given[name] = [each.strip() for each in listed.split(",") if each.strip()]
    return given
