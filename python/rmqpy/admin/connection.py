"""Connection of the administration to a cluster: one caller, its name servers, and the time one answer may take.

Owns nothing that has to be closed. Every request of `rmqpy.admin` goes through `AdminConnection.ask`, the one place
where an advertised address is replaced by the one to connect to. Threads: those of the caller.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeVar

from rmqpy._native import Call
from rmqpy.config.client import ClientConfig
from rmqpy.errors import ConfigError, ConnectError, RequestTimeout, RocketMQError
from rmqpy.findings import Finding, headless
from rmqpy.protocol.declare import Request
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.routes import MASTER_ID, BrokerData, ClusterInfo, GetClusterInfo, TopicRoute
from rmqpy.remoting.client import Caller, check_transport
from rmqpy.remoting.nameservers import NameServers

R = TypeVar("R")

#: Where brokers may be missing: so long are those waited for that have not answered when others have.
_LATE_AFTER_S: Final = 0.3
#: So long is a broker that was found silent not asked again there.
_SILENT_S: Final = 5.0


class Missing(NamedTuple):
    """A broker whose part of a list is missing, and why."""

    broker: str
    fault: str


#: Where it is set, a broker that is away is noted here and left out of lists; where it is not, it is an error.
MISSING: Final[ContextVar[list[Missing]]] = ContextVar("MISSING")


def note_missing() -> list[Missing]:
    """Leave out brokers that are away from what this task asks from now on; those that were."""
    missing: list[Missing] = []
    MISSING.set(missing)
    return missing


class AdminConnection:
    """A cluster, as far as it is needed to ask its servers."""

    def __init__(self, caller: Caller, config: ClientConfig) -> None:
        self.caller = caller
        self.timeout = config.request_timeout
        #: How connections are encrypted; None where they are not.
        self.tls = config.tls
        self.name_servers = NameServers(config.namesrv, timeout=self.timeout, unit=config.unit)
        self._addresses = dict(config.address_map)
        #: Names of brokers that were left out of what was asked, for they have no master.
        self.left_out: set[str] = set()
        #: Brokers that were silent where they may be missing: address → until when that counts, and what it is.
        self._silent: dict[str, tuple[float, str]] = {}

    async def ask(self, address: str, ask: Request[R]) -> R:
        """The reply of one server."""
        reachable = self.reachable(address)
        if (known := self._known_silent(reachable)) is not None:
            raise known
        try:
            return await self.caller.ask(reachable, ask, timeout=self.timeout)
        except RequestTimeout as silent:
            self._note_silent(reachable, silent)
            raise

    async def ask_unless(self, code: int, address: str, ask: Request[R]) -> R | None:
        """The reply of one server, or None where it answers with this code."""
        try:
            return await self.ask(address, ask)
        except RocketMQError as error:
            if error.code != code:
                raise
            return None

    async def outcomes(
        self, servers: Iterable[tuple[str, str]], ask: Request[R]
    ) -> list[tuple[str, str, R | ConnectError | RequestTimeout]]:
        """The reply of each of these servers, names and addresses, or that it is away; all are asked at once.

        Where brokers may be missing, the answers of the others do not wait long for one that is silent.
        """
        began = time.monotonic()
        calls: list[tuple[str, str, str, Call | RequestTimeout]] = []
        for name, address in servers:
            reachable = self.reachable(address)
            known = self._known_silent(reachable)
            call = known or self.caller.begin(reachable, ask, timeout=self.timeout)
            calls.append((name, address, reachable, call))
        await self._wait([call for *_, call in calls if isinstance(call, Call)], began)
        found: list[tuple[str, str, R | ConnectError | RequestTimeout]] = []
        for name, address, reachable, call in calls:
            if isinstance(call, RequestTimeout):
                found.append((name, address, call))
                continue
            try:
                if not call.done():
                    waited = time.monotonic() - began
                    text = f"{reachable} did not answer in time: within {waited:.1f} s, as others did"
                    raise RequestTimeout(text, broker=reachable)
                check_transport(call, reachable)
            except (ConnectError, RequestTimeout) as away:
                if isinstance(away, RequestTimeout):
                    self._note_silent(reachable, away)
                found.append((name, address, away))
            else:
                found.append((name, address, self.caller.read(ask, call, reachable)))
        return found

    async def notice_silent(self, servers: Iterable[tuple[str, str]]) -> None:
        """Where brokers may be missing: finds those of these that are silent, before they are asked one by one."""
        if MISSING.get(None) is not None:
            await self.outcomes(servers, GetBrokerRuntimeInfo())

    async def _wait(self, calls: list[Call], began: float) -> None:
        """Until all have an outcome, or, where brokers may be missing, only those have none that are silent."""
        if MISSING.get(None) is not None:
            until = began + _LATE_AFTER_S
            in_time = [await self.caller.wait(call, max(0.0, until - time.monotonic())) for call in calls]
            if any(in_time):
                return
            # Nobody is ahead of the others.
        for call in calls:
            await self.caller.wait(call)

    def _known_silent(self, reachable: str) -> RequestTimeout | None:
        """Where brokers may be missing: what is known of one that was silent a moment ago."""
        if MISSING.get(None) is None:
            return None
        until, text = self._silent.get(reachable, (0.0, ""))
        return RequestTimeout(text, broker=reachable) if time.monotonic() < until else None

    def _note_silent(self, reachable: str, silent: RequestTimeout) -> None:
        if MISSING.get(None) is not None:
            now = time.monotonic()
            self._silent = {at: known for at, known in self._silent.items() if known[0] > now}
            self._silent[reachable] = (now + _SILENT_S, str(silent.args[0]))

    async def ask_each(self, servers: Iterable[tuple[str, str]], ask: Request[R]) -> list[tuple[str, str, R]]:
        """The reply of each of these servers. One that is away is an error, or missing: see `MISSING`."""
        found = []
        for name, address, outcome in await self.outcomes(servers, ask):
            with self.may_miss(name):
                if isinstance(outcome, ConnectError | RequestTimeout):
                    raise outcome
                found.append((name, address, outcome))
        return found

    @contextmanager
    def may_miss(self, name: str) -> Iterator[None]:
        """Asks one server: where it is away, what is asked inside is missing, or an error; see `MISSING`."""
        try:
            yield
        except (ConnectError, RequestTimeout) as away:
            missing = MISSING.get(None)
            if missing is None:
                raise
            missing.append(Missing(name, str(away)))

    async def ask_masters(self, ask: Request[R]) -> list[tuple[str, str, R]]:
        """The reply of each master, with its name and address, by name."""
        return await self.ask_each(sorted((await self.masters()).items()), ask)

    async def look_up(self, ask: Request[R]) -> R:
        """The reply of any name server."""
        return await self.name_servers.ask(self.caller, ask)

    def reachable(self, address: str) -> str:
        """The address to connect to for an advertised one."""
        return self._addresses.get(address, address)

    async def cluster_info(self) -> ClusterInfo:
        """All brokers, as some name server sees them."""
        return await self.look_up(GetClusterInfo())

    async def masters(
        self, cluster: str | None = None, *, is_change: bool = False, instead: str = ""
    ) -> dict[str, str]:
        """Name to address of every master of the cluster; the cluster may be left out where there is only one.

        A name without a master is left out, which is noted. A change is not made on half of the brokers: then this
        raises `RocketMQError`, which also says what can be done `instead`.
        """
        info = await self.cluster_info()
        if cluster is None:
            if len(info.cluster_addr_table) > 1:
                raise ConfigError(f"name one of the clusters {', '.join(sorted(info.cluster_addr_table))}")
            cluster = next(iter(info.cluster_addr_table), "")
        found = {
            name: address
            for name in info.cluster_addr_table.get(cluster, ())
            if (address := master(info.broker_addr_table[name])) is not None
        }
        names: Collection[str] = info.cluster_addr_table.get(cluster, ())
        without = set(names) - found.keys()
        self._leave_out(without, is_change=is_change, instead=instead)
        if not found:
            finding = (
                headless(without)
                if without
                else Finding("no broker is registered", "start one: rmqpy broker")
            )
            raise RocketMQError(finding.found, hint=finding.advice)
        return found

    async def every_master(self) -> list[tuple[str, str]]:
        """Name and address of the masters of all clusters, by name; those without one are left out."""
        brokers = (await self.cluster_info()).broker_addr_table
        found = {name: address for name, data in brokers.items() if (address := master(data)) is not None}
        self._leave_out(brokers.keys() - found.keys(), is_change=False)
        return sorted(found.items())

    async def tell(self, brokers: Mapping[str, str], ask: Request[R], done: str) -> None:
        """Have each of these brokers, name to address, change something. Where some fail, the others have changed: the
        error says which have, in the words of `done`."""
        made, failed = [], {}
        for name, address in sorted(brokers.items()):
            try:
                await self.ask(address, ask)
            except RocketMQError as error:
                failed[name] = error
            else:
                made.append(name)
        if failed and not made:
            raise next(iter(failed.values()))
        if failed:
            reasons = "; ".join(
                f"{name}: {error.args[0] if error.args else error}" for name, error in failed.items()
            )
            raise RocketMQError(
                f"{done} at {', '.join(made)}, and not at {reasons}",
                hint="run it again with --if-not-exists when that is mended",
            )

    def masters_in(self, route: TopicRoute, *, is_change: bool = False) -> dict[str, str]:
        """The same of the brokers that have a topic, by name."""
        found = masters(route)
        self._leave_out(
            {broker.broker_name for broker in route.broker_datas} - found.keys(), is_change=is_change
        )
        return dict(sorted(found.items()))

    def _leave_out(self, names: Collection[str], *, is_change: bool, instead: str = "") -> None:
        if not names:
            return
        finding = headless(names)
        if is_change:
            raise RocketMQError(f"{finding.found}: nothing was changed", hint=finding.advice + instead)
        self.left_out |= set(names)
        if (missing := MISSING.get(None)) is not None:
            missing += [Missing(name, "no master of it is registered") for name in sorted(names)]

    async def master_of(self, broker: str) -> str:
        """The address of one broker's master. Raises `ConfigError` for a broker that is not known."""
        brokers = await self.masters()
        if broker not in brokers:
            raise ConfigError(
                f"no broker {broker!r} has a master", hint=f"there are {', '.join(sorted(brokers))}"
            )
        return brokers[broker]


def master(broker: BrokerData) -> str | None:
    """The address of a group's master, when it has one."""
    return broker.broker_addrs.get(MASTER_ID)


def masters(route: TopicRoute) -> dict[str, str]:
    """Name to address of every master that has a topic."""
    found = {broker.broker_name: master(broker) for broker in route.broker_datas}
    return {name: address for name, address in found.items() if address is not None}


class Part:
    """One noun of the administration: coroutines over a connection.

    `rmqpy.remoting.client.run` drives them in a thread, an event loop awaits them. What fails half-way leaves the
    earlier servers changed; asking again is harmless.
    """

    def __init__(self, cluster: AdminConnection) -> None:
        self._cluster = cluster
