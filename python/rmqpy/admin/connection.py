"""Connection of the administration to a cluster: caller, name servers and timeout.

Owns nothing to close. Every request of `rmqpy.admin` goes through `AdminConnection.ask`, the only place that replaces
advertised addresses. Threads: those of the caller.
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

#: Between two looks at a state that is awaited.
LOOK_SECONDS: Final = 0.05

#: If brokers may be missing: how long to wait for the rest once some have answered.
_LATE_AFTER_S: Final = 0.3
#: How long a silent broker is then not asked again.
_SILENT_S: Final = 5.0


class Missing(NamedTuple):
    """A broker without data in a list, and the reason."""

    broker: str
    fault: str


#: If set, unreachable brokers are recorded here and left out of lists; otherwise they are errors.
MISSING: Final[ContextVar[list[Missing]]] = ContextVar("MISSING")


def note_missing() -> list[Missing]:
    """Leave out unreachable brokers in this task from now on. Returns them."""
    missing: list[Missing] = []
    MISSING.set(missing)
    return missing


class AdminConnection:
    """The parts of a cluster needed to ask its servers."""

    def __init__(self, caller: Caller, config: ClientConfig) -> None:
        self.caller = caller
        self.timeout = config.request_timeout
        #: TLS of the connections; None for plain ones.
        self.tls = config.tls
        self.name_servers = NameServers(config.namesrv, timeout=self.timeout, unit=config.unit)
        self._addresses = dict(config.address_map)
        #: Names of brokers that were skipped because they have no master.
        self.left_out: set[str] = set()
        #: Silent brokers while brokers may be missing: address → until when, and the broker.
        self._silent: dict[str, tuple[float, str]] = {}

    async def ask(self, address: str, ask: Request[R]) -> R:
        """Return the reply of one server."""
        reachable = self.reachable(address)
        if (known := self._known_silent(reachable)) is not None:
            raise known
        try:
            return await self.caller.ask(reachable, ask, timeout=self.timeout)
        except RequestTimeout as silent:
            self._note_silent(reachable, silent)
            raise

    async def ask_unless(self, code: int, address: str, ask: Request[R]) -> R | None:
        """Return the reply of one server, or None if it answers with this code."""
        try:
            return await self.ask(address, ask)
        except RocketMQError as error:
            if error.code != code:
                raise
            return None

    async def outcomes(
        self, servers: Iterable[tuple[str, str]], ask: Request[R]
    ) -> list[tuple[str, str, R | ConnectError | RequestTimeout]]:
        """Ask all these servers, names and addresses, concurrently. Returns each reply, or that the server is
        unreachable.

        If brokers may be missing, the others do not wait long for a silent one.
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
                    text = f"{reachable} did not answer in time, within {waited:.1f} s as others did"
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
        """If brokers may be missing, find the silent ones before they are asked one by one."""
        if MISSING.get(None) is not None:
            await self.outcomes(servers, GetBrokerRuntimeInfo())

    async def _wait(self, calls: list[Call], began: float) -> None:
        """Wait for all, or, if brokers may be missing, until only silent ones are left."""
        if MISSING.get(None) is not None:
            until = began + _LATE_AFTER_S
            in_time = [await self.caller.wait(call, max(0.0, until - time.monotonic())) for call in calls]
            if any(in_time):
                return
            # None has answered yet.
        for call in calls:
            await self.caller.wait(call)

    def _known_silent(self, reachable: str) -> RequestTimeout | None:
        """If brokers may be missing, return the known state of one that was silent recently."""
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
        """Return the reply of each of these servers. An unreachable one is an error, or missing: see `MISSING`."""
        found = []
        for name, address, outcome in await self.outcomes(servers, ask):
            with self.may_miss(name):
                if isinstance(outcome, ConnectError | RequestTimeout):
                    raise outcome
                found.append((name, address, outcome))
        return found

    @contextmanager
    def may_miss(self, name: str) -> Iterator[None]:
        """Context of requests to one server, which is missing or an error if unreachable; see `MISSING`."""
        try:
            yield
        except (ConnectError, RequestTimeout) as away:
            missing = MISSING.get(None)
            if missing is None:
                raise
            missing.append(Missing(name, str(away)))

    async def ask_masters(self, ask: Request[R]) -> list[tuple[str, str, R]]:
        """Return the reply of each master with its name and address, by name."""
        return await self.ask_each(sorted((await self.masters()).items()), ask)

    async def look_up(self, ask: Request[R]) -> R:
        """Return the reply of any name server."""
        return await self.name_servers.ask(self.caller, ask)

    def reachable(self, address: str) -> str:
        """Return the address to connect to for an advertised one."""
        return self._addresses.get(address, address)

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers, as one name server knows them."""
        return await self.look_up(GetClusterInfo())

    async def masters(
        self, cluster: str | None = None, *, is_change: bool = False, instead: str = ""
    ) -> dict[str, str]:
        """Return name → address of every master of the cluster, which may be omitted if there is only one.

        A name without a master is skipped and recorded. A change must not reach only half of the brokers: then this
        raises `RocketMQError`, which also offers what to do `instead`.
        """
        info = await self.cluster_info()
        if cluster is None:
            if len(info.cluster_addr_table) > 1:
                raise ConfigError(f"choose one of the clusters {', '.join(sorted(info.cluster_addr_table))}")
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
        """Return name and address of the masters of all clusters, by name, without brokers that have none."""
        brokers = (await self.cluster_info()).broker_addr_table
        found = {name: address for name, data in brokers.items() if (address := master(data)) is not None}
        self._leave_out(brokers.keys() - found.keys(), is_change=False)
        return sorted(found.items())

    async def tell(self, brokers: Mapping[str, str], ask: Request[R], done: str) -> None:
        """Send a change to each of these brokers, name → address. If some fail, the others have changed: the error
        names them, in the words of `done`."""
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
                f"{done} on {', '.join(made)}, but not on {reasons}",
                hint="fix the cause, then run it again with --if-not-exists",
            )

    def masters_in(self, route: TopicRoute, *, is_change: bool = False) -> dict[str, str]:
        """The same for the brokers that have a topic, by name."""
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
            missing += [Missing(name, "it has no registered master") for name in sorted(names)]

    async def master_of(self, broker: str) -> str:
        """Return the address of one broker's master. Raises `ConfigError` for an unknown broker."""
        brokers = await self.masters()
        if broker not in brokers:
            raise ConfigError(
                f"no broker {broker!r} has a master", hint=f"known brokers: {', '.join(sorted(brokers))}"
            )
        return brokers[broker]

    async def await_master(self, broker: str, address: str, deadline: float) -> bool:
        """Wait until name servers return this master of a broker to clients; false if they do not by `deadline`, a time
        of `time.monotonic`."""
        while True:
            known = (await self.cluster_info()).broker_addr_table.get(broker)
            if known is not None and master(known) == address:
                return True
            if time.monotonic() > deadline:
                return False
            await self.caller.sleep(LOOK_SECONDS)


def master(broker: BrokerData) -> str | None:
    """Return the address of a group's master, if it has one."""
    return broker.broker_addrs.get(MASTER_ID)


def masters(route: TopicRoute) -> dict[str, str]:
    """Return name → address of every master that has a topic."""
    found = {broker.broker_name: master(broker) for broker in route.broker_datas}
    return {name: address for name, address in found.items() if address is not None}


class Part:
    """One noun of the administration: coroutines over a connection.

    `rmqpy.remoting.client.run` drives them in a thread, an event loop awaits them. A failure midway leaves earlier
    servers changed; repeating the call is harmless.
    """

    def __init__(self, cluster: AdminConnection) -> None:
        self._cluster = cluster
