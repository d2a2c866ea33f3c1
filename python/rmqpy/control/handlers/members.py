"""Requests between brokers of one name: a returning master, or another smallest id. On the event loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqpy.control.access.rules import AccessRules
from rmqpy.control.identity import Identity
from rmqpy.control.replicas.acting import ActingMaster
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.members import Members
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.store.backups import Backups
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.registration import NotifyMinBrokerIdChange, Registered
from rmqpy.protocol.requests.replicas import BrokerHaInfo, ExchangeBrokerHaInfo
from rmqpy.remoting.server import Refused, RequestContext, handles


@dataclass(frozen=True, slots=True, eq=False)
class MemberHandlers:
    """Notifications of brokers of this name, and of name servers."""

    _role: BrokerRole
    _master: KnownMaster
    #: `None` if no slave acts for its master.
    _members: Members | None
    _acting: ActingMaster | None
    _identity: Callable[[], Identity]
    _log_end: Callable[[], int]
    _stream: LogStream
    _access: AccessRules
    _backups: Backups

    @handles(ExchangeBrokerHaInfo)
    async def exchange(self, ask: ExchangeBrokerHaInfo, context: RequestContext) -> BrokerHaInfo:
        """Stop acting for a returning master, and reply when its log can be followed."""
        if not self._role.is_slave:
            own, is_observer = self._identity(), bool(ask.is_observer)
            ticket = self._ticket(context, ask.slave_id, is_observer) if ask.wants_ticket else None
            if is_observer and ask.observer_name:
                await self._note_backup(context, ask.observer_name, ask.observer_end)
            return BrokerHaInfo(
                master_ha_address=own.replica_address,
                master_flush_offset=self._log_end(),
                master_address=own.address,
                ticket=ticket,
                is_observer=is_observer or None,
            )
        if ask.master_ha_address is None:
            return BrokerHaInfo()
        if self._acting is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "this slave does not act for its master and finds it without help: enableSlaveActingMaster=false",
            )
        await self._acting.master_comes()
        self._master.learn(Registered(master_addr=ask.master_address, ha_server_addr=ask.master_ha_address))
        return BrokerHaInfo()

    def _ticket(self, context: RequestContext, slave_id: int | None, is_observer: bool) -> str:
        """Return a ticket for the whole log, independent of topic policies, whose holder counts as a copy for
        replies unless it is an observer."""
        self._check_right(context)
        return self._stream.ticket(slave_id, is_observer=is_observer).hex()

    async def _note_backup(self, context: RequestContext, name: str, log_end: int | None) -> None:
        """Note the begin of a run, or its end with the end of its log."""
        self._check_right(context)
        if log_end is None:
            await self._backups.began(name, context.address)
        else:
            await self._backups.ended(name, log_end)

    def _check_right(self, context: RequestContext) -> None:
        """Raise `Refused` if the sender may not copy the log."""
        if self._access.is_on and not self._access.is_super(context.user):
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"{context.user or 'an unknown user'} is not a super user, and only super users may copy the log: "
                "see innerClientAuthenticationCredentials of the slave",
            )

    @handles(NotifyMinBrokerIdChange)
    def changed(self, ask: NotifyMinBrokerIdChange) -> None:
        """Query the name servers, independent of the sender."""
        if self._members is not None:
            self._members.wake()
