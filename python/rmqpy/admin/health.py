"""Health checks of a cluster: one result per check, with advice for problems.

Asks every name server and every broker directly, so an unreachable one costs one timeout and hides no other problem.
"""

import re
import socket
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final

from rmqpy.admin import certificates, exposure, machine
from rmqpy.admin.checks import DISK_FREE_BYTES_MIN, REFUSES, CheckResult
from rmqpy.admin.cluster import first_number, free_bytes, gone_checks, oldest_file
from rmqpy.admin.connection import Part, masters
from rmqpy.admin.replicas import Replicas, ReplicaState
from rmqpy.admin.topics import Topics
from rmqpy.config import properties
from rmqpy.config.addresses import ANY_HOST, LOOPBACK, HostPort, parse
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.listeners import Listeners, Member
from rmqpy.config.replication import SLAVE
from rmqpy.errors import (
    ConfigError,
    ConnectError,
    NameServerUnreachable,
    RequestTimeout,
    RocketMQError,
    TopicNotFound,
)
from rmqpy.findings import Trouble, duplicate, make_room, not_writable, replaced
from rmqpy.protocol import plugin_report, tiered_report, troubles
from rmqpy.protocol.requests.brokers import GetBrokerConfig, GetBrokerRuntimeInfo
from rmqpy.protocol.requests.kv import GetNameServerConfig
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.routes import MASTER_ID, ClusterInfo, GetClusterInfo
from rmqpy.protocol.topics import Permission

#: The largest allowed difference of clocks. Delays, resets by time and retention depend on them.
CLOCK_OFF_S_MAX: Final = 10.0

_UNREACHABLE = (ConnectError, RequestTimeout)
_DURATION: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


class Health(Part):
    """Checks of one cluster, its topics and brokers."""

    async def cluster(self, *, disk_free_min: int = DISK_FREE_BYTES_MIN) -> list[CheckResult]:
        """Check name servers and brokers, and that they agree."""
        checks, views = await self._name_servers()
        if not views:
            asked = () if self._cluster.tls is None else self._cluster.name_servers.addresses
            return await certificates.explained(self._cluster, checks, asked)
        checks += _agreement(views)
        checks += await self._duplicates(views)
        checks += await self._acting(views)
        checks += await self._exposed_name_servers(views)
        checks += await self._listeners(views)
        brokers = {
            (name, broker_id): address
            for view in views.values()
            for name, broker in view.broker_addr_table.items()
            for broker_id, address in broker.broker_addrs.items()
        }
        if not brokers:
            advice = "start one with these name servers: rmqpy broker -n …"
            checks.append(CheckResult("brokers", "bad", "no broker is registered", advice))
        await self._cluster.notice_silent((name, address) for (name, _), address in brokers.items())
        clusters: dict[str, dict[int, str]] = {}
        encrypted: set[str] = set()
        for (name, broker_id), address in sorted(brokers.items()):
            found, settings = await self._broker(name, address, disk_free_min)
            checks += found
            if settings.get("tls.server.certPath"):
                encrypted.add(address)
            if "brokerClusterName" in settings:
                clusters.setdefault(name, {})[broker_id] = settings["brokerClusterName"]
        checks += _clusters(clusters)
        for each in await Replicas(self._cluster).survey():
            checks += _replica_checks(*each)
        # A slave names its lost master better than the name server.
        headless = {each.check.removeprefix("master of ") for each in checks if each.level != "ok"}
        checks += [
            each for each in gone_checks(views.values()) if each.check.removeprefix("broker ") not in headless
        ]
        if self._cluster.tls is not None:
            encrypted = {*self._cluster.name_servers.addresses, *views, *brokers.values()}
        return await certificates.explained(self._cluster, _once(checks), encrypted)

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
                    f"give it a permission: rmqpy topic alter {name} --perm RW; check brokerPermission, too"
                )
                checks.append(CheckResult(check, "bad", f"no queue can be {verb}", advice))
        queues = sum(data.write_queue_nums for data in writable)
        return checks or [
            CheckResult(check, "ok", f"{queues} queues on {len(writable)} brokers accept messages")
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
                advice = "another program listens there: check whether it is a broker's address"
                checks.append(CheckResult(check, "bad", _line(error), advice))
            else:
                count = len(views[address].broker_addr_table)
                checks.append(CheckResult(check, "ok", f"knows {count} broker{'s' * (count != 1)}"))
        return checks, views

    async def _duplicates(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Conflicting brokers of one name; the epoch identifies one that was replaced."""
        places: dict[str, set[str]] = {}
        for view in views.values():
            for name, duplicates in (view.duplicate_broker_addrs or {}).items():
                places.setdefault(name, set()).update(duplicates)
        checks = []
        for name, addresses in sorted(places.items()):
            epochs = {address: await self._epoch(address) for address in sorted(addresses)}
            newest, leader = max((epoch, address) for address, epoch in epochs.items())
            stale = [address for address, epoch in epochs.items() if 0 < epoch < newest]
            found = [replaced(name, leader, newest, address=address) for address in stale]
            checks += [
                CheckResult(f"broker {name}", "bad", *each) for each in found or [duplicate(name, addresses)]
            ]
        return checks

    async def _listeners(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Broker addresses that clients of listeners receive, and whether this machine reaches them."""
        checks = []
        for address, view in sorted(views.items()):
            try:
                settings = properties.parse(await self._cluster.ask(address, GetNameServerConfig()))
                listeners = Listeners.read(
                    settings.get("listeners", ""), settings.get("advertisedAddresses", "")
                )
            except (RocketMQError, properties.PropertiesError):
                continue
            for name, listened in listeners.addresses.items():
                # The view of that listener has the addresses already.
                if listened.port == parse(address).port:
                    continue
                for data in view.broker_addr_table.values():
                    for broker_id, known in data.broker_addrs.items():
                        member = Member(data.cluster, data.broker_name, broker_id)
                        seen = listeners.seen(name, known, member)
                        checks.append(await self._seen(f"listener {name} at {address}", name, seen, member))
        return checks

    async def _seen(self, check: str, listener: str, address: str, member: Member) -> CheckResult:
        role = "" if member.broker_id == MASTER_ID else f", slave {member.broker_id}"
        found = f"clients of listener {listener} receive {address} for {member.broker}{role}"
        try:
            await self._cluster.ask(address, GetBrokerConfig())
        except (*_UNREACHABLE, ConfigError) as error:
            advice = "run rmqpy doctor on a machine of these clients, or correct advertisedAddresses"
            return CheckResult(check, "warn", f"{found}: not reachable from here ({_line(error)})", advice)
        except RocketMQError:
            pass  # It answers.
        return CheckResult(check, "ok", found)

    async def _epoch(self, address: str) -> int:
        """The newest epoch of a broker's log; 0 if it does not report one."""
        try:
            return (await self._cluster.ask(address, GetBrokerEpochCache())).body.epoch
        except RocketMQError:
            return 0

    async def _acting(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Name servers that would not return an acting slave to consumers."""
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
                found = f"supportActingMaster=false: consumers would not find an acting slave of {', '.join(names)}"
                advice = (
                    "set supportActingMaster=true there, or enableSlaveActingMaster=false on these brokers"
                )
                checks.append(CheckResult(f"acting masters at {address}", "warn", found, advice))
        return checks

    async def _exposed_name_servers(self, views: dict[str, ClusterInfo]) -> list[CheckResult]:
        """Name servers that expose something to strangers."""
        checks = []
        for address in sorted(views):
            try:
                settings = properties.parse(await self._cluster.ask(address, GetNameServerConfig()))
            except (RocketMQError, properties.PropertiesError):
                continue
            for found, advice in exposure.of_name_server(address, settings):
                checks.append(CheckResult(f"exposure of name server {address}", "warn", found, advice))
        return checks

    async def _broker(
        self, name: str, address: str, disk_free_min: int
    ) -> tuple[list[CheckResult], dict[str, str]]:
        """Checks of a broker, and its settings if it returns them."""
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
            advice = "another program listens there, or it refuses this request"
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
    reported = troubles.read(runtime)
    refusal = next((each for each in reported if each.refuses), None)
    if refusal is not None and settings.get("brokerRole") != SLAVE:
        yield CheckResult(check, refusal.level, REFUSES, refusal.finding.advice)
    else:
        yield CheckResult(check, "ok", f"answers, version {runtime.get('brokerVersionDesc', 'unknown')}")
    if (now := _clock(runtime)) is not None and abs(off := now - asked_at) > CLOCK_OFF_S_MAX:
        direction = "ahead of" if off > 0 else "behind"
        found = f"its clock is {abs(off):.0f} s {direction} this machine's"
        yield CheckResult(
            f"clock of {name}", "bad", found, "synchronize both machines: chrony or systemd-timesyncd"
        )
    own = [each for each in reported if each.check in (f"disk of {name}", f"store of {name}")]
    yield from map(_check, own)
    tiered = f"tiered storage of {name}"
    reported_here = (f"waiting messages of {name}", f"permission of {name}", f"role of {name}", tiered)
    yield from (_check(each) for each in reported if each.check in reported_here)
    if (stored := tiered_report.read(runtime)) and all(each.check != tiered for each in reported):
        yield CheckResult(tiered, "ok", stored)
    yield from _plugin_checks(name, reported, runtime)
    if not own and (fault := _disk_fault(settings, runtime, disk_free_min)) is not None:
        used = 100 * (first_number(runtime.get("commitLogDiskRatio")) or 0.0)
        advice = make_room(name, used, oldest_file(runtime, settings, asked_at))
        yield CheckResult(f"disk of {name}", "bad", fault, advice)
    for found, advice in exposure.of_broker(address, settings):
        yield CheckResult(f"exposure of {name}", "warn", found, advice)
    permission = settings.get("brokerPermission", "6")
    is_reported = any(each.check == f"permission of {name}" for each in reported)
    if not is_reported and permission.isdigit() and ~int(permission) & (Permission.READ | Permission.WRITE):
        # From Apache's, or another release.
        yield CheckResult(f"permission of {name}", "warn", *not_writable(name, int(permission)))


def _plugin_checks(name: str, reported: list[Trouble], runtime: dict[str, str]) -> Iterator[CheckResult]:
    """The plug-ins of a broker, with their problems."""
    found = {each.check: each for each in reported}
    for state in plugin_report.read(runtime):
        check = f"plug-in {state.name} of {name}"
        if (trouble := found.get(check)) is not None:
            yield _check(trouble)
        else:
            yield CheckResult(check, "ok", state.text)


def _clusters(known: dict[str, dict[int, str]]) -> Iterator[CheckResult]:
    """Brokers of one name in several clusters: name servers use the first or the last registration."""
    for name, clusters in sorted(known.items()):
        if len(set(clusters.values())) > 1:
            found = ", ".join(f"{broker_id} in {cluster}" for broker_id, cluster in sorted(clusters.items()))
            advice = "set the same brokerClusterName, or another brokerName for one of them, and restart it"
            yield CheckResult(
                f"cluster of {name}", "bad", f"brokers of one name are in different clusters: {found}", advice
            )


def _replica_checks(state: ReplicaState, troubles: list[Trouble]) -> Iterator[CheckResult]:
    """Checks of a reachable broker: whether a master has its slaves, whether a slave's log follows."""
    yield from map(_check, troubles)
    if troubles or state.log_end is None:
        return
    if state.is_master:
        if state.slaves:
            yield CheckResult(f"replicas of {state.broker}", "ok", f"{state.slaves} slaves are connected")
        return
    check = f"slave {state.broker_id} of {state.broker}"
    behind = f"{state.behind_bytes} bytes behind" if state.behind_bytes is not None else "unknown lag"
    if state.in_sync:
        yield CheckResult(check, "ok", f"in sync, {behind}")
    else:
        yield CheckResult(check, "ok", "was just started and is connecting to its master")


def _check(trouble: Trouble) -> CheckResult:
    return CheckResult(trouble.check, trouble.level, *trouble.finding)


def _once(checks: list[CheckResult]) -> Iterator[CheckResult]:
    """Each fault once: several brokers may report the same."""
    seen = set()
    for each in checks:
        if each.level == "ok" or (each.check, each.found) not in seen:
            seen.add((each.check, each.found))
            yield each


def _running(config: BrokerConfig, address: str, running: dict[str, str]) -> CheckResult:
    """Name the checked broker: a running one, or the one of the file, which could be started."""
    check = f"broker {config.name} of this file"
    actual = running.get("brokerName")
    if actual is None:
        return CheckResult(check, "ok", f"not running: no broker answers at {address}")
    if actual != config.name:
        return CheckResult(check, "ok", f"not running: {actual} answers at {address}")
    folder = running.get("storePathRootDir", config.store.folder)
    if folder != config.store.folder:
        found = f"the broker at {address} has its store in {folder}, not in {config.store.folder}"
        return CheckResult(check, "warn", found, "restart it with this file")
    return CheckResult(check, "ok", f"runs at {address}")


def _disk_fault(settings: dict[str, str], runtime: dict[str, str], free_min: int) -> str | None:
    """The reason why messages are refused, or soon will be."""
    used, full = runtime.get("commitLogDiskRatio", ""), settings.get("diskSpaceWarningLevelRatio", "100")
    try:
        if int(full) < 100 and float(used) * 100 >= int(full):
            return f"{float(used):.0%} in use: messages are refused from {full} %"
    except ValueError:
        pass  # A server with another format.
    free = free_bytes(runtime)
    if free is not None and free < free_min:
        return f"{free >> 20} MiB are free on the disk of its log"
    return None


def _agreement(views: dict[str, ClusterInfo]) -> Iterator[CheckResult]:
    """Brokers that not every name server knows."""
    every = {name for view in views.values() for name in view.broker_addr_table}
    for address, view in views.items():
        if missing := sorted(every - view.broker_addr_table.keys()):
            advice = f"add {address} to namesrvAddr of these brokers, or check its network"
            yield CheckResult(f"name server {address}", "bad", f"does not know {', '.join(missing)}", advice)


def _address_fault(address: str, name_servers: tuple[str, ...]) -> str | None:
    """The reason why remote or local clients cannot connect to an advertised address, or None."""
    try:
        host = parse(address).host
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except ConfigError:
        return f"the advertised {address} is not an address"
    except OSError:
        return f"the advertised name {host} cannot be resolved here"
    if all(ip_address(str(entry[4][0])).is_loopback for entry in found) and not all(
        _is_loopback(server) for server in name_servers
    ):
        return f"the advertised {host} refers to each client's own machine"
    return None


def _is_loopback(address: str) -> bool:
    try:
        host = parse(address).host
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _clock(runtime: dict[str, str]) -> float | None:
    """The time on the broker, to the second: its start time plus its uptime."""
    found = _DURATION.search(runtime.get("runtime", ""))
    booted = runtime.get("bootTimestamp", "")
    if found is None or not booted.isdigit():
        return None
    days, hours, minutes, seconds = map(int, found.groups())
    return int(booted) / 1_000 + ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _line(error: Exception) -> str:
    return " ".join(str(error.args[0] if error.args else error).split())
