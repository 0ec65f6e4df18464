"""Checks server addresses and finds the proxy for each."""

from __future__ import annotations

import re
import urllib.parse
import urllib.request

from motif_jax.support.errors import UserError

_PORTS = {"http": 80, "https": 443}


def is_address(url: str) -> bool:
    """Whether requests can be sent there."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        if ":" not in host:  # of version 6, which is not a name
            host.encode("idna")
        return parts.scheme in _PORTS and bool(host) and parts.port != 0
    except ValueError:
        return False


def without_user(url: str) -> str:
    """An address without name and password, for messages."""
    return re.sub(r"//[^/?#]*@", "//", url)


def proxy_of(url: str) -> str | None:
    """The environment's proxy for an address; None where there is none, or `no_proxy` names the address, as Python reads it.

    Raises:
      UserError: it is none for HTTP.
    """
    parts = urllib.parse.urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    host = parts.netloc.rpartition("@")[2]
    at_port = host if parts.port else f"{host.rstrip(':')}:{_PORTS[parts.scheme]}"
    if proxy is None or urllib.request.proxy_bypass(at_port):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if not is_address(proxy):
        raise UserError(
            f"the environment's proxy for {parts.scheme}://{parts.hostname} is not of the form http://HOST:PORT: others cannot be used; "
            f"set {parts.scheme}_proxy, or except the server with no_proxy={parts.hostname}"
        )
    return proxy
