"""Finds the server that holds the namespace, and opens connections to it: named, behind Sentinels, or in a Cluster."""

from __future__ import annotations

import asyncio
import ssl
from binascii import crc_hqx
from collections.abc import Callable
from typing import Any, Final

from limpet.core.errors import InvalidOption
from limpet.stores.redis.connection import Connection, Login, Refusal, Word, open_connection
from limpet.stores.redis.url import RedisUrl, Where
from limpet.stores.server.trouble import Lost, Silent

SLOTS: Final = 16_384
LONGEST_QUESTION_S: Final = 1.0  # to a Sentinel or node, when others can be asked instead

# Everything that opening or using a connection may raise.
TROUBLE: Final = (OSError, Lost, Silent, Refusal)


class Nowhere(OSError):
    """The asked Sentinels or nodes name no server, or the named server has another role."""


class Server:
    """Where to connect. One per event loop; what was learned is forgotten when it turns out wrong."""

    def __init__(self, url: RedisUrl, tag: str) -> None:
        self.url = url
        self.home: Where | None = None  # where the namespace lives, as far as known
        self._slot = slot_of(tag)
        self._login = Login(url.user, url.password, url.db)
        self._tls = _context(url) if url.tls else None
        self._asked = list(url.servers)  # the servers to ask, the last one that answered first

    def __str__(self) -> str:
        """The server, for error messages."""
        if self.home is None or self.url.topology == "one":
            return self.url.shown
        return f"{self.home} of {self.url.shown}"

    def doubt(self) -> None:
        """The server that was found is gone, or takes no changes: find it again."""
        self.home = None

    async def open(self) -> Connection:
        """A connection to the server that holds the namespace and takes changes. Raises one of TROUBLE.

        Whatever was said on the way, nothing that a verb asked for was part of it: no Lost of it counts as sent.
        """
        try:
            return await self._open()
        except (Lost, Silent) as error:
            raise Lost(str(error), sent=False) from error

    async def _open(self) -> Connection:
        if self.url.topology == "one":
            # A node of a Cluster may have sent us on.
            return await self._open_at(self.home or self.url.servers[0])
        if self.home is None:
            self.home = await self._ask_around(_master if self.url.topology == "sentinel" else _owner)
        try:
            connection = await self._open_at(self.home)
            if self.url.topology == "sentinel":
                await _check_role(connection, self._soon())
        except BaseException:
            self.doubt()
            raise
        return connection

    async def open_at(self, where: Where) -> Connection:
        """A connection to one server, whatever its role. Raises as `open` does."""
        try:
            return await self._open_at(where)
        except (Lost, Silent) as error:
            raise Lost(str(error), sent=False) from error

    async def _open_at(self, where: Where) -> Connection:
        return await open_connection(where, self._login, self.url.timeout_s / 2, self._tls)

    async def _ask_around(self, question: Callable[[Server, Connection], Any]) -> Where:
        """The first useful answer of the servers that may be asked."""
        url = self.url
        sentinel = url.topology == "sentinel"
        login = Login(url.sentinel_user, url.sentinel_password) if sentinel else self._login
        troubles: list[str] = []
        refusal: Refusal | None = None
        for where in list(self._asked):
            try:
                connection = await open_connection(where, login, self._question_s(), self._tls)
                try:
                    found: Where = await question(self, connection)
                finally:
                    connection.close()
            except TROUBLE as error:
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise
                refusal = error if isinstance(error, Refusal) else refusal
                troubles.append(f"{where}: {str(error) or 'no answer'}")
                continue
            self._asked.remove(where)
            self._asked.insert(0, where)
            return found
        if refusal is not None:
            raise refusal  # a wrong password is no reason to ask again
        raise Nowhere("; ".join(troubles))

    def _question_s(self) -> float:
        return min(LONGEST_QUESTION_S, self.url.timeout_s / 4)

    def _soon(self) -> float:
        return asyncio.get_running_loop().time() + self._question_s()

    async def ask(self, connection: Connection, *command: Word) -> Any:
        """The answer to a short question. Raises one of TROUBLE."""
        answer = await connection.send(command, self._soon())
        if isinstance(answer, Refusal):
            raise answer
        return answer


async def _master(server: Server, connection: Connection) -> Where:
    found = await server.ask(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", server.url.master)
    if not found:
        raise Nowhere(f"knows no master named {server.url.master!r}")
    return Where(found[0].decode(), int(found[1]))


async def _owner(server: Server, connection: Connection) -> Where:
    for first, last, master, *_ in await server.ask(connection, "CLUSTER", "SLOTS"):
        if first <= server._slot <= last:
            # A node that does not know its own name leaves it out: it is the one we talk to.
            return Where((master[0] or b"").decode() or connection.where.host, master[1])
    raise Nowhere(f"knows no node that holds slot {server._slot}")


async def _check_role(connection: Connection, deadline: float) -> None:
    answer = await connection.send(("ROLE",), deadline)
    role = answer[0].decode() if isinstance(answer, list) else str(answer)
    if role != "master":
        connection.close()
        raise Nowhere(f"{connection.where} is not the master any more ({role})")


def slot_of(tag: str) -> int:
    """The Cluster's slot of all keys that begin with {tag}."""
    return crc_hqx(tag.encode(), 0) % SLOTS


def _context(url: RedisUrl) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=url.ca or None)
        if url.cert:
            context.load_cert_chain(url.cert, url.key)
    except OSError as error:
        raise InvalidOption(
            f"the certificates of {url.shown} cannot be read: {error}", fix="check ca, cert and key in the URL"
        ) from error
    if url.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
