"""Configuration files of an elected set: name servers, a controller, and three or more brokers of one name.

On several hosts each has a name server and a broker, and the first one's name server has the controller. On one machine
there is one name server, and each broker has other ports.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rmqpy.config.addresses import LOOPBACK, HostPort
from rmqpy.config.client import NAMESRV_PORT
from rmqpy.config.keys import GRPC_PORT, HTTP_PORT
from rmqpy.errors import ConfigError

REPLICAS_MIN: Final = 3
CONTROLLER_PORT: Final = 9878
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
    found = [
        ServerFile(
            host,
            "namesrv",
            folder / f"namesrv-{number}.conf",
            _name_server(host, root, has_controller=number == 1),
        )
        for number, host in enumerate(name_servers, 1)
    ]
    addresses = ";".join(str(HostPort(host, NAMESRV_PORT)) for host in name_servers)
    for number, host in enumerate(hosts, 1):
        step = PORT_STEP * (number - 1) if is_one_machine else 0
        store = root / (f"broker-{number}" if is_one_machine else "store")
        text = f"""\
# Broker {number} of {len(hosts)}: docs/controller.md
brokerClusterName={cluster}
brokerName={broker}
namesrvAddr={addresses}
# The controller gives each broker its id and its role.
enableControllerMode=true
controllerAddr={HostPort(hosts[0], CONTROLLER_PORT)}
{"" if host == LOOPBACK else _ADVERTISED.format(host=host)}listenPort={BROKER_PORT + step}
grpcServerPort={GRPC_PORT + step}
httpPort={HTTP_PORT + step}
storePathRootDir={store}
# Other replicas serve consumers while the set has no master.
slaveReadEnable=true
"""
        found.append(ServerFile(host, "broker", folder / f"broker-{number}.conf", text))
    return found


def _name_server(host: str, root: Path, *, has_controller: bool) -> str:
    text = f"""\
# Name server: clients and brokers ask any of them.
bindAddress={host}
listenPort={NAMESRV_PORT}
kvConfigPath={root / "kvConfig.json"}
"""
    if has_controller:
        text += f"""\
# The controller elects masters. Every process that reaches its port can do so, too: restrict it by a firewall, or
# by TLS and access control.
enableControllerInNamesrv=true
controllerDLegerPeers=n0-{HostPort(host, CONTROLLER_PORT)}
controllerStorePath={root / "controller"}
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
        each.path.write_text(each.text, encoding="utf-8")
