"""Certificates of servers that expire soon.

Only fetches the certificate; other checks find out whether it is trusted and has the right name. Blocks for the time
of a handshake: use a worker thread.
"""

import socket
import ssl
from typing import Final, Literal

from rmqpy.admin.checks import CheckResult
from rmqpy.config.addresses import parse
from rmqpy.config.tls import TLS
from rmqpy.errors import ConfigError
from rmqpy.remoting.certificates import ends_soon

_ADVICE: Final = "replace the file of tls.server.certPath there; it is reloaded without a restart"


def expiry(address: str, tls: TLS, timeout: float) -> CheckResult | None:
    """Return a warning about the certificate at this address, or None."""
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
