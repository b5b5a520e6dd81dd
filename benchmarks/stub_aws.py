"""An S3 that lists as many keys as one asks for, and a DynamoDB that knows none of them.

The local AWS sorts all its keys for each page, so listing a million of them would measure it and not us. This
one makes up each page: real XML, a thousand keys, continuation tokens. What is put, also in parts, is taken
and forgotten.
Run as ``python -m benchmarks.stub_aws``; it prints its address.
"""

from __future__ import annotations

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PAGE_KEYS = 1_000
FOLDERS = 10
PREFIX = "incoming/"
_LIST = '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
_UPLOAD = b"<InitiateMultipartUploadResult><UploadId>upload</UploadId></InitiateMultipartUploadResult>"
_UPLOADED = b'<CompleteMultipartUploadResult><ETag>"stub-1"</ETag></CompleteMultipartUploadResult>'
_NOT_THERE = b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"


class Handler(BaseHTTPRequestHandler):
    """One connection; botocore keeps it open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    keys = 0

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if query.get("list-type") == "2":
            self._answer(200, list_page(query, self.keys).encode(), "application/xml")
        else:
            self._answer(404, _NOT_THERE, "application/xml")

    def do_PUT(self) -> None:
        self._read()
        self._answer(200, b"", "application/xml")

    def do_POST(self) -> None:
        if "X-Amz-Target" not in self.headers:
            self._read()
            is_begun = "uploads" in parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            self._answer(200, _UPLOAD if is_begun else _UPLOADED, "application/xml")
            return
        body = json.loads(self._read())
        answer: dict[str, object] = {}
        if self.headers["X-Amz-Target"].endswith(".BatchGetItem"):
            answer = {"Responses": {table: [] for table in body["RequestItems"]}, "UnprocessedKeys": {}}
        self._answer(200, json.dumps(answer).encode(), "application/x-amz-json-1.0")

    def _read(self) -> bytes:
        if self.headers.get("Expect") == "100-continue":
            self.wfile.flush()
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        read = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            read += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return read

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"00000000000000000000000000000000"')
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def list_page(query: dict[str, str], keys: int) -> str:
    """A page of ``ListObjectsV2``: ten folders below the prefix, and a tenth of the keys in each of them."""
    prefix = query.get("prefix", "")
    if not prefix.startswith(PREFIX):
        return f"{_LIST}<KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"
    if query.get("delimiter"):
        names = (f"{PREFIX}{number:02d}/" for number in range(FOLDERS))
        folders = "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in names)
        return f"{_LIST}<IsTruncated>false</IsTruncated>{folders}</ListBucketResult>"
    per_folder = keys // FOLDERS
    first = int(query.get("continuation-token", 0))
    last = min(first + PAGE_KEYS, per_folder)
    entries = "".join(
        f"<Contents><Key>{prefix}2026/customer-{number % 97:04d}/invoice {number:09d}.pdf</Key>"
        "<LastModified>2026-03-01T08:15:30.000Z</LastModified>"
        f"<ETag>&quot;{number:032x}&quot;</ETag><Size>{40_000 + number % 7_919}</Size>"
        "<StorageClass>STANDARD</StorageClass></Contents>"
        for number in range(first, last)
    )
    more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < per_folder else ""
    return (
        f"{_LIST}<Prefix>{prefix}</Prefix><KeyCount>{last - first}</KeyCount><MaxKeys>{PAGE_KEYS}</MaxKeys>"
        f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}{entries}</ListBucketResult>"
    )


def main() -> int:
    """Serve until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, required=True)
    Handler.keys = parser.parse_args().keys
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        sys.stdout.close()
        server.serve_forever()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
