"""Certificates of servers that expire soon.

Only fetches the certificate; other checks find out whether it is trusted and has the right name.
"""

import socket
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Literal

from rmqpy.admin.checks import CheckResult
from rmqpy.admin.connection import AdminConnection
from rmqpy.config.addresses import parse
from rmqpy.config.tls import TLS
from rmqpy.errors import ConfigError
from rmqpy.remoting.certificates import ends_soon

_ADVICE: Final = "replace the file of tls.server.certPath there; it is reloaded without a restart"

#: Part of the error of a connection to a server with such a certificate.
_EXPIRED: Final = "the certificate has expired"


async def explained(
    cluster: AdminConnection, checks: Iterable[CheckResult], addresses: Iterable[str]
) -> list[CheckResult]:
    """Add the checks of the certificates at these addresses. An expired one is the reason why its server is
    unreachable, and has the remedy."""
    found = await _all(cluster, set(addresses))
    expired = {each.check.removeprefix("certificate of ") for each in found if each.level == "bad"}
    kept = [
        each for each in checks if _EXPIRED not in each.found or each.check.rpartition(" ")[2] not in expired
    ]
    return [*kept, *found]


async def _all(cluster: AdminConnection, addresses: set[str]) -> list[CheckResult]:
    # Without TLS here, other clients may use it.
    tls, timeout, checks = cluster.tls or TLS(verify=False), cluster.timeout, []
    if not addresses:
        return []
    with ThreadPoolExecutor(1, "rmqpy-certificates") as worker:
        for address in sorted(map(cluster.reachable, addresses)):
            shown = worker.submit(expiry, address, tls, timeout)
            # Each of its steps has its own timeout.
            while not await cluster.caller.until(shown, timeout):
                pass
            checks += [found] if (found := shown.result()) is not None else []
    return checks


def expiry(address: str, tls: TLS, timeout: float) -> CheckResult | None:
    """Return a warning about the certificate at this address, or None. Blocks for the time of a handshake: use a worker
    thread."""
    try:
        found = ends_soon(ssl.DER_cert_to_PEM_cert(_shown(address, tls, timeout)).encode())
    except (OSError, ConfigError):
        # Other checks report servers that do not answer or have no certificate.
        return None
    if found is None:
        return None
    level: Literal["warn", "bad"] = "bad" if "has expired" in found else "warn"
    return CheckResult(f"certificate of {address}", level, found, _ADVICE)


def _shown(address: str, tls: TLS, timeout: float) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key, tls.password)
    server = parse(address)
    with (
        socket.create_connection((server.host, server.port), timeout) as plain,
        context.wrap_socket(plain, server_hostname=tls.server_name or server.host) as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True) or b""
