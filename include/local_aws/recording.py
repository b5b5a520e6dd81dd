"""What is called: each request to the local AWS as the IAM action and the resource that AWS would check.

So that a test can hold what the programs really do against ``include/permissions.json``. Callers are told
apart by their access key id, see ``Caller``. Not for whether a call is allowed: see ``local_aws.enforcing``.
"""

from __future__ import annotations

import io
import json
import re
import threading
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from local_aws.servers import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
    from pathlib import Path
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    AsgiMessage = dict[str, Any]
    Receive = Callable[[], Awaitable[AsgiMessage]]
    Send = Callable[[AsgiMessage], Awaitable[None]]
    Pairs = Iterable[tuple[str, str]]
    AsgiApp = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
# Operations whose IAM action has another name: batches are checked as what they are made of.
ACTIONS = {
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
    "DeleteMessageBatch": "DeleteMessage",
    "SendMessageBatch": "SendMessage",
}
_TRANSACTION_ACTIONS = {
    "ConditionCheck": "ConditionCheckItem",
    "Delete": "DeleteItem",
    "Get": "GetItem",
    "Put": "PutItem",
    "Update": "UpdateItem",
}


class Caller(StrEnum):
    """Who calls: the access key id that each is given."""

    ADMINISTRATOR = "administrator"
    CONTROL_PLANE = "control_plane"
    WORKER = "worker"
    EXECUTION = "execution"


@dataclass(frozen=True, slots=True, order=True)
class Call:
    """A kind of call: the same one made often is one."""

    caller: str
    action: str
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came in; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


class Recorder:
    """Writes each kind of call once, a JSON line each.

    Args:
        file: Where to; two servers may share it.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: set[Call] = set()
        self._lock = threading.Lock()

    def record(self, request: Request) -> None:
        """Note what a request calls."""
        with self._lock:
            new = [call for call in calls_of(request) if call not in self._known]
            if new:
                self._known.update(new)
                with self._file.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(asdict(call)) + "\n" for call in new)


def read_calls(file: Path) -> set[Call]:
    """What a recorder has written."""
    if not file.exists():
        return set()
    return {Call(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()}


def recording_app(app: AsgiApp, recorder: Recorder) -> AsgiApp:
    """An ASGI application that notes what is asked of another."""

    async def recording(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        query = scope["query_string"].decode("latin-1")
        messages: list[AsgiMessage] = []
        # S3's bodies may be large, and say nothing here but for a list of deletions.
        if "x-amz-target" in headers or "delete" in dict(parse_qsl(query, keep_blank_values=True)):
            messages.append(await receive())
            while messages[-1].get("more_body"):
                messages.append(await receive())
        path = scope.get("raw_path", scope["path"].encode("utf-8")).decode("latin-1")
        body = b"".join(message.get("body", b"") for message in messages)
        recorder.record(Request(method=scope["method"], path=path, query=query, headers=headers, body=body))

        async def replay() -> AsgiMessage:
            return messages.pop(0) if messages else await receive()

        await app(scope, replay, send)

    return recording


def recording_wsgi_app(app: WSGIApplication, recorder: Recorder) -> WSGIApplication:
    """A WSGI application that notes what is asked of another."""

    def recording(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        recorder.record(
            Request(
                method=environ["REQUEST_METHOD"],
                path=environ["PATH_INFO"],
                query=environ.get("QUERY_STRING", ""),
                headers=headers,
                body=body,
            )
        )
        return app(environ, start_response)

    return recording


def calls_of(request: Request) -> Iterator[Call]:
    """What a signed request calls; nothing for one that is not signed."""
    found = _CREDENTIAL.search(request.headers.get("authorization", ""))
    if found is None:
        return
    caller, region, service = found.groups()
    if service == "s3":
        pairs = _s3_calls(request)
    elif "x-amz-target" in request.headers:
        operation = request.headers["x-amz-target"].rpartition(".")[2]
        content = json.loads(request.body or b"{}")
        prefix = f"arn:aws:{service}:{region}:{ACCOUNT}:"
        pairs = _CALLS.get(service, _other_calls)(operation, content, prefix)
    else:
        pairs = [(f"{request.method} {request.path}?{request.query}", "*")]
    for action, resource in pairs:
        yield Call(caller, f"{service}:{action}", resource)


def _s3_calls(request: Request) -> Pairs:
    bucket, _, key = unquote(request.path.lstrip("/")).partition("/")
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    place = f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}"
    if not key:
        if request.method == "POST" and "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode("utf-8"))
            return [("DeleteObject", f"{place}/{one}") for one in keys]
        if request.method == "HEAD" or (request.method == "GET" and "list-type" in query):
            return [("ListBucket", place)]
        return [(f"{request.method} bucket?{request.query}", place)]
    version = "Version" if "versionId" in query else ""
    if request.method in ("GET", "HEAD"):
        return [(f"GetObject{version}", place)]
    if request.method == "DELETE":
        return [("AbortMultipartUpload" if "uploadId" in query else f"DeleteObject{version}", place)]
    source = unquote(request.headers.get("x-amz-copy-source", "")).lstrip("/").partition("?")[0]
    copied = [("GetObject", f"arn:aws:s3:::{source}")] if source else []
    return [*copied, ("PutObject", place)]


def _sqs_calls(operation: str, content: Mapping[str, Any], prefix: str) -> Pairs:
    name = str(content.get("QueueUrl") or content.get("QueueName", "")).rpartition("/")[2]
    return [(ACTIONS.get(operation, operation), prefix + name)]


def _dynamodb_calls(operation: str, content: Mapping[str, Any], prefix: str) -> Pairs:
    if "TransactItems" in content:
        return [
            (_TRANSACTION_ACTIONS[kind], f"{prefix}table/{item['TableName']}")
            for entry in content["TransactItems"]
            for kind, item in entry.items()
        ]
    if "IndexName" in content:
        return [(operation, f"{prefix}table/{content['TableName']}/index/{content['IndexName']}")]
    tables = list(content.get("RequestItems") or [content.get("TableName", "*")])
    index = f"/index/{content['IndexName']}" if "IndexName" in content else ""
    return [(operation, f"{prefix}table/{table}{index}") for table in tables]


def _logs_calls(operation: str, content: Mapping[str, Any], prefix: str) -> Pairs:
    group = content.get("logGroupName", "*")
    stream = content.get("logStreamName")
    return [(operation, f"{prefix}log-group:{group}" + (f":log-stream:{stream}" if stream else ""))]


def _ecs_calls(operation: str, content: Mapping[str, Any], prefix: str) -> Pairs:
    cluster = str(content.get("cluster", "default")).rpartition("/")[2]
    if operation == "RunTask":
        definition = str(content["taskDefinition"]).rpartition("/")[2]
        # AWS checks the revision that a bare family stands for.
        revision = definition if ":" in definition else f"{definition}:latest"
        tagged = [("TagResource", f"{prefix}task/{cluster}/new")] if content.get("tags") else []
        return [("RunTask", f"{prefix}task-definition/{revision}"), *tagged]
    if operation in ("DescribeTasks", "StopTask"):
        tasks = content.get("tasks") or [content.get("task")]
        return [(operation, f"{prefix}task/{cluster}/{str(task).rpartition('/')[2]}") for task in tasks]
    if operation == "DescribeClusters":
        clusters = content.get("clusters") or ["default"]
        return [(operation, f"{prefix}cluster/{str(name).rpartition('/')[2]}") for name in clusters]
    if operation == "ListTasks":
        return [(operation, f"{prefix}container-instance/{cluster}/any")]
    return [(operation, "*")]


def _other_calls(operation: str, _content: Mapping[str, Any], _prefix: str) -> Pairs:
    return [(operation, "*")]


_CALLS: Mapping[str, Callable[[str, Mapping[str, Any], str], Pairs]] = {
    "sqs": _sqs_calls,
    "dynamodb": _dynamodb_calls,
    "logs": _logs_calls,
    "ecs": _ecs_calls,
}
