"""Members suspended for longer than their group waits: they do not touch queues lost meanwhile."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

import rmqpy
from benchmarks.processes import Child
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, send

MEMBER = Path(__file__).with_name("member.py")


class Member:
    """A member that can be paused, and what it prints."""

    def __init__(self, mode: str, server: Standalone, name: str, folder: Path) -> None:
        command = [sys.executable, str(MEMBER), mode, server.namesrv, name, name]
        self._mode = mode
        self.child = Child("member", command, folder, is_piped=True)
        self.had = 0
        #: Queues it gave up.
        self.given = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def pause(self) -> None:
        """Returns when it stands still."""
        os.kill(self.child.pid, signal.SIGUSR1 if self._mode == "pull" else signal.SIGSTOP)
        stat = Path(f"/proc/{self.child.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        os.kill(self.child.pid, signal.SIGCONT)

    def close(self) -> None:
        self.resume()
        assert self.child.stop(30.0) == 0, self.child.log_tail()
        self._reader.join()

    def _read(self) -> None:
        for line in self.child.stdout:
            match line.split():
                case [b"had", *_]:
                    self.had += 1
                case [b"changed", _, given]:
                    self.given += int(given)


@pytest.mark.parametrize("more_s", [0.0, 2.5], ids=["for a moment", "for longer"])
@pytest.mark.parametrize("mode", ["pull", "push"])
def test_paused_member_does_not_overwrite_commits(
    server: Standalone, topic: str, tmp_path: Path, mode: str, more_s: float
) -> None:
    send(server, topic, [body for body in BODIES for _ in range(8)])
    member = Member(mode, server, topic, tmp_path)
    try:
        until(lambda: member.had > 40)
        member.pause()
        with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as other:
            other.subscribe(topic)
            until(lambda: (other.poll(0.05), len(other.assignment()) == 2)[1])
            while other.poll(0.2):
                pass
            other.commit()
            reached = {queue: other.position(queue) for queue in other.assignment()}
            time.sleep(more_s)  # the length of the pause is the case
            member.resume()

            def kept() -> None:
                assert {queue: other.committed(queue) for queue in reached} == reached

            # A push consumer gives up the one of retries as well, at times.
            until(lambda: (kept(), member.given >= 2)[1])
            kept()
            member.close()
            kept()
    finally:
        # Also while it is paused.
        member.child.kill()
