"""What is an address, and the proxies on the way to it."""

from __future__ import annotations

import pytest

from motif_jax.labels.addresses import is_address, proxy_of, without_user
from motif_jax.support.errors import UserError

PROXY = "http://proxy.invalid:3128"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    "url", ["http://judge:8000/v1", "https://api.judge.org/v1", "http://me:word@[::1]:80"]
)
def test_addresses(url):
    assert is_address(url)


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1", "judge:8000/v1", "ftp://judge/v1", "http://", "http:///v1", "http://my..host/v1", "http://[::1/v1", "http://judge:port/v1",
            "http://judge:0/v1", "http://judge:99999/v1", f"http://{64 * 'a'}/v1"]
)  # fmt: skip
def test_what_is_no_address(url):
    assert not is_address(url)


def test_a_user_is_not_shown():
    assert without_user("http://me:word@judge:8000/v1?a=b") == "http://judge:8000/v1?a=b"
    assert without_user("http://me:wo@rd@judge:8000/v1") == "http://judge:8000/v1"
    assert without_user("http://judge:8000/v1@2") == "http://judge:8000/v1@2"
    assert without_user("//[no address") == "//[no address"


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("judge", "http://judge:8000/v1"), ("judge:8000", "http://judge:8000/v1"), ("corp", "http://judge.corp/v1"),
        (".corp", "http://judge.corp/v1"), ("other, judge", "http://me:word@judge/v1"), ("judge:80", "http://judge/v1"),
        ("[::1]", "http://[::1]:8000/v1"), ("*", "http://judge/v1"),
    ],
)  # fmt: skip
def test_addresses_that_are_asked_directly(monkeypatch, no_proxy, url):
    monkeypatch.setenv("http_proxy", PROXY)
    assert proxy_of(url) == PROXY
    monkeypatch.setenv("no_proxy", no_proxy)
    assert proxy_of(url) is None


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("judge:8001", "http://judge:8000/v1"), ("corp", "http://corporation/v1"), ("", "http://judge/v1"),
    ],
)  # fmt: skip
def test_addresses_that_are_not(monkeypatch, no_proxy, url):
    monkeypatch.setenv("http_proxy", PROXY)
    monkeypatch.setenv("no_proxy", no_proxy)
    assert proxy_of(url) == PROXY


def test_a_proxy_of_another_kind_is_refused_without_its_password(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://me:word@127.0.0.1:1080")
    with pytest.raises(UserError, match=r"no_proxy=judge\.invalid") as caught:
        proxy_of("http://judge.invalid/v1")
    assert "word" not in str(caught.value)
