"""Endpoints for alerts: rules, alerts and receivers; silences and test notices."""

from contextvars import ContextVar
from typing import Annotated, Final, NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.alerts.watch import AlertStatus, AlertWatch
from rmqpy.console.endpoints import change, value
from rmqpy.console.schema import Between, Chars
from rmqpy.errors import AuthError, ConfigError


class Watched(NamedTuple):
    """The alerts of this process."""

    watch: AlertWatch | None
    #: Whether the visitor may change them: any without logins, else super users.
    may_change: bool


#: For the current request.
ALERTS: Final[ContextVar[Watched]] = ContextVar("alerts")


class Alerts(NamedTuple):
    """Alerts; `is_on` is false in a process without rules."""

    is_on: bool
    status: AlertStatus


@value("/alerts")
async def alerts(admin: AsyncAdmin) -> Alerts:
    """Return rules, alerts and receivers of this process."""
    watch = ALERTS.get().watch
    return Alerts(watch is not None, AlertStatus([], [], []) if watch is None else await watch.status())


@change("POST", "/alerts/silence")
async def silence(
    admin: AsyncAdmin, key: Annotated[str, Chars(1_000)], minutes: Annotated[int, Between(0, 10_080)]
) -> None:
    """Report nothing about an alert, by its id, or about a rule, by its name; 0 minutes end the silence."""
    await _changeable().silence(key, 60 * minutes)


@change("POST", "/alerts/test")
async def test(admin: AsyncAdmin, receiver: Annotated[str, Chars(200)]) -> None:
    """Send a test notice to a receiver."""
    await _changeable().test(receiver)


def _changeable() -> AlertWatch:
    watch, may_change = ALERTS.get()
    if watch is None:
        raise ConfigError(
            "this process watches no alerts", hint="set alertsFile, or --alerts of rmqpy dashboard"
        )
    if not may_change:
        raise AuthError("only super users may change alerts")
    return watch
