"""A proxy as a server: its settings and its health."""

import json
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.proxy import load
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.proxy import ProxyServer
from rmqpy.server import Thread
from waiting import until


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rmq-proxy.json"


def test_settings_are_a_json_object_or_properties(file: Path) -> None:
    file.write_text(
        json.dumps(
            {"namesrvAddr": "10.0.0.1:9876;[::1]:9877", "grpcServerPort": 0, "authenticationEnabled": True}
        )
    )
    config, warnings = load(file)
    assert (config.name_servers, config.grpc_port) == (("10.0.0.1:9876", "[::1]:9877"), 0)
    assert (config.access.is_on, warnings) == (True, [])
    file.write_text("namesrvAddr=10.0.0.1:9876\ngrpcServerPort=8082\n")
    config, warnings = load(file, {"grpcServerPort": "8083"})
    assert (config.name_servers, config.grpc_port, warnings) == (("10.0.0.1:9876",), 8_083, [])


def test_other_keys_of_a_file_are_ignored_with_a_warning(file: Path) -> None:
    file.write_text(json.dumps({"rocketMQClusterName": "c", "grpcServerPrt": 1, "colour": "blue"}))
    assert load(file).warnings == [
        "rocketMQClusterName=c is ignored: not needed here",
        "grpcServerPrt=1 is unknown and ignored; did you mean grpcServerPort?",
        "colour=blue is unknown and ignored",
    ]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"grpcServerPrt": "1"}, "unknown key grpcServerPrt: did you mean grpcServerPort?"),
        ({"configStorePath": "x"}, "unknown key configStorePath"),
        ({"namesrvAddr": "nowhere"}, "namesrvAddr: 'nowhere' is not an address"),
        ({"proxyMode": "LOCAL"}, "proxyMode=LOCAL: must be one of CLUSTER, cluster"),
    ],
)
def test_mistakes_on_a_command_line_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, given)
    assert str(caught.value).startswith(reason)


def test_a_file_that_is_not_json_is_refused(file: Path) -> None:
    file.write_text('{"namesrvAddr": ')
    with pytest.raises(ConfigError, match=r"rmq-proxy\.json"):
        load(file)


def test_every_setting_is_written(file: Path) -> None:
    written = load(None, {"namesrvAddr": "10.0.0.1:9876"}).config.write()
    assert written["namesrvAddr"] == "10.0.0.1:9876"
    assert list(written) == sorted(written)
    assert {"authenticationEnabled", "tls.server.mode", "maxConnections"} <= written.keys()


def page(server: ProxyServer, path: str) -> tuple[int, str]:
    assert server.http_address is not None
    connection = HTTPConnection(server.http_address, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_proxy_is_ready_while_a_name_server_answers() -> None:
    names = NameServer(NameServerConfig(listen_port=0, kv_path="", store_path=""))
    serving = Thread(names)
    serving.start()
    given = {"namesrvAddr": names.address, "grpcServerPort": "0", "httpPort": "0"}
    server = ProxyServer(load(None, given).config)
    thread = Thread(server)
    thread.start()
    try:
        until(lambda: page(server, "/readyz") == (200, "ok\n"))
        assert page(server, "/metrics")[0] == 200
        serving.stop()
        lost = (503, f"no name server of {given['namesrvAddr']} answers\n")
        until(lambda: page(server, "/readyz") == lost)
        # Restarts would not help.
        assert [page(server, path)[0] for path in ("/livez", "/healthz")] == [200, 200]
    finally:
        thread.stop()
