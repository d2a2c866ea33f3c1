"""`mqnamesrv`, `mqbroker` and `mqcontroller`: the commands of `rmqpy` for servers, which have Apache's flags."""

import sys
from typing import NoReturn

import click

from rmqpy.cli import main


def mqnamesrv() -> NoReturn:
    """Run a name server: `mqnamesrv [-c FILE] [-p]`."""
    main(["namesrv", *sys.argv[1:]])


def mqcontroller() -> NoReturn:
    """Run a controller: `mqcontroller [-c FILE] [-p]`."""
    main(["controller", *sys.argv[1:]])


def mqbroker() -> NoReturn:
    """Run a broker: `mqbroker [-n ADDRESSES] [-c FILE] [-p | -m]`."""
    if "--enable-proxy" in sys.argv:
        click.echo("Error: --enable-proxy: the proxy is not served", err=True)
        sys.exit(2)
    main(["broker", *sys.argv[1:]])
