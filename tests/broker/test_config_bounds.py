"""Bounds of settings: both halves accept both ends, and refuse values beyond with the operator's key."""

import copy
import re
from collections.abc import Iterator

import pytest

from rmqpy._native import Metadata, Store, store_settings
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.keys import Key, Settings
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.store import MAPPING, RING_BYTES, WRITE_PATH, StoreConfig
from rmqpy.errors import ConfigError

Case = tuple[type[Settings], str, Key]
LEVELS = "messageDelayLevel"


def bounded() -> Iterator[Case]:
    """Every number of every role."""
    for role in (StoreConfig, BrokerConfig, NameServerConfig):
        yield from ((role, wire, key) for wire, (_, key) in role.declared().items() if key.low is not None)


def hand_down(config: Settings) -> None:
    """Give a configuration to the native module, as a broker does; nothing is opened."""
    if isinstance(config, StoreConfig):
        Store(config)
    elif isinstance(config, BrokerConfig):
        Metadata(config, "127.0.0.1:10911")


@pytest.mark.parametrize(
    ("role", "wire", "key"), list(bounded()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_rust_and_python_accept_the_same_bounds(role: type[Settings], wire: str, key: Key) -> None:
    for end, step in ((key.low, -1), (key.high, 1)):
        if end is None:
            continue
        # The smallest write ring has no room for any message.
        hand_down(
            role.read({WRITE_PATH: MAPPING, wire: str(end)} if wire == RING_BYTES else {wire: str(end)})
        )
        with pytest.raises(ConfigError, match=f"^{wire}={end + step}: must be .*{key.unit}$"):
            role.read({wire: str(end + step)})


@pytest.mark.parametrize("wire", sorted(store_settings().keys() - {LEVELS}))
def test_store_checks_the_bounds_of_the_configuration(wire: str) -> None:
    native_key = store_settings()[wire]
    name, key = StoreConfig.declared()[wire]
    low, high = native_key.low, native_key.high
    assert (getattr(StoreConfig(), name), key.unit) == (native_key.default, native_key.unit)
    assert (key.low, key.high) == (low, high)
    # A configuration that has got around its own check.
    broken = copy.copy(StoreConfig())
    for value in {low - 1, high + 1} - {-1}:
        object.__setattr__(broken, name, value)
        with pytest.raises(ConfigError) as native:
            Store(broken)
        with pytest.raises(ConfigError, match=re.escape(str(native.value))):
            StoreConfig.read({wire: str(value)})


def test_there_is_a_bound_on_delay_levels_in_both_halves() -> None:
    low, high = store_settings()[LEVELS].low, store_settings()[LEVELS].high
    broken = copy.copy(StoreConfig())
    for count in (low, high):
        Store(StoreConfig.read({LEVELS: "1s " * count}))
    for count in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=LEVELS):
            StoreConfig.read({LEVELS: "1s " * count})
        object.__setattr__(broken, "delay_levels", "1s " * count)
        with pytest.raises(ConfigError, match=LEVELS):
            Store(broken)
