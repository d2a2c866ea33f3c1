"""Proxies under test, in this process or in their own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rmqpy.config.proxy import load
from rmqpy.proxy import ProxyServer
from rmqpy.server import Thread


@contextmanager
def serving(namesrv: str, **settings: str) -> Iterator[ProxyServer]:
    """A proxy on a free port."""
    given = {"namesrvAddr": namesrv, "grpcServerPort": "0", **settings}
    server = ProxyServer(load(None, given).config)
    thread = Thread(server)
    thread.start()
    try:
        yield server
    finally:
        thread.stop()


@contextmanager
def proxy(namesrv: str, **settings: str) -> Iterator[str]:
    """The address of a proxy."""
    with serving(namesrv, **settings) as server:
        yield server.address


@contextmanager
def process(namesrv: str) -> Iterator[str]:
    """The address of a proxy in its own process."""
    command = [sys.executable, "-m", "rmqpy", "proxy", "-n", namesrv, "grpcServerPort=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            assert ready.endswith(" is ready\n")
            yield ready.split()[-3]
        finally:
            child.terminate()
