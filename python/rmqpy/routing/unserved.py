"""Requests that a name server knows and does not serve, each with the reason its sender is told."""

from collections.abc import Mapping
from typing import Final

from rmqpy.protocol.codes import RequestCode

_CONTROLLER: Final = range(1_001, 1_019)

#: Code to reason; a code that is served has one too, which nobody hears.
UNSERVED: Final[Mapping[RequestCode, str]] = {
    code: "there is no controller" if code in _CONTROLLER else "it is a request to a broker"
    for code in RequestCode
}
