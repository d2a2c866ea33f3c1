"""The masters of a cluster: who is asked about topics and groups."""

from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.protocol.requests.routes import GetClusterInfo
from rmqpy.remoting.client import Caller
from rmqpy.remoting.nameservers import NameServers

MASTER_ID = 0


async def masters(caller: Caller, name_servers: NameServers, cluster: str | None = None) -> dict[str, str]:
    """Name to address of every master of the cluster; the cluster may be left out where there is only one."""
    info = (await name_servers.ask(caller, GetClusterInfo())).body
    if cluster is None:
        if len(info.cluster_addr_table) > 1:
            raise ConfigError(f"name one of the clusters {', '.join(sorted(info.cluster_addr_table))}")
        cluster = next(iter(info.cluster_addr_table), "")
    found = {
        name: address
        for name in info.cluster_addr_table.get(cluster, ())
        if (address := info.broker_addr_table[name].broker_addrs.get(MASTER_ID)) is not None
    }
    if not found:
        raise RocketMQError("no broker is registered", hint="start one: rmqpy broker")
    return found
