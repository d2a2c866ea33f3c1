"""`mqnamesrv`, `mqbroker`, `mqcontroller`, `mqproxy`: the commands of `rmqpy` for servers, with Apache's flags."""

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
        click.echo(
            "Error: --enable-proxy: a broker serves 5.x clients without it, see grpcServerPort", err=True
        )
        sys.exit(2)
    main(["broker", *sys.argv[1:]])


def mqproxy() -> NoReturn:
    """Run a proxy: `mqproxy -n ADDRESSES [-pm cluster] [-pc FILE]`."""
    words = list(sys.argv[1:])
    for flag in ("-pm", "--proxyMode"):
        if flag in words:
            at = words.index(flag)
            if words[at + 1 : at + 2] not in (["cluster"], ["CLUSTER"]):
                click.echo(f"Error: {flag}: a broker serves 5.x clients without a proxy", err=True)
                sys.exit(2)
            del words[at : at + 2]
    main(["proxy", *("-c" if word in ("-pc", "--proxyConfigPath") else word for word in words)])
