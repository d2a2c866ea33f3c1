"""Health checks of a machine for a broker with a given configuration: one result per obstacle.

Changes nothing: a port is bound and released, a lock is queried but not taken. Blocks for a few system calls.
"""

import fcntl
import os
import shutil
import socket
import struct
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from rmqpy import __version__
from rmqpy.admin.checks import CheckResult
from rmqpy.config import broker as broker_config
from rmqpy.config import home
from rmqpy.config.addresses import HostPort
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.network import VIP_BELOW
from rmqpy.config.store import FOLDER_KEYS
from rmqpy.errors import ConfigError
from rmqpy.findings import cannot_listen
from rmqpy.plugins.loading import load as load_plugins
from rmqpy.remoting.certificates import ends_soon

#: `struct flock`: type, whence, start, length, process.
_FLOCK: Final = "hhqqi"


def versions() -> CheckResult:
    """Check that the Python package and its native module are of the same release."""
    if (installed := metadata.version("rmqpy")) != __version__:
        found = f"rmqpy {installed} with a native module {__version__}"
        return CheckResult("versions", "bad", found, "reinstall it: pip install --force-reinstall rmqpy")
    return CheckResult("versions", "ok", f"rmqpy {__version__}")


def configuration(path: Path) -> tuple[list[CheckResult], BrokerConfig | None]:
    """Check a broker.conf. Returns the configuration, too, if a broker would start with it."""
    check = f"configuration {path}"
    try:
        reading = broker_config.load(path)
    except ConfigError as error:
        return [CheckResult(check, "bad", str(error), "correct it; docs/settings.md lists every key")], None
    checks = [
        CheckResult(check, "warn", warning, "remove the key or correct its name")
        for warning in reading.warnings
    ]
    return checks or [CheckResult(check, "ok", "every key is served")], reading.config


def look(config: BrokerConfig, *, is_running: bool, disk_free_min: int) -> list[CheckResult]:
    """Check that a broker with this configuration could start. A running one already has its port and folder."""
    folders = {"storePathRootDir": Path(config.store.folder)} | {
        wire: Path(named)
        for wire, named in zip(FOLDER_KEYS, config.store.named_folders, strict=True)
        if named is not None
    }
    own: list[CheckResult] = []
    if not is_running:
        own = [result for wire, folder in folders.items() for result in _folder(folder, wire)]
        own += _ports(config)
    disks = [
        result for wire, folder in folders.items() for result in _disk(config, folder, wire, disk_free_min)
    ]
    return [*own, *disks, *_advertised(config), *_certificates(config), *_plugins(config)]


def _folder(folder: Path, wire: str) -> Iterator[CheckResult]:
    check = f"store {folder}"
    existing = _existing(folder)
    if not existing.is_dir():
        yield CheckResult(check, "bad", f"{existing} is not a folder", f"correct {wire}")
    elif not os.access(existing, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        advice = f"make it writable for the broker's user: chown -R USER {existing}"
        yield CheckResult(check, "bad", f"user {os.geteuid()} cannot write to {existing}", advice)
    elif _is_locked(folder / "lock"):
        advice = "stop the other broker, or set another storePathRootDir"
        yield CheckResult(check, "bad", "in use by another running broker", advice)
    else:
        yield CheckResult(check, "ok", "is writable" if existing == folder else "will be created")


def _disk(config: BrokerConfig, folder: Path, wire: str, free_min: int) -> Iterator[CheckResult]:
    full = config.store.full_percent
    disk = shutil.disk_usage(_existing(folder))
    check = f"disk of {folder}"
    advice = f"delete other files there, or move {wire}; a lower fileReservedTime deletes only older files"
    if full < 100 and disk.used * 100 >= disk.total * full:
        found = f"{disk.used / disk.total:.0%} in use: messages are refused from {full} %"
        yield CheckResult(check, "bad", found, advice)
    elif disk.free < free_min:
        yield CheckResult(check, "bad", f"{disk.free >> 20} MiB are free", advice)
    else:
        yield CheckResult(check, "ok", f"{disk.free >> 30} GiB are free")


def _ports(config: BrokerConfig) -> Iterator[CheckResult]:
    host, ha = config.listen_host, config.replication
    ports = [("listenPort", host, config.listen_port, 0), ("listenPort", host, config.listen_port, VIP_BELOW)]
    ports.append(("httpPort", host, config.http_port, 0))
    if not ha.is_slave:
        ports.append(("haListenPort", ha.listen_host, ha.listen_port, 0))
    for key, host, chosen, below in ports:
        if chosen <= 0:
            continue
        port = chosen - below
        address = str(HostPort(host, port))
        try:
            _bind(host, port)
        except OSError as error:
            finding = cannot_listen(key, chosen, address, error.errno, str(error.strerror))
            yield CheckResult(f"port {address}", "bad", *finding)
        else:
            yield CheckResult(f"port {address}", "ok", "is free")


def _advertised(config: BrokerConfig) -> Iterator[CheckResult]:
    host = config.advertised_host
    check = f"advertised address {host}"
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        yield CheckResult(
            check, "bad", "cannot be resolved", "set brokerIP1 to an address that clients can reach"
        )
        return
    try:
        _bind(str(found[0][4][0]), 0)
    except OSError:
        advice = "correct if a router forwards it; otherwise set brokerIP1 to an address of this machine"
        yield CheckResult(check, "warn", "is not an address of this machine", advice)
    else:
        yield CheckResult(check, "ok", "is an address of this machine")


def _certificates(config: BrokerConfig) -> Iterator[CheckResult]:
    for wire, path in (
        ("tls.server.certPath", config.tls.cert_path if config.tls.is_served else ""),
        ("tls.client.certPath", config.tls.client_cert_path if config.tls.is_client else ""),
    ):
        if not path:
            continue
        check = f"certificate {path}"
        try:
            found = ends_soon(Path(home.expand(path)).read_bytes())
        except (OSError, ConfigError) as error:
            yield CheckResult(check, "bad", str(error), f"correct {wire}")
            continue
        if found is not None:
            level: Literal["warn", "bad"] = "bad" if "has expired" in found else "warn"
            yield CheckResult(check, level, found, "replace the file; it is reloaded without a restart")


def _plugins(config: BrokerConfig) -> Iterator[CheckResult]:
    try:
        loaded = load_plugins(config.plugins)
    except ConfigError as error:
        yield CheckResult("plug-ins", "bad", str(error), "the broker would not start; see plugins.md")
        return
    for each in loaded:
        yield CheckResult(f"plug-in {each.name}", "ok", f"{each.kind} of {each.source}")


def _bind(host: str, port: int) -> None:
    """Raises `OSError` if a server could not listen there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As for the server itself, recently closed connections do not block the address.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        answer = fcntl.fcntl(
            file, fcntl.F_OFD_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        )
    finally:
        os.close(file)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)
