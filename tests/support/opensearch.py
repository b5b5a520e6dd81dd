"""OpenSearch's HTTP as far as pdf_ops speaks it, strict about the wire: a real one cannot be had here.

Keeps documents with their versions, answers searches on its own terms, and has bad days on request.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BODY_BYTES = 10 * 2**20
_ANALYSIS = {"tokenizer", "filter", "type"}


class WireError(Exception):
    """What a real OpenSearch would refuse."""


class OpenSearchDouble:
    """Listens from ``with`` to the end of the block.

    Attributes:
        indexes: Documents by index and id: their version and source.
        requests: Method, path and headers of everything that came.
        mistakes: What a real one would have refused.
        bad_item: Gives the status of a document in a bulk request; 200 lets it pass.
        bad_request: Gives the status of a request; 0 hangs up on it.
        delay_s: How long each answer takes.
    """

    def __init__(self, *, authorization: str = "") -> None:
        self.indexes: dict[str, dict[str, tuple[int, dict[str, Any]]]] = {}
        self.templates: dict[str, dict[str, Any]] = {}
        self.aliases: dict[str, set[str]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bulks: list[list[str]] = []
        self.searches: list[dict[str, Any]] = []
        self.mistakes: list[str] = []
        self.bad_item: Callable[[str], int] = lambda _: 200
        self.bad_request: Callable[[str], int] = lambda _: 200
        self.delay_s = 0.0
        self._authorization = authorization
        self._lock = threading.Lock()
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                time.sleep(double.delay_s)
                answer = double._handle(self.command, self.path, dict(self.headers.items()), body)
                if answer is None:
                    self.close_connection = True
                    return
                status, content = answer
                data = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = _any  # noqa: N815 -- http.server asks for them

            def log_message(self, *_: object) -> None: ...

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sources(self, index: str) -> dict[str, dict[str, Any]]:
        return {identity: source for identity, (_, source) in self.indexes.get(index, {}).items()}

    def _handle(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, Any]] | None:
        headers = {name.lower(): value for name, value in headers.items()}
        with self._lock:
            self.requests.append((method, path, headers))
            bad = self.bad_request(path)
            if bad == 0:
                return None
            if bad >= 300:
                return bad, {
                    "error": {"type": "made_up_exception", "reason": "confidential words"},
                    "status": bad,
                }
            if self._authorization and headers.get("authorization") != self._authorization:
                return 401, {"error": {"type": "security_exception"}, "status": 401}
            try:
                return self._answer(method, path, headers, body)
            except (WireError, ValueError, KeyError, TypeError) as error:
                self.mistakes.append(f"{method} {path}: {type(error).__name__}: {error}")
                return 400, {"error": {"type": "illegal_argument_exception"}, "status": 400}

    def _answer(  # noqa: C901 -- a route a line
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, Any]]:
        if len(body) > MAX_BODY_BYTES:
            return 413, {"error": {"type": "too_large"}, "status": 413}
        route, _, query = path.partition("?")
        if method == "POST" and route == "/_bulk":
            return self._bulk(headers, body)
        if body and headers.get("content-type", "").partition(";")[0] != "application/json":
            raise WireError("a JSON body needs application/json")
        content = json.loads(body) if body else None
        if method == "PUT" and (found := re.fullmatch(r"/_index_template/([a-z0-9_-]+)", route)):
            return self._put_template(found[1], content)
        if method == "PUT" and (found := re.fullmatch(r"/([a-z0-9][a-z0-9_-]*)", route)):
            if found[1] in self.indexes:
                kind = "resource_already_exists_exception"
                return 400, {"error": {"type": kind, "reason": f"index [{found[1]}] exists"}, "status": 400}
            if not any(found[1] in template["index_patterns"] for template in self.templates.values()):
                raise WireError(f"{found[1]} is made without its template")
            self.indexes[found[1]] = {}
            return 200, {"acknowledged": True}
        if method == "POST" and route == "/_aliases":
            return self._switch(content)
        if method == "POST" and (found := re.fullmatch(r"/([a-z0-9_-]+)/_delete_by_query", route)):
            if query != "conflicts=proceed":
                raise WireError("conflicts would end it")
            return self._delete(found[1], content)
        if method == "POST" and (found := re.fullmatch(r"/([a-z0-9_-]+)/_search", route)):
            return self._search(found[1], content)
        raise WireError("no such route")

    def _put_template(self, name: str, content: Any) -> tuple[int, dict[str, Any]]:
        if set(content) - {"index_patterns", "version", "priority", "template"}:
            raise WireError("a template has other members")
        [pattern] = content["index_patterns"]
        analyzers = content["template"]["settings"]["analysis"]["analyzer"]
        for analyzer in analyzers.values():
            if set(analyzer) - _ANALYSIS:
                raise WireError("an analyzer has other members")
        for field, mapping in content["template"]["mappings"]["properties"].items():
            if mapping["type"] not in {"keyword", "text", "long", "integer", "float", "date"}:
                raise WireError(f"{field} has an unknown type")
            if mapping.get("analyzer", "standard") not in {*analyzers, "standard"}:
                raise WireError(f"{field} has an unknown analyzer")
        assert isinstance(content["version"], int)
        assert pattern == name
        self.templates[name] = content
        return 200, {"acknowledged": True}

    def _bulk(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, Any]]:
        if headers.get("content-type") != "application/x-ndjson":
            raise WireError("a bulk request needs application/x-ndjson")
        if not body.endswith(b"\n"):
            raise WireError("a bulk request ends with a newline")
        lines = body.decode("utf-8").split("\n")[:-1]
        if len(lines) % 2:
            raise WireError("each action line has a document line")
        items, ids = [], []
        for head, document in zip(lines[::2], lines[1::2], strict=True):
            [(verb, action)] = json.loads(head).items()
            source = json.loads(document)
            if verb != "index" or set(action) != {"_index", "_id", "version", "version_type"}:
                raise WireError(f"unknown action {head}")
            if action["version_type"] != "external_gte" or action["version"] < 0:
                raise WireError("a version is missing")
            if not 1 <= len(action["_id"].encode()) <= 512:
                raise WireError("an id has at most 512 bytes")
            if action["_index"] not in self.indexes:
                raise WireError(f"there is no index {action['_index']}")
            properties = self.templates[action["_index"]]["template"]["mappings"]["properties"]
            if set(source) != set(properties):
                raise WireError(f"fields and template differ: {set(source) ^ set(properties)}")
            ids.append(action["_id"])
            items.append({"index": self._index(action, source)})
        self.bulks.append(ids)
        return 200, {"errors": any(item["index"]["status"] >= 300 for item in items), "items": items}

    def _index(self, action: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
        status = self.bad_item(action["_id"])
        if status >= 300:
            kind = {429: "rejected_execution_exception", 400: "mapper_parsing_exception"}.get(status, "x")
            return {"status": status, "error": {"type": kind, "reason": f"confidential {source}"}}
        known = self.indexes[action["_index"]].get(action["_id"])
        if known is not None and known[0] > action["version"]:
            return {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
        self.indexes[action["_index"]][action["_id"]] = (action["version"], source)
        return {"status": 201 if known is None else 200, "_version": action["version"]}

    def _switch(self, content: Any) -> tuple[int, dict[str, Any]]:
        for one in content["actions"]:
            [(verb, action)] = one.items()
            if verb == "remove":
                self.aliases[action["alias"]] = set()
            elif verb == "add":
                if action["index"] not in self.indexes:
                    raise WireError("an alias for nothing")
                self.aliases.setdefault(action["alias"], set()).add(action["index"])
            else:
                raise WireError(verb)
        return 200, {"acknowledged": True}

    def _delete(self, index: str, content: Any) -> tuple[int, dict[str, Any]]:
        gone = set()
        for clause in content["query"]["bool"]["should"]:
            term, pages, moments = clause["bool"]["filter"]
            for identity, source in self.sources(index).items():
                if (
                    source["file_id"] == term["term"]["file_id"]
                    and source["page"] > pages["range"]["page"]["gt"]
                    and source["read_at"] < moments["range"]["read_at"]["lt"]
                ):
                    gone.add(identity)
        for identity in gone:
            del self.indexes[index][identity]
        return 200, {"deleted": len(gone)}

    def _search(self, index: str, content: Any) -> tuple[int, dict[str, Any]]:
        """Pages whose text holds the word of each `match` clause; ranking is OpenSearch's own."""
        self.searches.append(content)
        if index not in self.indexes:
            return 404, {"error": {"type": "index_not_found_exception"}, "status": 404}
        if "aggs" in content:
            last = max((source["indexed_at"] for source in self.sources(index).values()), default=None)
            total = {"value": len(self.indexes[index]), "relation": "eq"}
            return 200, {
                "hits": {"total": total, "hits": []},
                "aggregations": {"last": {"value": 1.0, "value_as_string": last}},
            }
        if content["from"] + content["size"] > 10_000:
            raise WireError("beyond the window")
        words = [
            clause["match"]["text"]["query"]
            for clause in content["query"]["bool"]["must"]
            if "match" in clause
        ]
        mark = content["highlight"]["pre_tags"][0], content["highlight"]["post_tags"][0]
        found = []
        for identity, source in self.sources(index).items():
            if all(word in source["text"].lower() for word in words):
                text = source["text"]
                for word in words:
                    text = re.sub(f"(?i)({re.escape(word)})", rf"{mark[0]}\1{mark[1]}", text)
                shown = {name: source[name] for name in content["_source"]}
                hit = {"_id": identity, "_score": 1.5, "_source": shown, "highlight": {"text": [text]}}
                found.append(hit)
        page = found[content["from"] : content["from"] + content["size"]]
        return 200, {"hits": {"total": {"value": len(found), "relation": "eq"}, "hits": page}}
