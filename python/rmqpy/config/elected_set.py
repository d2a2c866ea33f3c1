"""Configuration files of an elected set: name servers, controllers, and three or more brokers of one name.

On several hosts each has a name server and a broker, and the name servers of the first three or five have a controller.
On one machine there is one name server with one controller, and each broker has other ports.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rmqpy.config.addresses import LOOPBACK, HostPort
from rmqpy.config.client import NAMESRV_PORT
from rmqpy.config.keys import GRPC_PORT, HTTP_PORT
from rmqpy.errors import ConfigError

REPLICAS_MIN: Final = 3
CONTROLLER_PORT: Final = 9878
#: Controllers on several hosts: as many as there are hosts, but an odd number. More than five agree more slowly.
CONTROLLERS_MAX: Final = 5
_SECRET_BYTES: Final = 32
BROKER_PORT: Final = 10911
#: Between ports of brokers of one machine; slaves connect to the port above the main one.
PORT_STEP: Final = 10


_ADVERTISED: Final = """\
# Clients connect to the first address, the other replicas to the second one.
brokerIP1={host}
brokerIP2={host}
"""


class ServerFile(NamedTuple):
    """The configuration of one server."""

    host: str
    role: Literal["namesrv", "broker"]
    path: Path
    text: str

    @property
    def command(self) -> str:
        """The command that starts it."""
        return f"rmqpy {self.role} -c {self.path}"


def files(
    folder: Path, hosts: Sequence[str], *, cluster: str, broker: str, data: Path | None
) -> list[ServerFile]:
    """The files of a set on these hosts, or on this machine if all are the same. `data`: folder of the messages on each
    host; on this machine the default is `folder`, elsewhere /var/lib/rmqpy.

    Raises `ConfigError` for too few hosts, and for a host that stands twice among others.
    """
    if len(hosts) < REPLICAS_MIN:
        raise ConfigError(
            f"{len(hosts)} hosts: an elected set needs {REPLICAS_MIN}",
            hint="with two, every message is refused while one of them is down",
        )
    is_one_machine = len(set(hosts)) == 1
    if not is_one_machine and len(set(hosts)) < len(hosts):
        raise ConfigError("a host stands twice: give each once, or none for a set on this machine")
    root = (data or (folder if is_one_machine else Path("/var/lib/rmqpy"))).absolute()
    name_servers = hosts[:1] if is_one_machine else hosts
    controllers = (
        hosts[:1] if is_one_machine else hosts[: min(len(hosts) - (len(hosts) + 1) % 2, CONTROLLERS_MAX)]
    )
    secret = secrets.token_hex(_SECRET_BYTES) if len(controllers) > 1 else ""
    found = [
        ServerFile(
            host,
            "namesrv",
            folder / f"namesrv-{number + 1}.conf",
            _name_server(host, root)
            + (_controller(number, controllers, root, secret) if host in controllers else ""),
        )
        for number, host in enumerate(name_servers)
    ]
    addresses = ";".join(str(HostPort(host, NAMESRV_PORT)) for host in name_servers)
    asked = ";".join(str(HostPort(host, CONTROLLER_PORT)) for host in controllers)
    for number, host in enumerate(hosts, 1):
        step = PORT_STEP * (number - 1) if is_one_machine else 0
        store = root / (f"broker-{number}" if is_one_machine else "store")
        text = f"""\
# Broker {number} of {len(hosts)}: docs/controller.md
brokerClusterName={cluster}
brokerName={broker}
namesrvAddr={addresses}
# The controllers give each broker its id and its role.
enableControllerMode=true
controllerAddr={asked}
{"" if host == LOOPBACK else _ADVERTISED.format(host=host)}listenPort={BROKER_PORT + step}
grpcServerPort={GRPC_PORT + step}
httpPort={HTTP_PORT + step}
storePathRootDir={store}
# Other replicas serve consumers while the set has no master.
slaveReadEnable=true
"""
        found.append(ServerFile(host, "broker", folder / f"broker-{number}.conf", text))
    return found


def _name_server(host: str, root: Path) -> str:
    return f"""\
# Name server: clients and brokers ask any of them.
bindAddress={host}
listenPort={NAMESRV_PORT}
kvConfigPath={root / "kvConfig.json"}
"""


def _controller(number: int, controllers: Sequence[str], root: Path, secret: str) -> str:
    peers = ";".join(f"n{place}-{HostPort(host, CONTROLLER_PORT)}" for place, host in enumerate(controllers))
    text = f"""\
# The controllers elect masters. Every process that reaches this port can do so, too: restrict it by a firewall, or
# by TLS and access control.
enableControllerInNamesrv=true
controllerDLegerPeers={peers}
controllerStorePath={root / "controller"}
"""
    if secret:
        text += f"""\
controllerDLegerSelfId=n{number}
# The controllers seal their calls to each other with it.
controllerGroupSecret={secret}
"""
    return text


def write(found: Sequence[ServerFile]) -> None:
    """Write the files, but none if one of them exists.

    Raises `ConfigError` if a file exists, `OSError` if one cannot be written.
    """
    if existing := [str(each.path) for each in found if each.path.exists()]:
        raise ConfigError(f"{existing[0]} exists", hint="choose another folder, or remove it")
    for each in found:
        each.path.parent.mkdir(parents=True, exist_ok=True)
        each.path.touch(mode=0o600 if "controllerGroupSecret" in each.text else 0o666, exist_ok=False)
        each.path.write_text(each.text, encoding="utf-8")
