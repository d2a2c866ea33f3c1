"""Timed messages of foreign clients, from a second to three days ahead, at a broker whose clock is moved by hand."""

import itertools
from collections.abc import Callable

import pytest

from rmqpy import testing

from . import wire
from .clients import InteropClient, ProcessClient
from .messages import MessageSpec

HOUR_S, DAY_S = 3_600, 86_400
WAITS_S = (1, 60, HOUR_S, DAY_S, 3 * DAY_S)
#: In ticks of a second: messages that wait for more than two hours are stored again on the way.
ROLL_WINDOW_SLOTS = 2 * HOUR_S
WHEEL = "rmq_sys_wheel_timer"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["java-5.5.0", "java-4.9.8", "go"])
def test_timed_messages_of_foreign_clients_come_at_their_times_up_to_three_days_ahead(
    client_of: Callable[[str], InteropClient], name: str
) -> None:
    client, clock, topic = client_of(name), testing.HandClock(), "diary"
    assert isinstance(client, ProcessClient)
    with testing.broker(clock=clock, timerRollWindowSlot=ROLL_WINDOW_SLOTS) as server:
        wire.create_topic(server.namesrv, server.broker, topic, 1)
        now_ms = clock.wall_ms()
        specs = [
            MessageSpec(str(wait).encode(), properties={"TIMER_DELIVER_MS": str(now_ms + wait * 1_000)})
            for wait in reversed(WAITS_S)
        ]
        sent = client.send(server.namesrv, topic, specs)
        assert [one.status for one in sent] == ["SEND_OK"] * len(WAITS_S)
        listener = client.listen(server.namesrv, topic, f"readers-{name}".replace(".", "_"))
        for count, (before, wait) in enumerate(itertools.pairwise((0, *WAITS_S)), start=1):
            for _ in range(before + HOUR_S, wait, HOUR_S):
                clock.advance(HOUR_S)
            clock.advance((wait - before - 1) % HOUR_S + 0.999)
            assert wire.max_offset(server.broker, topic, 0) == count - 1, "none is early"
            clock.advance(0.001)
            assert listener.wait_for(count)[-1].body == str(wait).encode()
        found = listener.stop()
        stored_ms = [one.stored_ms - now_ms for one in found]
        assert [one.body for one in found] == [str(wait).encode() for wait in WAITS_S]
        assert stored_ms == [wait * 1_000 for wait in WAITS_S]
        rolled = wire.max_offset(server.broker, WHEEL, 0) - len(WAITS_S)
        assert rolled >= (1 + 3) * DAY_S // (2 * HOUR_S) - 2, "it was stored again and again on its way"
