"""Certificates for servers and clients under test, from a test authority."""

import ssl
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rmqpy._native import make_certificate
from waiting import WAIT_S, until

LOCAL = ["localhost", "127.0.0.1", "::1"]


class Files(NamedTuple):
    """Paths of an authority's certificate and of a certificate that it made."""

    ca: str
    cert: str
    key: str


class Authority:
    """Makes certificates below a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._made = make_certificate(["authority"], days=2, is_authority=True)
        self.ca = folder / "ca.pem"
        self.ca.write_text(self._made[0])

    def issue(self, prefix: str = "", names: list[str] = LOCAL, *, days: int = 2) -> Files:
        """A certificate in files whose names begin so; its common name is the first of `names`. With no days it has
        expired."""
        made = make_certificate(names, days=days, authority=self._made)
        files = Files(str(self.ca), *(str(self._folder / f"{prefix}{kind}.pem") for kind in ("cert", "key")))
        for path, text in zip(files[1:], made, strict=True):
            Path(path).write_text(text)
        return files


def write(folder: Path, names: list[str] = LOCAL, *, days: int = 2) -> Files:
    """Files of a new authority; with no days, a certificate that has expired."""
    return Authority(folder).issue(names=names, days=days)


def replace(files: Files, others: Files) -> None:
    """Move `others` to where `files` are."""
    for now, then in zip(others, files, strict=True):
        Path(now).replace(then)


def wait_until_shown(cert: str, *addresses: str) -> None:
    """Until these servers show the certificate of a file: they look at their files every second."""
    wanted = ssl.PEM_cert_to_DER_cert(Path(cert).read_text())

    def shown(address: str) -> bytes:
        host, _, port = address.rpartition(":")
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=WAIT_S))

    for address in addresses:
        until(partial(shown, address), wanted=wanted.__eq__, pause=0.05)


def settings(files: Files, **more: str) -> dict[str, str]:
    """Of a server that shows this certificate and trusts its authority in others; `more` with `_` for `.`."""
    given = {
        "tls.server.certPath": files.cert,
        "tls.server.keyPath": files.key,
        "tls.client.trustCertPath": files.ca,
    }
    return given | {name.replace("_", "."): value for name, value in more.items()}


def mutual(files: Files) -> dict[str, str]:
    """Of servers to which everybody shows a certificate of that authority, and which show this one to each other."""
    return {
        "tls.server.certPath": files.cert,
        "tls.server.keyPath": files.key,
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": files.ca,
        "tls.client.certPath": files.cert,
        "tls.client.keyPath": files.key,
    }
