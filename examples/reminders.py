"""Reminders: messages with a delivery time, and a test that does not wait for it.

    python examples/reminders.py

A surgery reminds its patients a day before their appointment, and asks for feedback two hours after. One of them
cancels, and both letters are recalled. The broker of this program uses a clock that the program advances, so that the
week passes in a moment; everything else is as usual.
"""

from datetime import UTC, datetime, timedelta

import rmqpy
from rmqpy import testing

APPOINTMENTS = {
    "Ada": timedelta(days=3),
    "Grace": timedelta(days=2),
    "Edsger": timedelta(hours=30),
    "Alan": timedelta(days=4),
}


def main() -> None:
    clock = testing.HandClock()
    week = timedelta(days=7)
    with (
        # Brokers accept up to three days by default.
        testing.broker(clock=clock, timerMaxDelaySec=int(week.total_seconds())) as server,
        rmqpy.Producer(server.namesrv) as surgery,
        rmqpy.PullConsumer("letters", server.namesrv, start_from="earliest") as letters,
    ):
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_topic("letters", read_queues=1, write_queues=1)
        now = datetime.fromtimestamp(clock.wall_ms() / 1_000, UTC)
        sent = {
            patient: [
                surgery.send("letters", f"{patient}: tomorrow", deliver_at=now + until - timedelta(days=1)),
                surgery.send("letters", f"{patient}: how was it?", deliver_after=until + timedelta(hours=2)),
            ]
            for patient, until in APPOINTMENTS.items()
        }
        for letter in sent["Alan"]:
            if letter.recall_handle is not None:
                surgery.recall("letters", letter.recall_handle)
        letters.assign(surgery.queues("letters"))
        written = 0
        for day in range(1, 8):
            clock.advance(86_400)
            while messages := letters.poll(timeout=0.2):
                for message in messages:
                    print(f"day {day}: {message.text()}")
                written += len(messages)
    print(f"wrote {written} letters in a week")


if __name__ == "__main__":
    main()
