"""Certificates for servers and clients under test, made by an authority of their own."""

import ssl
import time
from pathlib import Path
from typing import NamedTuple

from rmqpy._native import make_certificate

LOCAL = ["localhost", "127.0.0.1", "::1"]


class Files(NamedTuple):
    """Paths of an authority's certificate and of a certificate that it made."""

    ca: str
    cert: str
    key: str


def write(folder: Path, names: list[str] = LOCAL, *, days: int = 2) -> Files:
    """Files of a new authority; with no days, a certificate that has expired."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = make_certificate(["authority"], days=2, is_authority=True)
    certificate, key = make_certificate(names, days=days, authority=authority)
    files = Files(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))
    for path, text in zip(files, (authority[0], certificate, key), strict=True):
        Path(path).write_text(text)
    return files


def replace(files: Files, others: Files) -> None:
    """Move `others` to where `files` are."""
    for now, then in zip(others, files, strict=True):
        Path(now).replace(then)


def wait_until_shown(cert: str, *addresses: str, seconds: float = 30) -> None:
    """Until these servers show the certificate of a file: they look at their files every second."""
    wanted = ssl.PEM_cert_to_DER_cert(Path(cert).read_text())
    deadline = time.monotonic() + seconds
    for address in addresses:
        host, _, port = address.rpartition(":")
        while (
            ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=seconds)) != wanted
        ):
            assert time.monotonic() < deadline, f"{address} never shows {cert}"
            time.sleep(0.05)


def settings(files: Files, **more: str) -> dict[str, str]:
    """Of a server that shows this certificate and trusts its authority in others; `more` with `_` for `.`."""
    given = {
        "tls.server.certPath": files.cert,
        "tls.server.keyPath": files.key,
        "tls.client.trustCertPath": files.ca,
    }
    return given | {name.replace("_", "."): value for name, value in more.items()}
