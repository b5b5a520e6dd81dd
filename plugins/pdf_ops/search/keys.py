"""What a hit's document is called, in the state table's words and in a person's. Not for S3."""

from __future__ import annotations

from pdf_ops.contract.layout import LayoutError, S3Uri
from pdf_ops.contract.state import state_key


def key_of(source_uri: str, bucket: str) -> str:
    """The key by which the state table knows a document: without the bucket if that is the usual one."""
    try:
        uri = S3Uri.parse(source_uri)
    except LayoutError:
        return source_uri
    return state_key(uri.bucket, uri.key, bucket)


def end_of(s3_key: str) -> str:
    """The end of a key, which is what most documents are called by."""
    return s3_key.rstrip("/").rpartition("/")[2] or s3_key
