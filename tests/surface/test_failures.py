"""Table of failures and surfaces: log, /readyz, `cluster info`, `cluster replicas`, doctor and the console's strip
say the same sentence.

A row has the facts of one failure, as brokers and a name server have them. The surfaces run as they are; only the
network is missing. docs/replicas.md describes the same failures for operators.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from rmqpy import findings
from rmqpy._native import Store
from rmqpy.admin.checks import CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.cluster import BrokerState, Cluster
from rmqpy.admin.connection import AdminConnection
from rmqpy.admin.group_health import group_checks
from rmqpy.admin.groups import Member, Progress
from rmqpy.admin.health import Health
from rmqpy.admin.replicas import Replicas
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.replication import ReplicationConfig
from rmqpy.config.store import StoreConfig
from rmqpy.console.api.status import status
from rmqpy.control.standing import Standing
from rmqpy.errors import RocketMQError
from rmqpy.findings import Finding, Trouble
from rmqpy.monitor.exposition import Exposition
from rmqpy.monitor.pages import READY, pages
from rmqpy.protocol import troubles
from rmqpy.protocol.replica_findings import of_master, of_slave
from rmqpy.protocol.requests.brokers import (
    BrokerConfigReply,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    StringTable,
)
from rmqpy.protocol.requests.replicas import (
    GetBrokerHaStatus,
    HaStatus,
    MasterConnection,
    RefusedSlave,
    SlaveConnection,
)
from rmqpy.protocol.requests.routes import BrokerData, ClusterInfo, GetClusterInfo, GoneBroker

NAME_SERVER = "127.0.0.1:9876"
OLD = "127.0.0.9:10911"
#: In the middle of a minute, since sentences have minutes.
SINCE = datetime.now(UTC).replace(second=30) - timedelta(hours=1)
EVERYWHERE = frozenset({"log", "readyz", "info", "replicas", "doctor", "strip"})
#: While messages are accepted the broker is ready.
READY_STILL = EVERYWHERE - {"readyz"}
#: The store logs its own events.
OF_STORE = EVERYWHERE - {"log"}
IN_SYNC = SlaveConnection(addr="127.0.0.3:1", in_sync=True)
LOST = MasterConnection(
    is_connected=False,
    answers=False,
    is_registered=False,
    silent_millis=12_000,
    behind_bytes=0,
    broker_addr=OLD,
    apart_millis=60_000,
)


@dataclass
class Failure:
    """Facts, and where the sentence has to be."""

    id: str
    finding: Finding
    on: frozenset[str] = EVERYWHERE
    level: str = "bad"
    #: By broker id.
    status: Mapping[int, HaStatus] = field(default_factory=lambda: {0: HaStatus(master=True)})
    counters: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Trouble | None = None
    gone_since: datetime | None = None
    duplicates: tuple[str, ...] = ()

    @property
    def reporter(self) -> int:
        return max(self.status)


FAILURES = [
    Failure(
        "a slave is down",
        findings.few_slaves(0, 1),
        READY_STILL,
        "warn",
        {0: HaStatus(master=True, slaves_expected=1, copies_wanted=1)},
    ),
    Failure(
        "a slave of a SYNC_MASTER is down",
        findings.few_copies(1, 2, refuses=False),
        READY_STILL,
        status={0: HaStatus(master=True, slaves_expected=1, copies_wanted=2, copies_min=1)},
    ),
    Failure(
        "too few copies",
        findings.few_copies(1, 2, refuses=True),
        status={0: HaStatus(master=True, slaves_expected=1, copies_wanted=2, copies_min=2)},
    ),
    Failure(
        "the master is down",
        findings.no_master("broker-a", 1, OLD, 12.0, acts=False),
        READY_STILL,
        status={1: HaStatus(ha_client_runtime_info=LOST)},
    ),
    Failure(
        "a slave was promoted",
        findings.not_back("broker-a", OLD, 17, findings.few_slaves(0, 1)),
        READY_STILL,
        "warn",
        {0: HaStatus(master=True, slaves_expected=1, copies_wanted=1, replaced=OLD, led_since=17)},
    ),
    Failure(
        "replies promise fewer copies",
        findings.weaker_promise("broker-a", 1, 2),
        READY_STILL,
        "warn",
        {0: HaStatus(master=True, copies_wanted=1, copies_before=2)},
    ),
    Failure(
        "a slave is slow",
        findings.slow("10 bytes behind", 90.0),
        READY_STILL,
        "warn",
        {
            1: HaStatus(
                ha_client_runtime_info=MasterConnection(
                    is_connected=True, silent_millis=100, behind_bytes=10, behind_millis=90_000
                )
            )
        },
    ),
    Failure(
        "the disk of a slave is full",
        findings.not_following("broker-a", "10 bytes behind", "the connection has ended: the disk is full"),
        READY_STILL,
        status={
            1: HaStatus(
                ha_client_runtime_info=MasterConnection(
                    is_connected=False,
                    answers=True,
                    is_registered=True,
                    silent_millis=60_000,
                    behind_bytes=10,
                    apart_millis=60_000,
                    fault="the connection has ended: the disk is full",
                )
            ),
            0: HaStatus(master=True, master_commit_log_max_offset=10),
        },
    ),
    Failure(
        "the logs have diverged",
        findings.diverged("this log and the master's differ before 100"),
        READY_STILL,
        status={
            1: HaStatus(
                ha_client_runtime_info=MasterConnection(
                    is_diverged=True, fault="this log and the master's differ before 100"
                )
            )
        },
    ),
    Failure(
        "a slave has no ticket",
        findings.no_ticket("127.0.0.3"),
        READY_STILL,
        "warn",
        {
            0: HaStatus(
                master=True, refused_slaves=[RefusedSlave(addr="127.0.0.3", reason="no", lacks_ticket=True)]
            )
        },
    ),
    Failure(
        "the master comes back after its slave was promoted",
        findings.replaced("broker-a", OLD, 17),
        own=Trouble("master of broker-a", "bad", findings.replaced("broker-a", OLD, 17), refuses=True),
    ),
    Failure(
        "two unrelated masters of one name",
        findings.duplicate("broker-a", ("127.0.0.1:10911", OLD)),
        frozenset({"info", "replicas", "doctor", "strip"}),
        duplicates=("127.0.0.1:10911", OLD),
    ),
    Failure(
        "a broker is gone",
        findings.gone("127.0.0.7:10911", SINCE, is_stopped=False),
        frozenset({"info", "doctor", "strip"}),
        gone_since=SINCE,
    ),
    Failure(
        "the controllers are down",
        findings.without_role("broker-a", "no controller knows a leader"),
        READY_STILL - {"replicas"},
        own=Trouble(
            "role of broker-a", "bad", findings.without_role("broker-a", "no controller knows a leader")
        ),
    ),
    Failure(
        "the controllers are down, and the lease of the master has ended",
        findings.without_role("broker-a", "no controller knows a leader"),
        own=Trouble(
            "role of broker-a",
            "bad",
            findings.without_role("broker-a", "no controller knows a leader"),
            refuses=True,
        ),
    ),
    Failure("a flush failed", findings.read_only("the flush failed"), OF_STORE, failure="the flush failed"),
    Failure(
        "messages were not delivered",
        findings.undelivered(2),
        frozenset({"info", "doctor", "strip"}),
        "warn",
        counters={"undelivered": 2},
    ),
    Failure(
        "an operator closed the broker",
        findings.not_writable("broker-a", 4),
        OF_STORE,
        "warn",
        settings={"permission": 4},
    ),
]


class PaperStore:
    """The facts that a broker reads from its store."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure.failure
        self._counters = dict(failure.counters)

    def statistics(self) -> dict[str, int]:
        return self._counters


class PaperNames:
    addresses = (NAME_SERVER,)


class PaperCluster(AdminConnection):
    """A connection whose servers are facts."""

    def __init__(self, failure: Failure, standing: Standing) -> None:
        self.tls, self.timeout, self.left_out = None, 1.0, set()
        self.name_servers = cast(Any, PaperNames())
        self._failure, self._standing = failure, standing

    async def cluster_info(self) -> ClusterInfo:
        addresses = {broker_id: address_of(broker_id) for broker_id in self._failure.status}
        since, duplicates = self._failure.gone_since, self._failure.duplicates
        return ClusterInfo(
            broker_addr_table={
                "broker-a": BrokerData(broker_name="broker-a", cluster="c", broker_addrs=addresses)
            },
            cluster_addr_table={"c": ["broker-a"]},
            duplicate_broker_addrs={"broker-a": list(duplicates)} if duplicates else None,
            gone_brokers=[gone_broker(since)] if since else None,
        )

    async def ask(self, address: str, ask: Any) -> Any:
        is_other = address in self._failure.duplicates
        broker_id = 0 if is_other else int(address.rpartition(".")[2].partition(":")[0]) - 1
        match ask:
            case GetClusterInfo():
                return await self.cluster_info()
            case GetBrokerHaStatus():
                return self._failure.status[broker_id]
            case GetBrokerRuntimeInfo():
                return StringTable(table=self._runtime(broker_id))
            case GetBrokerConfig():
                role = "ASYNC_MASTER" if broker_id == 0 else "SLAVE"
                permission = self._failure.settings.get("permission", 6)
                text = f"brokerName=broker-a\nbrokerRole={role}\nbrokerPermission={permission}\n"
                return BrokerConfigReply(version="{}", body=text)
        raise RocketMQError("not served")

    async def outcomes(self, servers: Iterable[tuple[str, str]], ask: Any) -> Any:
        return [(name, address, await self.ask(address, ask)) for name, address in servers]

    def _runtime(self, broker_id: int) -> dict[str, str]:
        found = self._standing.now() if broker_id == self._failure.reporter else []
        return {"brokerVersionDesc": "V5_5_0", "commitLogDiskRatio": "0.1", **troubles.write(found)}


def gone_broker(since: datetime) -> GoneBroker:
    ago = datetime.now(UTC) - since
    return GoneBroker(
        cluster="c",
        broker_name="broker-b",
        broker_id=0,
        broker_addr="127.0.0.7:10911",
        gone_millis=round(ago.total_seconds() * 1_000),
    )


def address_of(broker_id: int) -> str:
    return f"127.0.0.{broker_id + 1}:10911"


class PaperAdmin:
    def __init__(self, cluster: AdminConnection) -> None:
        self._cluster = cluster

    async def health(self) -> list[CheckResult]:
        return await Health(self._cluster).cluster(disk_free_min=0)

    async def brokers(self) -> list[BrokerState]:
        return await Cluster(self._cluster).brokers()

    async def group_summaries(self) -> list[Any]:
        return []

    async def dead_letters(self) -> list[Any]:
        return []


class Surfaces(NamedTuple):
    """What an operator reads in each place, and whether a place looks well."""

    said: dict[str, str]
    #: Levels by check.
    doctor: dict[str, str]
    #: Of the worst problem in the console.
    strip: str
    ready: int
    brokers: list[BrokerState]


async def surfaces(failure: Failure, folder: Path, caplog: pytest.LogCaptureFixture) -> Surfaces:
    config = BrokerConfig(
        name="broker-a",
        store=StoreConfig(root=str(folder)),
        replication=ReplicationConfig(
            broker_id=failure.reporter, role="SLAVE" if failure.reporter else "ASYNC_MASTER"
        ),
        **failure.settings,
    )

    def of_replicas() -> Iterable[Trouble]:
        facts = failure.status[failure.reporter]
        if failure.own is not None:
            return [failure.own]
        return of_master("broker-a", facts) if facts.master else of_slave("broker-a", failure.reporter, facts)

    standing = Standing(lambda: config, cast(Store, PaperStore(failure)), of_replicas)
    with caplog.at_level(logging.INFO, "rmqpy.control.standing"):
        standing.look(looks_min=1)

    async def no_metrics(_accept: str) -> Exposition:
        raise AssertionError

    ready = await pages(no_metrics, fault=lambda: None, unready=lambda: standing.refusal)[READY]("")
    cluster = PaperCluster(failure, standing)
    brokers = await Cluster(cluster).brokers(with_gone=True)
    replicas = await Replicas(cluster).states()
    admin = PaperAdmin(cluster)
    checks = await admin.health()
    strip = await cast(Any, status).work(cast(AsyncAdmin, admin))
    return Surfaces(
        {
            "log": "\n".join(each.getMessage() for each in caplog.records),
            "readyz": ready.body,
            "info": "\n".join(each.fault or "" for each in brokers),
            "replicas": "\n".join(each.fault or "" for each in replicas),
            "doctor": "\n".join(f"{each.found}; {each.advice}" for each in checks),
            "strip": "\n".join(f"{each.found}; {each.advice}" for each in strip.items),
        },
        {each.check: each.level for each in checks if each.found == failure.finding.found},
        strip.level,
        int(ready.status),
        brokers,
    )


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.id)
async def test_every_surface_says_the_same_sentence(
    failure: Failure, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = await surfaces(failure, tmp_path, caplog)
    said = {place for place, text in found.said.items() if failure.finding.found in text}
    assert said == failure.on, found.said
    with_advice = {place for place, text in found.said.items() if str(failure.finding) in text}
    assert with_advice == failure.on & {"log", "readyz", "doctor", "strip"}
    assert set(found.doctor.values()) == {failure.level}
    assert found.strip in ("bad", failure.level)


@pytest.mark.parametrize(
    "failure",
    [each for each in FAILURES if "readyz" in each.on],
    ids=lambda failure: failure.id,
)
async def test_broker_that_refuses_messages_is_neither_ready_nor_well(
    failure: Failure, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = await surfaces(failure, tmp_path, caplog)
    assert found.ready == 503
    assert [each.refuses for each in found.brokers] == [True]
    assert "answers, but refuses messages" in found.said["doctor"]


async def test_fresh_master_raises_no_alarm_until_its_slaves_had_time(tmp_path: Path) -> None:
    def found(started_ms: int, copies_min: int) -> list[bool]:
        facts = HaStatus(
            master=True, slaves_expected=1, copies_wanted=2, copies_min=copies_min, started_millis=started_ms
        )
        return [each.refuses for each in of_master("broker-a", facts)]

    assert found(3_000, copies_min=1) == []
    assert found(11_000, copies_min=1) == [False]
    assert found(3_000, copies_min=2) == [True], "a refusal is reported immediately"


def progress(lag: int, behind_ms: int, queue_id: int = 0) -> Progress:
    return Progress("broker-a", "orders", queue_id, 10, 10 + lag, behind_ms)


MEMBER = Member("c-1", "127.0.0.1:1", "PYTHON", 1, "", ("broker-a",), {"orders": "*"})
OTHER = MEMBER._replace(client_id="c-2", subscriptions={"orders": "paid"})
SLOW = 120_000


@pytest.mark.parametrize(
    ("queues", "members", "is_enabled", "finding"),
    [
        ([progress(12, SLOW)], [], True, findings.no_consumer("billing", 12)),
        ([progress(12, SLOW)], [MEMBER], False, findings.consumption_disabled("billing")),
        ([progress(0, 0)], [MEMBER, OTHER], True, findings.subscriptions_differ()),
        (
            [progress(1, SLOW), progress(1, 0, 1)],
            [MEMBER],
            True,
            findings.waiting_queue("broker-a:0", 10, 120),
        ),
        (
            [progress(990, SLOW), progress(10, SLOW, 1)],
            [MEMBER],
            True,
            findings.hot_queue("broker-a:0", 0.99),
        ),
        ([progress(50, SLOW), progress(50, SLOW, 1)], [MEMBER], True, findings.slow_members(100, 1, 120)),
        ([progress(50, 100)], [MEMBER], True, None),
    ],
    ids=["no consumer", "disabled", "subscriptions", "poison message", "hot queue", "slow", "traffic"],
)
def test_group_that_lags_has_a_reason(
    queues: list[Progress], members: list[Member], is_enabled: bool, finding: Finding | None
) -> None:
    (found,) = group_checks("billing", queues, members, is_enabled=is_enabled)
    if finding is None:
        assert found.level == "ok"
    else:
        assert (found.check, found.found, found.advice) == ("group billing", *finding)
