"""Bounds of settings: both halves take both ends of every one, and refuse what lies beyond by the operator's key."""

import copy
import re
from collections.abc import Iterator

import pytest

from rmqpy._native import Metadata, Store, store_settings
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.keys import Key, Settings
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.store import StoreConfig
from rmqpy.errors import ConfigError

Case = tuple[type[Settings], str, Key]
LEVELS = "messageDelayLevel"


def bounded() -> Iterator[Case]:
    """Every number of every role."""
    for role in (StoreConfig, BrokerConfig, NameServerConfig):
        yield from ((role, wire, key) for wire, (_, key) in role.declared().items() if key.low is not None)


def hand_down(config: Settings) -> None:
    """Give a configuration to the native half, as a broker does; nothing is opened."""
    if isinstance(config, StoreConfig):
        Store(config)
    elif isinstance(config, BrokerConfig):
        Metadata(config, "127.0.0.1:10911")


@pytest.mark.parametrize(
    ("role", "wire", "key"), list(bounded()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_both_halves_take_both_ends_and_nothing_beyond(role: type[Settings], wire: str, key: Key) -> None:
    for end, step in ((key.low, -1), (key.high, 1)):
        if end is None:
            continue
        hand_down(role.read({wire: str(end)}))
        with pytest.raises(ConfigError, match=f"^{wire}={end + step}: must be .*{key.unit}$"):
            role.read({wire: str(end + step)})


@pytest.mark.parametrize("wire", sorted(store_settings().keys() - {LEVELS}))
def test_what_the_store_checks_is_what_the_configuration_says(wire: str) -> None:
    default, low, high, unit = store_settings()[wire]
    name, key = StoreConfig.declared()[wire]
    assert (getattr(StoreConfig(), name), key.low, key.high, key.unit) == (default, low, high, unit)
    # A configuration that has got around its own check.
    broken = copy.copy(StoreConfig())
    for value in {low - 1, high + 1} - {-1}:
        object.__setattr__(broken, name, value)
        with pytest.raises(ConfigError) as native:
            Store(broken)
        with pytest.raises(ConfigError, match=re.escape(str(native.value))):
            StoreConfig.read({wire: str(value)})


def test_there_is_a_bound_on_delay_levels_in_both_halves() -> None:
    _, low, high, _ = store_settings()[LEVELS]
    broken = copy.copy(StoreConfig())
    for count in (low, high):
        Store(StoreConfig.read({LEVELS: "1s " * count}))
    for count in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=LEVELS):
            StoreConfig.read({LEVELS: "1s " * count})
        object.__setattr__(broken, "delay_levels", "1s " * count)
        with pytest.raises(ConfigError, match=LEVELS):
            Store(broken)
