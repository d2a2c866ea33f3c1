"""docs/settings.md agrees with the code. `python tests/broker/test_settings_document.py` writes it."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import groupby
from pathlib import Path

from rmqpy.config import known
from rmqpy.config.access import AccessConfig
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.controller import ControllerConfig
from rmqpy.config.keys import Key, Settings
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.config.plugins import PluginsConfig
from rmqpy.config.proxy import ProxyConfig
from rmqpy.config.replication import ReplicationConfig
from rmqpy.config.server_tls import TlsConfig
from rmqpy.config.store import StoreConfig
from rmqpy.config.telemetry import TelemetryConfig
from rmqpy.config.tiered import TieredConfig

DOCUMENT = Path(__file__).parent.parent.parent / "docs/settings.md"

HEAD = """\
# Settings of broker, name server, controller and proxy

`rmqpy broker -c broker.conf` reads the file an Apache broker reads: Java properties, one `key=value` a line.
`KEY=VALUE` on the command line wins over the file. Every key belongs to one of four classes:

- *supported*: listed under Broker, Access control, TLS, Replication, Store, Tiered storage, Telemetry and Plug-ins.
  A value out of bounds prevents the start; the error names it.
- *harmless to ignore*: known, without effect, and reported at the start.
- *dangerous to ignore*: the broker starts only with the accepted values, because it would silently lack what another
  value asks for.
- *unknown*: reported, with the key that was probably meant.

`rmqpy namesrv -c namesrv.conf` and `rmqpy controller -c controller.conf` read their files in the same way; their keys
are listed under Name server and Controller. `rmqpy proxy -c rmq-proxy.json` reads a JSON object or properties; its keys
are listed under Proxy.

Keys marked **online** may be changed while the server runs (`rmqpy config set`, `mqadmin updateBrokerConfig`,
`updateNamesrvConfig`); a change takes effect immediately and is written to the file, without touching its other lines.
A server started without a file (without `-c`, or by `rmqpy standalone`) loses the change when it stops: a broker does
not write it, and a name server writes it to `configStorePath`, which a start reads only if `-c` names it. Other keys
take effect at the next start.

Without `bindAddress` and `brokerIP1` the broker listens on 127.0.0.1 only. A name or address in either opens it to
other machines; see Access control for the rights of their users.

Secrets are never shown: `rmqpy config get` prints `******` instead.
"""


#: Defaults that are known when the broker starts.
COMPUTED = {
    "brokerName": "host name",
    "namesrvAddr": "`$NAMESRV_ADDR`",
    "zoneName": "`$ROCKETMQ_ZONE`",
    "authConfigPath": "`~/namesrv/auth`",
    "rocketmqHome": "`$ROCKETMQ_HOME`",
    "kvConfigPath": "`~/namesrv/kvConfig.json`",
    "configStorePath": "`~/namesrv/namesrv.properties`",
    "controllerStorePath": "`~/controller/store`",
}


def document() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            *table("Broker", BrokerConfig),
            *table("Access control", AccessConfig),
            *table("TLS", TlsConfig),
            *table("Replication", ReplicationConfig),
            *table("Store", StoreConfig),
            *table("Tiered storage", TieredConfig),
            *table("Telemetry", TelemetryConfig),
            *table("Plug-ins", PluginsConfig),
            *refused(),
            *ignored(),
            *table("Name server", NameServerConfig),
            *table("Controller", ControllerConfig, "controller"),
            *table("Proxy", ProxyConfig, "proxy"),
            "The keys of Access control and TLS also apply to a name server, a controller and a proxy.\n",
        ]
    )


def table(title: str, kind: type[Settings], home: str = "namesrv") -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | default | bounds | meaning |"
    yield "|---|---|---|---|"
    defaults = {field.name: field.default for field in fields(kind)}
    for wire, (name, key) in kind.declared().items():
        default = defaults[name]
        shown = (
            COMPUTED[wire].replace("namesrv", home)
            if default is MISSING
            else str(default).lower()
            if default in (True, False)
            else default
        )
        online = " **online**" if key.is_changeable else ""
        yield f"| `{wire}` | {shown} | {bounds(key)} | {key.doc}{online} |"
    yield ""


def bounds(key: Key) -> str:
    if key.choices:
        return ", ".join(key.choices)
    if key.low is None:
        return ""
    span = f"at least {key.low:,}" if key.high is None else f"{key.low:,} – {key.high:,}"
    return f"{span} {key.unit}".rstrip()


def refused() -> Iterator[str]:
    yield "## Dangerous to ignore\n"
    yield "| keys | accepted values | why other values are refused |"
    yield "|---|---|---|"
    for safe, reason, names in known.GUARDED:
        values = ", ".join(f"`{value}`" for value in safe if value) or "none"
        yield f"| {' '.join(f'`{name}`' for name in names.split())} | {values} | {reason} |"
    yield ""
    yield "`storeCheckpoint` and `abortFile` of old files are derived from `storePathRootDir`.\n"


def ignored() -> Iterator[str]:
    yield "## Harmless to ignore\n"
    for reason, keys in groupby(known.HARMLESS.items(), key=lambda item: item[1]):
        yield f"- {reason}: {' '.join(f'`{key}`' for key, _ in keys)}"
    yield ""


def test_the_page_on_settings_says_what_the_code_says() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
