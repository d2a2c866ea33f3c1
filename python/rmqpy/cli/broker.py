"""`rmqpy broker`."""

import asyncio
from pathlib import Path

import click

from rmqpy import __version__
from rmqpy.cli.output import note_printer
from rmqpy.cli.settings import log_warnings, namesrv_option, print_settings, server_options

#: Settings that Apache's broker prints with -m and that exist here.
IMPORTANT = frozenset(
    {
        *("brokerClusterName", "brokerName", "brokerId", "brokerIP1", "brokerRole", "namesrvAddr"),
        *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "traceTopicEnable", "msgTraceTopicName"),
        *("fetchNamesrvAddrByAddressServer", "fetchNameSrvAddrByDnsLookup", "aclEnable", "haMasterAddress"),
        *(
            "transactionTimeOut",
            "transactionCheckMax",
            "transactionCheckInterval",
            "rejectTransactionMessage",
        ),
        *("storePathRootDir", "storePathCommitLog", "storeType", "deleteWhen", "fileReservedTime"),
        *("cleanFileForciblyEnable", "deleteFileBatchMax", "flushDiskType", "flushIntervalCommitLog"),
        *("flushCommitLogTimed", "commitIntervalCommitLog", "transientStorePoolEnable", "writeWithoutMmap"),
    }
)


@click.command()
@server_options(
    "broker.conf",
    namesrv_option,
    click.option(
        "-m", "is_printing_important", is_flag=True, help="Print the most important settings and exit."
    ),
)
def command(
    settings: dict[str, str],
    config: Path | None,
    namesrv: str | None,
    is_printing: bool,
    is_printing_important: bool,
) -> None:
    """Run a broker until Ctrl-C. Reads broker.conf as Apache's broker does; KEY=VALUE wins over the file.

    Name servers come from -n or KEY=VALUE, the file, or $NAMESRV_ADDR, in this order.

    \b
    rmqpy broker -c broker.conf
    rmqpy broker -n 127.0.0.1:9876 brokerName=broker-b listenPort=10921 storePathRootDir=data-b
    """
    from rmqpy.broker import Broker
    from rmqpy.config.broker import load
    from rmqpy.server import serve

    if namesrv is not None:
        settings["namesrvAddr"] = namesrv
    reading = load(config, settings)
    log_warnings(reading.warnings)
    if is_printing or is_printing_important:
        print_settings(reading.config, None if is_printing else IMPORTANT)
        return
    if not reading.config.namesrv:
        log_warnings(
            [
                "no name server is set (namesrvAddr, -n): the broker does not register, so clients cannot find it"
            ]
        )
    server = Broker(reading.config, path=config, progress=note_printer())
    asyncio.run(
        serve(
            server,
            lambda: click.echo(
                f"rmqpy {__version__}: broker {reading.config.name} at {server.address} is ready, "
                f"data in {reading.config.store.folder}"
            ),
        )
    )
