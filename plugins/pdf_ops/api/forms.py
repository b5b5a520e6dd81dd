"""The file of a multipart form, as it arrives: nothing of it is kept.

FastAPI's own forms are read to their end before a route runs, into a file on the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from pdf_ops.api.problems import ProblemError

FIELD = "file"
_MAX_HEADER_BYTES = 16_384


class FormFile:
    """The part named ``file`` of a multipart form; other parts are passed over.

    :param content_type: The request's.
    :param stream: The request's body.
    """

    def __init__(self, content_type: str, stream: AsyncIterator[bytes]) -> None:
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not boundary:
            raise ProblemError(415, f"Send multipart/form-data with a part named {FIELD}.")
        self.filename = ""
        self._stream = stream
        self._chunks: deque[bytes] = deque()
        self._header_name, self._header_value = b"", b""
        self._disposition = b""
        self._is_open = self._is_found = self._is_complete = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._add_name,
                "on_header_value": self._add_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._open,
                "on_part_data": self._add_data,
                "on_part_end": self._close,
            },
        )

    async def chunks(self) -> AsyncIterator[bytes]:
        """The file's bytes.

        Raises:
            ProblemError: 422 if the form has no such part, is no form or ends in the middle.
        """
        async for received in self._stream:
            if self._is_complete:
                continue  # What comes behind the file is read and forgotten, so that the client hears us.
            try:
                self._parser.write(received)
            except MultipartParseError as error:
                raise ProblemError(422, f"The form cannot be read: {error}") from None
            while self._chunks:
                yield self._chunks.popleft()
        if not self._is_found:
            raise ProblemError(422, f"The form has no part named {FIELD} with a file name.")
        if not self._is_complete:
            raise ProblemError(422, "The form ends in the middle.")

    def _begin(self) -> None:
        self._disposition = b""

    def _add_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]
        self._check_header()

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]
        self._check_header()

    def _check_header(self) -> None:
        if len(self._header_name) + len(self._header_value) > _MAX_HEADER_BYTES:
            raise ProblemError(422, "The form has a header that is too long.")

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header_name, self._header_value = b"", b""

    def _open(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"filename", b"").decode("utf-8", "replace")
        if not self._is_found and options.get(b"name") == FIELD.encode() and name:
            # Browsers send a bare name; other clients may send a path, of which only the end is a name.
            self.filename = name.replace("\\", "/").rpartition("/")[2]
            self._is_open = self._is_found = True

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_open:
            self._chunks.append(bytes(data[start:end]))

    def _close(self) -> None:
        if self._is_open:
            self._is_open, self._is_complete = False, True
