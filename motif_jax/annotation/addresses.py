"""Addresses of servers: what is one, the proxies on the way, and whose certificates are believed."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import ssl
import urllib.parse
import urllib.request
from collections.abc import Sequence

from motif_jax.support.errors import UserError

_PORTS = {"http": 80, "https": 443}
# Where systems keep the authorities that they trust, for a Python whose OpenSSL looks elsewhere.
_AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_HASHED = re.compile(r"[0-9a-f]{8}\.\d")


def is_address(url: str) -> bool:
    """Whether requests can be sent there."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if ":" not in host:  # of version 6, which is no name
            host.encode("idna")
        return parts.scheme in _PORTS and bool(host) and parts.port != 0
    except ValueError:
        return False


def without_user(url: str) -> str:
    """What may be an address, without a name and password in it, to be shown."""
    return re.sub(r"//[^/?#]*@", "//", url)


def proxy_of(url: str) -> str | None:
    """The environment's proxy for an address; None where there is none, or the address is excepted from it.

    Raises:
      UserError: it is none for HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or _excepted(parts, proxies.get("no", "")):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_address(proxy):
        raise UserError(
            f"the environment's proxy for {parts.scheme}://{parts.hostname} is no http://HOST:PORT: others cannot be used; "
            f"set {parts.scheme}_proxy, or except the server with no_proxy={parts.hostname}"
        )
    return proxy


def _excepted(parts: urllib.parse.SplitResult, no_proxy: str) -> bool:
    """Whether an address is asked directly: names and their domains, with and without port, numbers, networks."""
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    bracketed = f"[{host}]" if ":" in host else host
    if any(urllib.request.proxy_bypass(name) for name in (host, bracketed, f"{bracketed}:{port}")):
        return True
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return any(entry.startswith("*.") and host.endswith(entry[1:]) for entry in entries) or _within(
        host, entries
    )


def _within(host: str, networks: Sequence[str]) -> bool:
    """Whether a host that is a number lies in one of the networks; what is none is passed over."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    for network in networks:
        with contextlib.suppress(ValueError):
            if number in ipaddress.ip_network(network, strict=False):
                return True
    return False


def trust() -> ssl.SSLContext:
    """Believes the certificates that the system believes; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.

    Its authorities are read once: that takes 25 ms, too much to do it for each connection.
    """
    context = ssl.create_default_context()
    known = ssl.get_default_verify_paths()
    hashed = os.listdir(known.capath) if known.capath else []
    if known.cafile is None and not any(map(_HASHED.fullmatch, hashed)):
        for file in filter(os.path.isfile, _AUTHORITIES):
            context.load_verify_locations(file)
            break
    return context
