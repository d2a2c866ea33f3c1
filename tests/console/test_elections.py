"""Elections in the console: controllers, masters, in-sync sets and leases."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rmqpy
from apiclient import api_of
from brokerprocess import broker_process
from rmqpy.config.client import ClientConfig
from rmqpy.config.controller import ControllerConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.controller import ControllerServer
from rmqpy.server import Standalone, Thread
from rmqpy.testing import Cluster
from waiting import until


def test_elections_have_master_epoch_in_sync_set_and_lease(tmp_path: Path) -> None:
    config = ControllerConfig(
        listen_port=0,
        controller_path=str(tmp_path / "controller"),
        store_path=str(tmp_path / "controller.properties"),
    )
    controller = Thread(server := ControllerServer(config))
    controller.start()
    with ExitStack() as running:
        running.callback(controller.stop)
        elected = {"enableControllerMode": True, "controllerAddr": server.address}
        with (
            Cluster(brokers=[]) as cluster,
            broker_process(cluster.namesrv, tmp_path / "one", "broker-a", **elected),
            broker_process(cluster.namesrv, tmp_path / "two", "broker-a", **elected),
            rmqpy.Admin(cluster.namesrv) as admin,
        ):
            until(lambda: sum(each.in_sync for each in admin.elections().replicas) == 2)
            dashboard = Thread(console := Dashboard(ClientConfig(namesrv=cluster.namesrv), port=0))
            dashboard.start()
            try:
                found: Any = api_of(console.address)("/elections").json
            finally:
                dashboard.stop()
            [leader] = found["controllers"]
            assert (leader["address"], leader["is_leader"], leader["fault"]) == (server.address, True, None)
            master, slave = sorted(found["replicas"], key=lambda each: not each["is_master"])
            assert (master["broker"], master["is_master"], slave["is_master"]) == ("broker-a", True, False)
            assert master["epoch"] >= 1
            assert {master["broker_id"], slave["broker_id"]} == {1, 2}
            assert (master["is_alive"], slave["is_alive"], slave["lease_seconds"]) == (True, True, None)
            assert 0 < master["lease_seconds"] <= config.lease_ms / 1_000
            assert (found["unknown"], found["missing"]) == ([], [])
            running.close()
            [gone] = admin.elections().controllers
            assert gone.fault is not None
            assert admin.elections().unknown == ["broker-a"]


def test_cluster_without_controllers_has_no_elections(reading: Standalone) -> None:
    found = api_of(reading.http)("/elections").json
    assert found == {"controllers": [], "replicas": [], "unknown": [], "missing": []}
