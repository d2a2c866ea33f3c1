"""Pages of servers that others can reach: they need the token."""

from http.client import HTTPConnection
from pathlib import Path

import pytest

from rmqpy.broker import Broker
from rmqpy.config.broker import read
from rmqpy.config.namesrv import read as read_namesrv
from rmqpy.namesrv import NameServer
from rmqpy.server import Thread

ON = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
PAGES = ("/metrics", "/livez", "/healthz", "/readyz")
#: Every address of this machine.
OPEN = "0.0.0.0"


def statuses(address: str | None, authorization: str = "") -> tuple[int, ...]:
    assert address is not None
    found = []
    for page in PAGES:
        connection = HTTPConnection("127.0.0.1", int(address.rpartition(":")[2]), timeout=30)
        connection.request("GET", page, headers={"Authorization": authorization} if authorization else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        assert "the-token" not in text
        found.append(answer.status)
        connection.close()
    return tuple(found)


@pytest.mark.parametrize(
    ("settings", "without", "with_token"),
    [
        ({"bindAddress": "127.0.0.1", "httpToken": "the-token"} | ON, (200,) * 4, (200,) * 4),
        ({"bindAddress": OPEN}, (200,) * 4, (200,) * 4),
        ({"bindAddress": OPEN, "httpToken": "the-token"}, (401, 200, 401, 401), (200,) * 4),
        ({"bindAddress": OPEN, "httpToken": "the-token"} | ON, (401, 200, 401, 401), (200,) * 4),
        ({"bindAddress": OPEN} | ON, (401, 200, 401, 401), (401, 200, 401, 401)),
    ],
)
def test_remote_pages_need_the_token(
    tmp_path: Path, settings: dict[str, str], without: tuple[int, ...], with_token: tuple[int, ...]
) -> None:
    files = {
        "storePathRootDir": str(tmp_path),
        "brokerIP1": "127.0.0.1",
        "mappedFileSizeCommitLog": "1048576",
    }
    server = Broker(read({"listenPort": "0", "httpPort": "0", "namesrvAddr": "", **files, **settings}).config)
    thread = Thread(server)
    thread.start()
    try:
        assert statuses(server.http_address) == without
        assert statuses(server.http_address, "Bearer the-token") == with_token
        assert statuses(server.http_address, "Bearer another") == without
        assert statuses(server.http_address, "Basic the-token") == without
        assert statuses(server.http_address, "Bearer ") == without
    finally:
        thread.stop()


def test_metrics_of_a_name_server_need_the_token(tmp_path: Path) -> None:
    given = {
        "listenPort": "0",
        "httpPort": "0",
        "kvConfigPath": "",
        "configStorePath": "",
        "bindAddress": OPEN,
    }
    server = NameServer(read_namesrv({**given, "httpToken": "the-token"}).config)
    thread = Thread(server)
    thread.start()
    try:
        assert statuses(server.http_address) == (401, 200, 401, 401)
        assert statuses(server.http_address, "bearer the-token") == (200,) * 4
    finally:
        thread.stop()
