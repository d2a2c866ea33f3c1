"""Cuts, lost machines and power losses under load: `make campaign NAME=controller-cuts` (root).

Three machines, each with a controller and a broker of one set, in namespaces of networks; senders and the name server
are on this machine. Each round hits the machine of the master, as `rounds` describes.

`isolate` cuts the machine off; `silence` drops what it sends, and `deafen` what is sent to it; `hide` drops what it
sends to the other controllers, so that only the lease ends its role; `machine` kills broker and controller, and cuts
the machine off, so that no connection is closed; `power` also takes the part of the store that was not flushed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from campaigns.election import rounds
from campaigns.election.elected_set import ElectedSet
from campaigns.election.machines import Machine, Network, network
from campaigns.election.servers import Server
from crash.loopback import MountedImage

MACHINES = 3
FAULTS = ("isolate", "silence", "deafen", "hide", "machine", "power")
_IMAGE_BYTES = 2 << 30


class Cluster:
    """The servers on their machines, and what can happen to them."""

    def __init__(self, elected: ElectedSet, net: Network, disks: list[MountedImage]) -> None:
        self.elected = elected
        self._net = net
        self._disks = disks

    def hit(self, fault: str) -> Callable[[], None]:
        """Hit the machine of the master; the returned function repairs it."""
        master = self.elected.master()
        number = self.elected.brokers.index(master)
        machine = self._net.machines[number]
        cuts: dict[str, Callable[[Machine], None]] = {
            "isolate": self._net.isolate,
            "silence": self._net.silence,
            "deafen": self._net.deafen,
            "hide": self._net.hide_controllers,
        }
        if fault in cuts:
            cuts[fault](machine)
            return self._net.mend
        controller = self.elected.controllers[number]
        # First the network, so that no connection is closed by the kernel of a machine that is gone.
        self._net.isolate(machine)
        if fault == "power":
            self._disks[number].cut_power()
        master.kill()
        controller.kill()
        return lambda: self._start_again(
            master, controller, self._disks[number] if fault == "power" else None
        )

    def _start_again(self, master: Server, controller: Server, disk: MountedImage | None) -> None:
        if disk is not None:
            disk.unmount()
            disk.mount()
        self._net.mend()
        controller.start()
        master.start()


@contextmanager
def cluster(folder: Path, *, has_disks: bool) -> Iterator[Cluster]:
    """The running servers. Each broker has a disk that can lose its power, if `has_disks`."""
    with ExitStack() as undo:
        net = undo.enter_context(network(MACHINES))
        disks = []
        for number in range(MACHINES if has_disks else 0):
            place = folder / f"disk-{number}"
            place.mkdir()
            disks.append(undo.enter_context(MountedImage(place, _IMAGE_BYTES)))
        elected = ElectedSet(
            folder,
            MACHINES,
            MACHINES,
            network=net,
            stores=[disk.mount_point / "store" for disk in disks],
        )
        elected.start(undo)
        yield Cluster(elected, net, disks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each fault")
    parser.add_argument("--faults", default=",".join(FAULTS))
    given = parser.parse_args()
    faults = given.faults.split(",")
    with (
        tempfile.TemporaryDirectory(prefix="rmqpy-cuts-") as name,
        cluster(Path(name), has_disks="power" in faults) as found,
        rounds.showing_logs(found.elected),
    ):
        is_whole = rounds.run(found.elected, faults * given.rounds, found.hit)
    raise SystemExit(not is_whole)


if __name__ == "__main__":
    main()
