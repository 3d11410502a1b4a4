"""Serves the dashboard's files: one document for every page, and its modules under a name that changes with them."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from limpet.server.answer import etag_of, names
from limpet.server.refusal import MethodNotAllowed, NoSuchRoute

if TYPE_CHECKING:
    from limpet.server.api import Api

FOLDER: Final = Path(__file__).parent / "assets"  # `make web` writes it, and the wheel brings it
PAGES: Final = (
    *("queues", "jobs", "flows", "schedules", "tasks", "dead", "approvals", "limits", "workers", "agents"),
    *("audit", "settings", "operations"),
)
PLACES: Final = ("/", "/assets/{digest}/{path:path}", "/{page}", "/{page}/{name}")
KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Scripts and styles of ours alone, no markup made of text, and no page around ours.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
UNBUILT: Final = "the page is not built here; `make web` builds it (it needs Node 20), and every wheel brings it"


@dataclass(frozen=True)
class Asset:
    """One file, as it is and packed."""

    raw: bytes
    kind: str

    @cached_property
    def packed(self) -> bytes:
        """For the many clients that say that they unpack it."""
        return gzip.compress(self.raw, 6, mtime=0)

    def respond(self, request: Request, headers: dict[str, str]) -> Response:
        """The file, or 304 for a client that has it."""
        tag = etag_of(self.raw)
        headers = {**HEADERS, **headers, "etag": tag, "vary": "accept-encoding"}
        if names(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        packs = "gzip" in request.headers.get("accept-encoding", "")
        if packs:
            headers["content-encoding"] = "gzip"
        return Response(self.packed if packs else self.raw, media_type=self.kind, headers=headers)


class Page:
    """The files of one build."""

    def __init__(self, files: dict[str, Asset], document: str) -> None:
        self.files = files
        tags = "".join(f"{name}:{etag_of(each.raw)}" for name, each in sorted(files.items()))
        self.digest = sha256((tags + document).encode()).hexdigest()[:16]
        # Relative, by how deep the path is: so it works under every prefix, also one that a proxy takes away.
        self._documents = [
            Asset(document.replace("ASSETS/", f"{up}assets/{self.digest}/").encode(), KINDS[".html"])
            for up in ("", "../")
        ]

    def document(self, request: Request) -> Response:
        """The document, which is the same for every page; it is asked for each time, since it names the build."""
        depth = 1 if "name" in request.path_params else 0
        return self._documents[depth].respond(request, {"cache-control": "no-cache"})

    def asset(self, request: Request) -> Response:
        """A file of this build, which never changes."""
        found = self.files.get(request.path_params["path"])
        if found is None or request.path_params["digest"] != self.digest:
            raise NoSuchRoute("this file is not of the page that runs here", fix="load the page again")
        return found.respond(request, {"cache-control": FOR_EVER})


@cache
def page_in(folder: Path) -> Page | None:
    """The page that was built there; None: it was not."""
    document = folder / "index.html"
    if not document.is_file():
        return None
    files = {
        path.relative_to(folder).as_posix(): Asset(path.read_bytes(), KINDS[path.suffix])
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS and path != document
    }
    return Page(files, document.read_text())


class PageEndpoint:
    """Answers what no route of the API does: the document of each page, and the files that it names."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api.answer(answer_page, scope, receive, send)


def is_built() -> bool:
    """Whether there is a page here: a checkout has none before `make web`."""
    return page_in(FOLDER) is not None


async def answer_page(request: Request) -> Response:
    """A page or one of its files."""
    if request.path_params.get("page", "jobs") not in PAGES:
        raise NoSuchRoute(f"there is nothing at {request.scope['path']:.200}", fix="/openapi.json lists what there is")
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed(f"{request.method:.20} is not possible here", fix="use GET, HEAD", allowed="GET, HEAD")
    page = page_in(FOLDER)
    if page is None:
        raise NoSuchRoute(UNBUILT, fix="make web")
    return page.asset(request) if "digest" in request.path_params else page.document(request)
