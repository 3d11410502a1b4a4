"""A PostgreSQL URL means one thing, shows no password, and what cannot work is refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from limpet.core.errors import InvalidOption, UsageError
from limpet.stores.extras import install_line
from limpet.stores.open import is_memory, open_store, parse_url, redacted
from limpet.stores.postgres.url import PostgresUrl, Where, parse_postgres, schema_of

H = (Where("h"),)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://h/db", PostgresUrl(H, database="db")),
        ("postgres://h/db", PostgresUrl(H, database="db")),
        ("POSTGRESQL://h:7000/db/", PostgresUrl((Where("h", 7000),), database="db")),
        ("postgresql://", PostgresUrl()),
        ("postgresql:///db", PostgresUrl(database="db")),
        ("postgresql://ada@h", PostgresUrl(H, "ada")),
        ("postgresql://ada:p%40s%2Fs@h/d%20b", PostgresUrl(H, "ada", "p@s/s", "d b")),
        ("postgresql://ada:s3:cret@[::1]:7000", PostgresUrl((Where("::1", 7000),), "ada", "s3:cret")),
        ("postgresql://a:1,b,c:3/db", PostgresUrl((Where("a", 1), Where("b"), Where("c", 3)), database="db")),
        ("postgresql://%2Frun%2Fpg:7/db", PostgresUrl((Where("/run/pg", 7),), database="db")),
        (
            "postgresql://h/db?timeout=0.5&pool=9&prepare=no&schema=work&strict=yes",
            PostgresUrl(H, database="db", timeout_s=0.5, pool=9, prepare="no", schema="work", strict=True),
        ),
        (
            "postgresql://h/db?sslmode=verify-full&sslrootcert=/ca.pem",
            PostgresUrl(H, database="db", libpq=(("sslmode", "verify-full"), ("sslrootcert", "/ca.pem"))),
        ),
        (
            "postgresql://u:pw@pool:6432/db?listen_url=h:5433&sslmode=require",
            PostgresUrl(
                (Where("pool", 6432),),
                "u",
                "pw",
                "db",
                (("sslmode", "require"),),
                listen=PostgresUrl((Where("h", 5433),), "u", "pw", "db", (("sslmode", "require"),)),
            ),
        ),
        (
            "postgresql://pool/db?listen_url=postgresql%3A%2F%2Fx%3Ay%40h%2Fe%3Fsslmode%3Ddisable",
            PostgresUrl(
                (Where("pool"),), database="db", listen=PostgresUrl(H, "x", "y", "e", (("sslmode", "disable"),))
            ),
        ),
    ],
)
def test_a_url_says_where_and_how(url: str, expected: PostgresUrl) -> None:
    assert parse_url(url) == expected
    assert not is_memory(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql:/h/db", "not a PostgreSQL URL"),
        ("postgresql://u:hunter2@h/db#x", "write # as %23"),
        ("postgresql://u:hunter2@h/a/b", "names more than a database"),
        ("postgresql://u:hunter2/x@h/b", "names more than a database"),
        ("postgresql://u:hunter2@h:port/b", "names no port"),
        ("postgresql://u:hunter2@h:70000/b", "names no port"),
        ("postgresql://u:hunter2@a b/b", "names no host"),
        ("postgresql://u:hunter2@h/b?timeout=0", "seconds from 0.1 to 600"),
        ("postgresql://u:hunter2@h/b?timeout=nan", "seconds from 0.1 to 600"),
        ("postgresql://u:hunter2@h/b?pool=0", "connections from 1 to 100"),
        ("postgresql://u:hunter2@h/b?pool=many", "connections from 1 to 100"),
        ("postgresql://u:hunter2@h/b?prepare=maybe", "auto, yes or no"),
        ("postgresql://u:hunter2@h/b?strict=x", "1 or 0"),
        ("postgresql://u:hunter2@h/b?schema=pg_x", "a schema of its own"),
        ("postgresql://u:hunter2@h/b?schema=a%22b", "a schema of its own"),
        ("postgresql://u:hunter2@h/b?schema=public", "schema='public' (schema is a schema of its own"),
        ("postgresql://u:hunter2@h/b?schema=information_schema", "not public, information_schema or pg_"),
        ("postgresql://u:hunter2@h/b?listen_url=", "names no host"),
        ("postgresql://u:hunter2@h/b?listen_url=h:x", "names no port"),
        ("postgresql://u@h/b?listen_url=postgresql%3A%2F%2Fu%3Ahunter2%40h%3Fpol%3D3", "did you mean pool"),
        ("postgresql://u@h/b?listen_url=postgresql%3A%2F%2Fu%3Ahunter2%40h%3Flisten_url%3Dh", "within its listen_url"),
        ("postgresql://u:hunter2@h/b?tiemout=3", "did you mean timeout?"),
        ("postgresql://u:hunter2@h/b?sslmod=require", "did you mean sslmode?"),
        ("postgresql://u:hunter2@h/b?zzz=3", "the options are: listen_url, pool, prepare, schema, strict, timeout"),
        ("postgresql://u:hunter2@h/b?client_encoding=latin1", "unknown option 'client_encoding'"),
        ("postgresql://u:hunter2@h/b?replication=1", "unknown option 'replication'"),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_without_the_password(url: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_no_text_of_it_shows_a_password() -> None:
    url = "postgresql://ada:hunter2@h:5/db?sslpassword=hunter3&listen_url=postgresql%3A%2F%2Fu%3Ahunter4%40h"
    parsed = parse_postgres(url)
    for text in (str(parsed), repr(parsed), parsed.shown, redacted(url)):
        assert "hunter" not in text
    assert parsed.shown == "postgresql://h:5/db"
    plain = redacted("postgresql://u:hunter2@h/db?listen_url=postgresql://u:hunter3@h2/db&pool=3")
    assert plain == "postgresql://u:***@h/db?listen_url=***&pool=3"
    assert parse_postgres("postgresql://%2Frun%2Fpg/d").shown == "postgresql://%2Frun%2Fpg/d"
    assert parse_postgres("postgresql:///d").shown == "postgresql:///d"


def test_libpq_hears_all_of_it_and_the_url_wins_over_our_wishes() -> None:
    words = parse_postgres("postgresql://u:p@a:1,b/db?application_name=me&keepalives_idle=9").keywords()
    assert words["host"] == "a,b"
    assert words["port"] == "1,5432"
    assert (words["user"], words["password"], words["dbname"]) == ("u", "p", "db")
    assert (words["application_name"], words["keepalives_idle"], words["keepalives"]) == ("me", "9", "1")
    assert words["target_session_attrs"] == "read-write", "of several servers, the one that takes jobs"
    assert words["connect_timeout"] == "2", "one that does not answer leaves time for the next"
    alone = parse_postgres("postgresql:///db").keywords()
    assert "host" not in alone, "libpq knows where its socket is"
    assert "target_session_attrs" not in alone


def test_a_namespace_is_a_schema() -> None:
    url = parse_postgres("postgresql://h/db")
    assert schema_of(url, "default") == "limpet"
    assert schema_of(url, "a.b-C_1") == "limpet_a.b-C_1"
    assert schema_of(parse_postgres("postgresql://h/db?schema=work"), "x") == "work_x"
    with pytest.raises(InvalidOption, match="too long a name"):
        schema_of(parse_postgres(f"postgresql://h/db?schema={'s' * 40}"), "n" * 40)
    with pytest.raises(InvalidOption, match="not a namespace"):
        schema_of(url, 'x"y')


def test_reading_a_url_loads_no_driver() -> None:
    code = (
        "import sys; from limpet.stores.open import parse_url; parse_url('postgresql://h/db'); "
        "assert 'psycopg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_the_driver_the_package_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from limpet.stores.open import open_store\n"
        "try: open_store('postgresql://u:hunter2@h/db')\n"
        "except Exception as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert install_line("postgres") in answer.stdout
    assert "hunter2" not in answer.stdout
