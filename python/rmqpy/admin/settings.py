"""Settings of running servers: read, compared, changed."""

from collections.abc import Mapping

from rmqpy.admin.link import Part
from rmqpy.config import properties
from rmqpy.errors import ConfigError
from rmqpy.protocol.requests.brokers import GetBrokerConfig, UpdateBrokerConfig
from rmqpy.protocol.requests.kv import GetNameServerConfig, UpdateNameServerConfig


class ServerSettings(Part):
    """The settings of the brokers and name servers of a cluster."""

    async def of_broker(self, name: str) -> dict[str, str]:
        """All settings of a broker, named as in broker.conf. Raises `ConfigError` for a broker that is not known."""
        return properties.parse((await self._link.ask(await self._address(name), GetBrokerConfig())).body)

    async def change_broker(self, name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker; it refuses those that only its file may hold."""
        body = properties.replace("", settings)
        await self._link.ask(await self._address(name), UpdateBrokerConfig(body=body))

    async def of_name_servers(self) -> dict[str, dict[str, str]]:
        """All settings of each name server, by address."""
        return {
            address: properties.parse((await self._link.ask(address, GetNameServerConfig())).body)
            for address in self._link.name_servers.addresses
        }

    async def change_name_servers(self, settings: Mapping[str, str]) -> None:
        """Change settings of every name server."""
        for address in self._link.name_servers.addresses:
            await self._link.ask(address, UpdateNameServerConfig(body=properties.replace("", settings)))

    async def _address(self, name: str) -> str:
        info = await self._link.cluster_info()
        known = {
            broker.broker_name: broker.broker_addrs[min(broker.broker_addrs)]
            for broker in info.broker_addr_table.values()
            if broker.broker_addrs
        }
        if name not in known:
            raise ConfigError(f"there is no broker {name!r}; there are {', '.join(sorted(known)) or 'none'}")
        return known[name]
