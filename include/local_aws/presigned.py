"""Has ministack take presigned URLs of all our callers: by itself it knows the key id ``test`` alone.

Calls that are signed in their headers it takes from anybody, so that a key id can
say who called. Not where policies are enforced: there they all are users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_aws.recording import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

_ROOT = "test"


def install() -> None:
    """Change ministack's S3 in this process."""
    from ministack.services import s3

    resolve: Callable[[str, str, str], object] = s3.resolve_credential

    def resolve_caller(key_id: str, account: str, session_token: str) -> object:
        # All of them have the same secret, which is what the signature is checked with.
        return resolve(_ROOT if key_id in set(Caller) else key_id, account, session_token)

    s3.resolve_credential = resolve_caller
