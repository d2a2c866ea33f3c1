"""Health checks of a cluster: one result for each check, and what to do where it is bad.

Asks every name server and every broker itself, so that one that is away costs one timeout and hides no other fault.
"""

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Final

from rmqpy.admin import certificates, exposure, machine
from rmqpy.admin.checks import DISK_FREE_BYTES_MIN, CheckResult
from rmqpy.admin.cluster import free_bytes
from rmqpy.admin.connection import Part, masters
from rmqpy.admin.replicas import Replicas, ReplicaState
from rmqpy.admin.topics import Topics
from rmqpy.config import properties
from rmqpy.config.addresses import ANY_HOST, LOOPBACK, HostPort, parse
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.replication import SLAVE
from rmqpy.errors import (
    ConfigError,
    ConnectError,
    NameServerUnreachable,
    RequestTimeout,
    RocketMQError,
    TopicNotFound,
)
from rmqpy.findings import Trouble, duplicate, replaced
from rmqpy.protocol import troubles
from rmqpy.protocol.requests.brokers import GetBrokerConfig, GetBrokerRuntimeInfo
from rmqpy.protocol.requests.kv import GetNameServerConfig
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.routes import ClusterInfo, GetClusterInfo
from rmqpy.protocol.topics import Permission

#: A broker's clock may differ from ours by so much. Delays, resets by time and retention go by it.
CLOCK_OFF_S_MAX: Final = 10.0

_UNREACHABLE = (ConnectError, RequestTimeout)
_DURATION: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


class Health(Part):
    """Checks of one cluster, its topics and brokers."""

    async def cluster(self, *, disk_free_min: int = DISK_FREE_BYTES_MIN) -> list[CheckResult]:
        """Check name servers, brokers, and that they agree."""
        checks, views = await self._name_servers()
        if not views:
            return checks
        checks += _agreement(views)
        checks += await self._duplicates(views)
        checks += await self._acting(views)
        checks += await self._exposed_name_servers(views)
        brokers = {
            (name, broker_id): address
            for view in views.values()
            for name, broker in view.broker_addr_table.items()
            for broker_id, address in broker.broker_addrs.items()
        }
        if not brokers:
            advice = "start one with these name servers: rmqpy broker -n …"
            checks.append(CheckResult("brokers", "bad", "none is registered", advice))
        await self._cluster.notice_silent((name, address) for (name, _), address in brokers.items())
        clusters: dict[str, dict[int, str]] = {}
        for (name, broker_id), address in sorted(brokers.items()):
            found, settings = await self._broker(name, address, disk_free_min)
            checks += found
            if "brokerClusterName" in settings:
                clusters.setdefault(name, {})[broker_id] = settings["brokerClusterName"]
        checks += _clusters(clusters)
        for each in await Replicas(self._cluster).survey():
            checks += _replica_checks(*each)
        return [*_once(checks), *await self._certificates({*views, *brokers.values()})]

    async def _certificates(self, addresses: set[str]) -> list[CheckResult]:
        """Certificates that expire soon."""
        tls = self._cluster.tls
        if tls is None:
            return []
        timeout, checks = self._cluster.timeout, []
        with ThreadPoolExecutor(1, "rmqpy-certificates") as worker:
            for address in sorted(map(self._cluster.reachable, addresses)):
                shown = worker.submit(certificates.expiry, address, tls, timeout)
                # It has a timeout of its own, for each of its steps.
                while not await self._cluster.caller.until(shown, timeout):
                    pass
                checks += [found] if (found := shown.result()) is not None else []
        return checks

    async def topic(self, name: str) -> list[CheckResult]:
        """Check that messages of a topic can be sent and consumed."""
        check = f"topic {name}"
        try:
            route = await Topics(self._cluster).route(name)
        except NameServerUnreachable as error:
            return [CheckResult(check, "bad", _line(error), "start a name server: rmqpy namesrv")]
        except TopicNotFound:
            return [CheckResult(check, "bad", "does not exist", f"create it: rmqpy topic create {name}")]
        alive = masters(route)
        writable = [
            data
            for data in route.queue_datas
            if data.perm & Permission.WRITE and data.write_queue_nums and data.broker_name in alive
        ]
        readable = [
            data for data in route.queue_datas if data.perm & Permission.READ and data.read_queue_nums
        ]
        checks = []
        for may, verb in ((writable, "sent to"), (readable, "consumed from")):
            if not may:
                advice = (
                    f"give it a permission: rmqpy topic alter {name} --perm RW; look at brokerPermission, too"
                )
                checks.append(CheckResult(check, "bad", f"no queue can be {verb}", advice))
        queues = sum(data.write_queue_nums for data in writable)
        return checks or [
            CheckResult(check, "ok", f"{queues} queues at {len(writable)} brokers take messages")
        ]

    async def broker(
        self, config: BrokerConfig, *, disk_free_min: int = DISK_FREE_BYTES_MIN
    ) -> list[CheckResult]:
        """Check that a broker with this configuration runs on this machine, or could be started."""
        host = LOOPBACK if config.listen_host == ANY_HOST else config.listen_host
        address = str(HostPort(host, config.listen_port))
        try:
            running = properties.parse((await self._cluster.ask(address, GetBrokerConfig())).body)
        except RocketMQError:
            running = {}
        checks = machine.look(
            config, is_running=running.get("brokerName") == config.name, disk_free_min=disk_free_min
        )
        return [_running(config, address, running), *checks]

    async def _name_servers(self) -> tuple[list[CheckResult], dict[str, ClusterInfo]]:
        checks, views = [], {}
        for address in self._cluster.name_servers.addresses:
            check = f"name server {address}"
            try:
                views[address] = await self._cluster.ask(address, GetClusterInfo())
            except _UNREACHABLE as error:
                advice = "start it, or correct -n and namesrvAddr: rmqpy namesrv"
                checks.append(CheckResult(check, "bad", _line(error), advice))
            except RocketMQError as error:
                advice = "something else listens there; is it a broker's address?"
                checks.append(CheckResult(check, "bad", _line(error), advice))
            else:
                count = len(views[address].broker_addr_table)
                checks.append(CheckResult(check, "ok", f"knows {count} broker{'s' * (count != 1)}"))
        return checks, views

    async def _duplicates(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Brokers that take each other's place; one that another has replaced is told apart by its epoch."""
        places: dict[str, set[str]] = {}
        for view in views.values():
            for name, told in (view.duplicate_broker_addrs or {}).items():
                places.setdefault(name, set()).update(told)
        checks = []
        for name, addresses in sorted(places.items()):
            epochs = {address: await self._epoch(address) for address in sorted(addresses)}
            youngest, leader = max((epoch, address) for address, epoch in epochs.items())
            stale = [address for address, epoch in epochs.items() if 0 < epoch < youngest]
            found = [replaced(name, leader, youngest, address=address) for address in stale]
            checks += [
                CheckResult(f"broker {name}", "bad", *each) for each in found or [duplicate(name, addresses)]
            ]
        return checks

    async def _epoch(self, address: str) -> int:
        """The youngest epoch of a broker's log; 0 where it does not say."""
        try:
            return (await self._cluster.ask(address, GetBrokerEpochCache())).body.epoch
        except RocketMQError:
            return 0

    async def _acting(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Name servers that would not show consumers a slave that acts for its master."""
        checks = []
        for address, view in sorted(views.items()):
            names = sorted(name for name, data in view.broker_addr_table.items() if data.enable_acting_master)
            if not names:
                continue
            try:
                settings = properties.parse(await self._cluster.ask(address, GetNameServerConfig()))
            except (RocketMQError, properties.PropertiesError):
                continue
            if settings.get("supportActingMaster") != "true":
                found = (
                    f"supportActingMaster=false: consumers would not be shown a slave of {', '.join(names)}"
                )
                advice = (
                    "set supportActingMaster=true there, or enableSlaveActingMaster=false at these brokers"
                )
                checks.append(CheckResult(f"acting masters at {address}", "warn", found, advice))
        return checks

    async def _exposed_name_servers(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Name servers at which strangers may do something."""
        checks = []
        for address in sorted(views):
            try:
                settings = properties.parse(await self._cluster.ask(address, GetNameServerConfig()))
            except (RocketMQError, properties.PropertiesError):
                continue
            for found, advice in exposure.of_name_server(address, settings):
                checks.append(CheckResult(f"door of name server {address}", "warn", found, advice))
        return checks

    async def _broker(
        self, name: str, address: str, disk_free_min: int
    ) -> tuple[list[CheckResult], dict[str, str]]:
        """What there is to say of a broker, and its settings where it tells them."""
        check = f"broker {name} at {address}"
        if (fault := _address_fault(address, self._cluster.name_servers.addresses)) is not None:
            advice = f"set brokerIP1 of {name} to an address that clients can reach"
            return [CheckResult(check, "bad", fault, advice)], {}
        try:
            settings = properties.parse((await self._cluster.ask(address, GetBrokerConfig())).body)
            asked_at = time.time()
            runtime = (await self._cluster.ask(address, GetBrokerRuntimeInfo())).table
        except _UNREACHABLE as error:
            advice = (
                "start it, open its port, or correct its brokerIP1 and listenPort; "
                "name servers forget it after two minutes of silence"
            )
            return [CheckResult(check, "bad", _line(error), advice)], {}
        except RocketMQError as error:
            advice = "something else listens there, or it denies this request"
            return [CheckResult(check, "bad", _line(error), advice)], {}
        found = _broker_checks(check, name, address, settings, runtime, asked_at, disk_free_min)
        return list(found), settings


def _broker_checks(
    check: str,
    name: str,
    address: str,
    settings: dict[str, str],
    runtime: dict[str, str],
    asked_at: float,
    disk_free_min: int,
) -> Iterator[CheckResult]:
    actual = settings.get("brokerName", name)
    if actual != name:
        advice = f"two brokers advertise one address: correct brokerIP1 or listenPort of {name}"
        yield CheckResult(check, "bad", f"{actual} answers there", advice)
        return
    told = troubles.read(runtime)
    refusal = next((each.finding for each in told if each.refuses), None)
    if refusal is not None and settings.get("brokerRole") != SLAVE:
        yield CheckResult(check, "bad", "answers, and takes no messages", refusal.advice)
    else:
        yield CheckResult(check, "ok", f"answers, version {runtime.get('brokerVersionDesc', 'unknown')}")
    if (now := _clock(runtime)) is not None and abs(off := now - asked_at) > CLOCK_OFF_S_MAX:
        direction = "ahead of" if off > 0 else "behind"
        found = f"its clock is {abs(off):.0f} s {direction} this machine's"
        yield CheckResult(
            f"clock of {name}", "bad", found, "synchronize both machines: chrony or systemd-timesyncd"
        )
    own = [each for each in told if each.check in (f"disk of {name}", f"store of {name}")]
    yield from map(_check, own)
    yield from (_check(each) for each in told if each.check == f"waiting messages of {name}")
    if not own and (fault := _disk_fault(settings, runtime, disk_free_min)) is not None:
        advice = "make room, or keep messages for less time: rmqpy config set … fileReservedTime=24"
        yield CheckResult(f"disk of {name}", "bad", fault, advice)
    for found, advice in exposure.of_broker(address, settings):
        yield CheckResult(f"door of {name}", "warn", found, advice)
    permission = settings.get("brokerPermission", "6")
    for bit, verb in ((Permission.WRITE, "takes no messages"), (Permission.READ, "gives no messages")):
        if permission.isdigit() and not int(permission) & bit:
            advice = f"if that is not meant: rmqpy config set {name} brokerPermission=6"
            yield CheckResult(
                f"permission of {name}", "warn", f"it {verb}: brokerPermission={permission}", advice
            )


def _clusters(known: dict[str, dict[int, str]]) -> Iterator[CheckResult]:
    """Brokers of one name that are of several clusters: name servers go by the first or the last they heard."""
    for name, clusters in sorted(known.items()):
        if len(set(clusters.values())) > 1:
            found = ", ".join(f"{broker_id} in {cluster}" for broker_id, cluster in sorted(clusters.items()))
            advice = "give them one brokerClusterName, or one of them another brokerName, and restart it"
            yield CheckResult(
                f"cluster of {name}", "bad", f"brokers of one name say other clusters: {found}", advice
            )


def _replica_checks(state: ReplicaState, troubles: list[Trouble]) -> Iterator[CheckResult]:
    """Of a broker that answers: whether a master has its slaves, whether the log of a slave follows."""
    yield from map(_check, troubles)
    if troubles or state.log_end is None:
        return
    if state.is_master:
        if state.slaves:
            yield CheckResult(f"replicas of {state.broker}", "ok", f"{state.slaves} slaves are connected")
        return
    check = f"slave {state.broker_id} of {state.broker}"
    behind = f"{state.behind_bytes} bytes behind" if state.behind_bytes is not None else "how far is unknown"
    if state.in_sync:
        yield CheckResult(check, "ok", f"in sync, {behind}")
    else:
        yield CheckResult(check, "ok", "was just started, and connects to its master")


def _check(trouble: Trouble) -> CheckResult:
    return CheckResult(trouble.check, trouble.level, *trouble.finding)


def _once(checks: list[CheckResult]) -> Iterator[CheckResult]:
    """Each fault once: several brokers may speak of one."""
    seen = set()
    for each in checks:
        if each.level == "ok" or (each.check, each.found) not in seen:
            seen.add((each.check, each.found))
            yield each


def _running(config: BrokerConfig, address: str, running: dict[str, str]) -> CheckResult:
    """Which broker was looked at: the one that runs there, or the file's, that could be started."""
    check = f"broker {config.name} of this file"
    actual = running.get("brokerName")
    if actual is None:
        return CheckResult(check, "ok", f"does not run: none answers at {address}")
    if actual != config.name:
        return CheckResult(check, "ok", f"does not run: {actual} answers at {address}")
    folder = running.get("storePathRootDir", config.store.folder)
    if folder != config.store.folder:
        found = f"the one that runs at {address} has its store in {folder}, not in {config.store.folder}"
        return CheckResult(check, "warn", found, "see that it was started with this file; restart it")
    return CheckResult(check, "ok", f"runs at {address}")


def _disk_fault(settings: dict[str, str], runtime: dict[str, str], free_min: int) -> str | None:
    """The reason why messages are refused, or soon will be."""
    used, full = runtime.get("commitLogDiskRatio", ""), settings.get("diskSpaceWarningLevelRatio", "100")
    try:
        if int(full) < 100 and float(used) * 100 >= int(full):
            return f"{float(used):.0%} of it are in use: from {full} % on messages are refused"
    except ValueError:
        pass  # a server with another format there
    free = free_bytes(runtime)
    if free is not None and free < free_min:
        return f"{free >> 20} MiB are free where its log lies"
    return None


def _agreement(views: dict[str, ClusterInfo]) -> Iterator[CheckResult]:
    """Brokers that not every name server knows."""
    every = {name for view in views.values() for name in view.broker_addr_table}
    for address, view in views.items():
        if missing := sorted(every - view.broker_addr_table.keys()):
            advice = f"add {address} to namesrvAddr of these brokers, or look at its network"
            yield CheckResult(f"name server {address}", "bad", f"does not know {', '.join(missing)}", advice)


def _address_fault(address: str, name_servers: tuple[str, ...]) -> str | None:
    """The reason why clients, or those elsewhere, cannot connect to an advertised address; None where there is none."""
    try:
        host = parse(address).host
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except ConfigError:
        return f"{address} is advertised, which is no address"
    except OSError:
        return f"the advertised name {host} cannot be resolved here"
    if all(ip_address(str(entry[4][0])).is_loopback for entry in found) and not all(
        _is_loopback(server) for server in name_servers
    ):
        return f"{host} is advertised, which on every machine means the machine itself"
    return None


def _is_loopback(address: str) -> bool:
    try:
        host = parse(address).host
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _clock(runtime: dict[str, str]) -> float | None:
    """The time at the broker, exact to a second: when it started, and for how long it has been running."""
    found = _DURATION.search(runtime.get("runtime", ""))
    booted = runtime.get("bootTimestamp", "")
    if found is None or not booted.isdigit():
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return int(booted) / 1_000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _line(error: Exception) -> str:
    return " ".join(str(error.args[0] if error.args else error).split())
