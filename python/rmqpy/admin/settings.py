"""Settings of running servers: read and change."""

from collections.abc import Mapping
from datetime import timedelta

from rmqpy.admin.connection import Part
from rmqpy.config import properties
from rmqpy.config.keys import nearest
from rmqpy.config.store import StoreConfig
from rmqpy.errors import BrokerError, ConfigError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.brokers import GetBrokerConfig, UpdateBrokerConfig
from rmqpy.protocol.requests.kv import GetNameServerConfig, UpdateNameServerConfig


class ServerSettings(Part):
    """The settings of the brokers and name servers of a cluster."""

    async def of_broker(self, name: str) -> dict[str, str]:
        """Return all settings of a broker, named as in broker.conf. Raises `ConfigError` for an unknown broker."""
        return properties.parse((await self._cluster.ask(await self._address(name), GetBrokerConfig())).body)

    async def change_broker(self, name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a running broker, except those that only its file may contain.

        Raises `ConfigError` for unknown keys and invalid values; then nothing has changed.
        """
        address = await self._address(name)
        known = properties.parse((await self._cluster.ask(address, GetBrokerConfig())).body)
        _check_known(name, settings, known)
        try:
            await self._cluster.ask(address, UpdateBrokerConfig(body=properties.written(settings)))
        except BrokerError as error:
            if error.code == ResponseCode.INVALID_PARAMETER:
                raise ConfigError(str(error)) from error
            raise

    async def delay_level(self, delay: timedelta) -> int:
        """Return the level of this delay, the same on every broker, from 1 on. Raises `ConfigError` with the existing
        delays if there is none."""
        key = "messageDelayLevel"
        tables = {(await self.of_broker(name))[key] for name in await self._known()}
        if len(tables) != 1:
            raise ConfigError(f"the brokers differ in {key}" if tables else "no broker is registered")
        [table] = tables
        delays = StoreConfig.read({key: table}).delays_ms
        wanted = delay // timedelta(milliseconds=1)
        if wanted not in delays:
            raise ConfigError(f"no delay level is {delay.total_seconds():g} s; known delays: {table}")
        return delays.index(wanted) + 1

    async def of_name_servers(self) -> dict[str, dict[str, str]]:
        """Return all settings of each name server, by address."""
        return {
            address: properties.parse(await self._cluster.ask(address, GetNameServerConfig()))
            for address in self._cluster.name_servers.addresses
        }

    async def change_name_servers(self, settings: Mapping[str, str]) -> None:
        """Change settings of every name server. Raises `ConfigError` for keys that one does not have; then nothing has
        changed."""
        for address, known in (await self.of_name_servers()).items():
            _check_known(f"the name server {address}", settings, known)
        for address in self._cluster.name_servers.addresses:
            await self._cluster.ask(address, UpdateNameServerConfig(body=properties.written(settings)))

    async def _known(self) -> dict[str, str]:
        """Every registered broker and its address."""
        info = await self._cluster.cluster_info()
        return {
            broker.broker_name: broker.broker_addrs[min(broker.broker_addrs)]
            for broker in info.broker_addr_table.values()
            if broker.broker_addrs
        }

    async def _address(self, name: str) -> str:
        known = await self._known()
        if name not in known:
            raise ConfigError(f"unknown broker {name!r}; known brokers: {', '.join(sorted(known)) or 'none'}")
        return known[name]


def _check_known(server: str, settings: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Refuse keys that a server does not have: Apache's accepts and drops them."""
    for key in settings:
        if key not in known:
            close = nearest(key, known)
            raise ConfigError(
                f"{server} has no setting {key}", hint=f"did you mean {close}?" if close else None
            )
