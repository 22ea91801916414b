"""Who asks: the key that a request shows, and the client that is counted."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Sequence

from starlette.requests import Request

from regard.core.errors import ConfigError
from regard.serving.keys import Keys
from regard.serving.refusals import Refused

_SCHEME = re.compile(r"(?i:bearer|deepl-auth-key|token) +([\x21-\x7e]{1,300}) *")
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
NOBODY = "unknown"


@dataclasses.dataclass(frozen=True)
class Doorkeeper:
    """Lets in who has a key, where there are keys."""

    keys: Keys
    proxies: frozenset[str] = frozenset()

    @classmethod
    def with_proxies(cls, keys: Keys, proxies: Sequence[str]) -> Doorkeeper:
        """`proxies` are the addresses whose X-Forwarded-For is believed."""
        for address in proxies:
            try:
                ipaddress.ip_address(address)
            except ValueError:
                raise ConfigError("--proxy", f"{address!r} is no IP address", "Give one, such as 10.0.0.2") from None
        return cls(keys, frozenset(str(ipaddress.ip_address(address)) for address in proxies))

    def client(self, request: Request) -> str:
        """The address that asks. Forwarded ones count only if the connection comes from a named proxy."""
        peer = _address(request.client.host) if request.client else NOBODY
        for told in reversed(request.headers.get("x-forwarded-for", "").split(",")):
            if peer not in self.proxies or not told.strip():
                break
            peer = _address(told.strip())
        return peer

    def address(self, request: Request) -> str:
        """The address at which the client reached the server; that of a named proxy where one says it."""
        own, headers = request.base_url, request.headers
        if request.client and _address(request.client.host) in self.proxies:
            scheme = headers.get("x-forwarded-proto", "").split(",")[-1].strip().lower()
            host = headers.get("x-forwarded-host", "").split(",")[-1].strip()
            own = own.replace(scheme=scheme) if scheme in ("http", "https") else own
            own = own.replace(netloc=host) if _HOST.fullmatch(host) else own
        return str(own).rstrip("/")

    def check(self, key: str | None, missing: int, wrong: int) -> None:
        """Raises with one of the two statuses unless the key, which may be missing, is right."""
        if not self.keys or self.keys.allow(key):
            return
        if not key:
            todo = "Send the key that you got from whoever runs this server"
            raise Refused(missing, "an API key is required", todo, kind="unauthorised", field="api_key")
        raise Refused(wrong, "the API key is invalid", "Send another one", kind="forbidden", field="api_key")


def _address(text: str) -> str:
    """An address in its usual spelling; what is none is all one client."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return NOBODY


def header_key(request: Request) -> str | None:
    """The key of an Authorization header (Bearer KEY, DeepL-Auth-Key KEY)."""
    found = _SCHEME.fullmatch(request.headers.get("authorization", ""))
    return found[1] if found else None
