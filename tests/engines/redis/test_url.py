"""A Redis URL means one thing, shows no password, and what cannot work is refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from limpet.core.errors import InvalidOption, UsageError
from limpet.stores.extras import install_line
from limpet.stores.open import is_memory, open_store, parse_url, redacted
from limpet.stores.redis.url import RedisUrl, Where, parse_redis


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", RedisUrl("one", (Where("h", 6379),))),
        ("redis://h:7000/3", RedisUrl("one", (Where("h", 7000),), db=3)),
        ("redis://h/", RedisUrl("one", (Where("h"),))),
        ("valkey://h/2", RedisUrl("one", (Where("h"),), db=2)),
        ("REDIS://h", RedisUrl("one", (Where("h"),))),
        ("redis://[::1]:7000", RedisUrl("one", (Where("::1", 7000),))),
        ("redis://:p%40ss@h", RedisUrl("one", (Where("h"),), password="p@ss")),
        ("redis://ada:s3:cret@h", RedisUrl("one", (Where("h"),), user="ada", password="s3:cret")),
        (
            "rediss://h?ca=/etc/ca.pem&insecure=0",
            RedisUrl("one", (Where("h"),), tls=True, ca="/etc/ca.pem"),
        ),
        ("rediss://h?cert=c&key=k", RedisUrl("one", (Where("h"),), tls=True, cert="c", key="k")),
        ("valkeys://h?insecure=1", RedisUrl("one", (Where("h"),), tls=True, insecure=True)),
        ("redis+unix:///run/r.sock?db=4", RedisUrl("one", (Where("", 0, "/run/r.sock"),), db=4)),
        (
            "redis+unix://:pw@/run/r%20s.sock",
            RedisUrl("one", (Where("", 0, "/run/r s.sock"),), password="pw"),
        ),
        (
            "redis+sentinel://:pw@a,b:7/main/2?sentinel_password=x",
            RedisUrl(
                "sentinel",
                (Where("a", 26379), Where("b", 7)),
                password="pw",
                master="main",
                db=2,
                sentinel_password="x",
            ),
        ),
        ("redis+cluster://a:1,b:2", RedisUrl("cluster", (Where("a", 1), Where("b", 2)))),
        ("rediss+cluster://a/0", RedisUrl("cluster", (Where("a"),), tls=True)),
        (
            "redis://h?timeout=0.5&keep=10&strict=yes",
            RedisUrl("one", (Where("h"),), timeout_s=0.5, keep=10, strict=True),
        ),
    ],
)
def test_a_url_says_where_and_how(url: str, expected: RedisUrl) -> None:
    assert parse_url(url) == expected
    assert not is_memory(url)


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("redis://", "redis://host:6379/0"),
        ("redis:///0", "redis://host:6379/0"),
        ("redis:h", "redis://host:6379/0"),
        ("redis://h:port", "redis://host:6379/0"),
        ("redis://h:99999", "redis://host:6379/0"),
        ("redis://h/jobs", "redis://host:6379/0"),
        ("redis://h/0/1", "redis://host:6379/0"),
        ("redis://h#1", "%23"),
        ("redis://word@h", "redis://:password@host or redis://user:password@host"),
        ("redis://ada:@h", "redis://:password@host"),
        ("redis+unix://h/run/r.sock", "redis+unix:///run/redis/redis.sock"),
        ("redis+unix://", "redis://host:6379/0"),
        ("redis+sentinel://a,b", "redis+sentinel://host1,host2/mymaster"),
        ("redis+sentinel://a,,b/main", "before and after each comma"),
        ("redis://a,b", "redis+cluster://host1,host2"),
        ("redis+cluster://a/1", "leave the path away"),
        ("rediss+unix:///run/r.sock", "redis+unix:///run/redis/redis.sock"),
        ("redsi://h", "did you mean redis://?"),
    ],
)
def test_what_is_no_redis_url_is_refused_with_the_fix(url: str, fix: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("redis://h?tiemout=3", "did you mean timeout?"),
        ("redis://h?colour=red", "the options are: keep, strict, timeout"),
        ("redis://h?timeout=soon", "seconds from 0.1 to 600"),
        ("redis://h?timeout=0", "seconds from 0.1 to 600"),
        ("redis://h?timeout=nan", "seconds from 0.1 to 600"),
        ("redis://h?keep=-1", "a number of finished jobs"),
        ("redis://h?strict=maybe", "strict is 1 or 0"),
        ("redis://h?ca=x", "ca is an option of rediss:// alone"),
        ("rediss://h?ca=", "the path of a file"),
        ("rediss://h?cert=x", "give both"),
        ("redis://h?sentinel_password=x", "redis+sentinel://"),
        ("redis://h?db=1", "redis+unix://"),
    ],
)
def test_unknown_options_and_bad_values_are_refused_by_name(url: str, fix: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_url(url)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    "url",
    [
        "redis://ada:hunter2@h/x",
        "redis://:hunter2@h:port",
        "redis://hunter2@h",
        "redis://:hunter2/hunter2@h",
        "redis://:hunter2#@h",
        "redis://:hunter2?@h",
        "redis+sentinel://a/m?sentinel_password=hunter2&colour=red",
        "redis+sentinel://:hunter2@a,b",
    ],
)
def test_no_refusal_shows_a_password(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_parsed_url_shows_where_it_leads_and_no_password() -> None:
    for text, shown in [
        ("redis://ada:hunter2@h/1?strict=1", "redis://h:6379/1"),
        ("rediss+sentinel://:hunter2@a,b/main?sentinel_password=hunter2", "rediss+sentinel://a:26379,b:26379/main/0"),
        ("redis+cluster://:hunter2@a", "redis+cluster://a:6379"),
        ("redis+unix://:hunter2@/run/r.sock", "redis+unix:///run/r.sock"),
    ]:
        url = parse_redis(text)
        assert url.shown == shown
        assert "hunter2" not in repr(url)
        assert "hunter2" not in redacted(text)
    assert redacted("redis://ada:hunter2@h/0?strict=1") == "redis://ada:***@h/0?strict=1"
    assert redacted("sqlite:////srv/a@b.db") == "sqlite:////srv/a@b.db"


def test_opening_a_store_connects_to_nothing() -> None:
    store = open_store("redis://host.that.does.not.exist:1", "shop")
    assert store.features.name == "redis"


def test_without_the_driver_the_line_to_install_it_is_said() -> None:
    """In an interpreter that cannot import hiredis: reading the URL works, opening says what is missing."""
    script = """
import sys
sys.modules["hiredis"] = None
from limpet import Limpet
from limpet.core.errors import UsageError
from limpet.stores.open import open_store, parse_url
parse_url("redis://h")
try:
    open_store("redis://:hunter2@h")
except UsageError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert install_line("redis") in answer.stdout
    assert "hunter2" not in answer.stdout
