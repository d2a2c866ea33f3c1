"""Administration of consumer groups. On the event loop."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from rmqpy._native import Offsets, Server
from rmqpy.control.groups.offset_file import OffsetFile
from rmqpy.control.groups.table import Groups, fault
from rmqpy.control.plugins.policies import Policies
from rmqpy.control.settings import LiveConfig
from rmqpy.control.statistics.traffic import Statistics
from rmqpy.control.tables import attributes
from rmqpy.control.tables.pagination import page_of, wait_for_change
from rmqpy.control.tables.unserved import unserved_of_group
from rmqpy.plugins import GroupRequest
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.groups import (
    AllSubscriptionGroups,
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroupConfig,
    GetSubscriptionGroupConfig,
    GroupForbidden,
    GroupTable,
    SubscriptionGroup,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateSubscriptionGroupList,
    UpdateAndGetGroupForbidden,
)
from rmqpy.remoting.server import ConnectionClosed, Refused, RequestContext, handles


@dataclass(frozen=True, slots=True, eq=False)
class GroupHandlers:
    """Create, change, delete and list groups."""

    _config: LiveConfig
    _groups: Groups
    _offsets: Offsets
    _offset_file: OffsetFile
    _server: Server
    _statistics: Statistics
    _policies: Policies

    @handles(UpdateAndCreateSubscriptionGroup)
    async def create(self, ask: UpdateAndCreateSubscriptionGroup, context: RequestContext) -> None:
        checked = self._checked(ask.body)
        await self._admit(checked, context)
        await self._groups.put(checked)
        await self._groups.confirm()

    @handles(UpdateAndCreateSubscriptionGroupList)
    async def create_all(self, ask: UpdateAndCreateSubscriptionGroupList, context: RequestContext) -> None:
        checked = [self._checked(group) for group in ask.body.group_config_list]
        for group in checked:
            await self._admit(group, context)
        await self._groups.put(*checked)
        await self._groups.confirm()

    async def _admit(self, group: SubscriptionGroup, context: RequestContext) -> None:
        """Ask the policies about a group. Raises `Refused`."""
        await self._policies.group(
            GroupRequest(
                group.group_name,
                group.retry_max_times,
                is_new=group.group_name not in self._groups.next_table,
                origin="administrator",
                user=context.user,
                address=context.address,
            )
        )

    def _checked(self, wanted: SubscriptionGroup) -> SubscriptionGroup:
        """Return the configuration to store. Raises `Refused`."""
        if reason := names.group_fault(wanted.group_name) or fault(wanted):
            raise Refused(ResponseCode.INVALID_PARAMETER, reason)
        known = self._groups.next_table.get(wanted.group_name)
        merged = attributes.apply(
            attributes.GROUP_ATTRIBUTES, None if known is None else known.attributes, wanted.attributes
        )
        checked = dataclasses.replace(wanted, attributes=merged)
        for reason in unserved_of_group(checked):
            raise Refused(ResponseCode.SYSTEM_ERROR, reason)
        return checked

    @handles(DeleteSubscriptionGroup)
    async def delete(self, ask: DeleteSubscriptionGroup) -> None:
        if ask.group_name == names.TRANSACTION_GROUP:
            raise Refused(ResponseCode.NO_PERMISSION, f"group [{ask.group_name}] is the broker's own")
        await self._groups.remove(ask.group_name)
        self._statistics.forget_group(ask.group_name)
        if ask.clean_offset:
            self._offsets.remove_group(ask.group_name)
            await self._offset_file.save()
        # Heartbeats of remaining members must reach Python, to create the group again if first use may.
        self._server.forget_heartbeats()
        await self._groups.confirm()

    @handles(GetAllSubscriptionGroupConfig)
    async def all(self, ask: GetAllSubscriptionGroupConfig, context: RequestContext) -> AllSubscriptionGroups:
        await wait_for_change(
            self._groups, context.connection, ask.slave_id, ask.data_version, ask.wait_millis
        )
        table, version = self._groups.table, self._groups.version
        page = page_of(table, ask.group_seq, ask.max_group_num, ask.data_version, version, self._config.now)
        return AllSubscriptionGroups(
            total_group_num=len(table),
            can_wait=True,
            body=GroupTable(
                data_version=version,
                subscription_group_table=page,
                forbidden_table={
                    group: dict(topics) for group, topics in self._groups.forbidden.items() if group in page
                },
            ),
        )

    @handles(ConnectionClosed)
    def closed(self, event: ConnectionClosed) -> None:
        self._groups.forget(event.connection)

    @handles(GetSubscriptionGroupConfig)
    async def config(self, ask: GetSubscriptionGroupConfig) -> SubscriptionGroup:
        group = await self._groups.ensure(ask.group, self._config.now)
        if group is None:
            remark = f"No group in this broker. group: {ask.group}"
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return group

    @handles(UpdateAndGetGroupForbidden)
    async def forbidden(self, ask: UpdateAndGetGroupForbidden) -> GroupForbidden:
        if ask.readable is not None:
            self._groups.existing(ask.group)
            if reason := names.topic_fault(ask.topic):
                raise Refused(ResponseCode.INVALID_PARAMETER, reason)
            await self._groups.set_readable(ask.group, ask.topic, ask.readable)
            await self._groups.confirm()
        return GroupForbidden(
            group=ask.group,
            topic=ask.topic,
            readable=self._groups.is_readable(ask.group, ask.topic),
        )
