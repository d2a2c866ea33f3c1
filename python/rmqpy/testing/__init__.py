"""Real servers for tests, in the test's process, without fakes and without leftovers.

::

    def test_an_order_is_sent():
        with rmqpy.testing.broker() as server, rmqpy.Producer(server.namesrv) as producer:
            assert producer.send("orders", b"first").ok
"""

from rmqpy._native import HandClock
from rmqpy.testing.cluster import SMALL, Cluster, broker

__all__ = ["SMALL", "Cluster", "HandClock", "broker"]
