"""Brings a bundle into the bucket of an MWAA environment, and says how to make the environment take it.

Removes only what an earlier bundle brought, and replaces nothing that is another team's unless told
to. Not for changing the environment: that restarts it, which is a person's decision.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mwaa.bundle import MANIFEST, PLUGINS, REQUIREMENTS, STARTUP, BundledFile, BundleError, Manifest, load

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST_KEY = "pdf_ops/manifest.json"
"""Where the manifest of the published bundle is."""

# What an environment refers to by version; DAGs it picks up by itself.
_VERSIONED = {PLUGINS: "plugins", REQUIREMENTS: "requirements", STARTUP: "startup-script"}

# On every object that we bring: whose it is, and whether it is up to date.
_MARK = "pdf-ops-sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """An object of the bucket; without a hash it is not ours."""

    version: str
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What became of a bundle.

    Attributes:
        uploaded: Keys that were written.
        unchanged: Keys that had these bytes already.
        removed: Keys of the last bundle that this one has no more.
        versions: The object versions of what the environment refers to, by key.
    """

    uploaded: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    versions: dict[str, str]

    @property
    def needs_update(self) -> bool:
        """Whether the environment must be told; it finds changed DAGs by itself."""
        return any(key in _VERSIONED for key in self.uploaded)

    def update_command(self, environment: str) -> str:
        """The command that makes the environment take exactly these versions."""
        parts = ["aws mwaa update-environment", f"--name {shlex.quote(environment)}"]
        for key, name in _VERSIONED.items():
            parts += [
                f"--{name}-s3-path {key}",
                f"--{name}-s3-object-version {shlex.quote(self.versions[key])}",
            ]
        return " \\\n  ".join(parts)

    def terraform_variables(self) -> dict[str, dict[str, str]]:
        """The same versions, as ``bundle`` of include/terraform's variable ``mwaa`` takes them."""
        names = {PLUGINS: "plugins_version", REQUIREMENTS: "requirements_version", STARTUP: "startup_version"}
        return {"bundle": {name: self.versions[key] for key, name in names.items()}}


def publish(folder: Path, bucket: str, s3: Any, *, replaces: bool = False) -> Published:
    """Upload what changed, remove what is gone.

    Args:
        folder: The bundle.
        bucket: The environment's bucket.
        s3: A boto3 client.
        replaces: Whether to overwrite objects that no bundle of ours brought.

    Raises:
        BundleError: If the bundle or the bucket cannot be used; nothing has been written then.
    """
    manifest = load(folder)
    _check_bucket(bucket, s3)
    last = _last_manifest(bucket, s3)
    present = {file.path: _find(bucket, file.path, s3) for file in manifest.files}
    foreign = [path for path, found in present.items() if found and found.sha256 is None]
    if foreign and not replaces:
        raise BundleError(
            f"s3://{bucket} has {', '.join(foreign)}, which pdf_ops did not put there. Another team's? Merge "
            "them by hand, or publish again with REPLACE=1 (--replace) to overwrite them"
        )
    uploaded, versions = [], {}
    for file in manifest.files:
        found = present[file.path]
        if found is None or found.sha256 != file.sha256:
            found = _upload(folder, file, bucket, s3)
            uploaded.append(file.path)
        versions[file.path] = found.version
    gone = sorted({file.path for file in last.files} - set(present)) if last else []
    removed = [key for key in gone if (found := _find(bucket, key, s3)) and found.sha256 is not None]
    for key in removed:
        s3.delete_object(Bucket=bucket, Key=key)
    # Last: until then, the next one still knows what is to be removed.
    s3.put_object(Bucket=bucket, Key=MANIFEST_KEY, Body=(folder / MANIFEST).read_bytes())
    return Published(
        uploaded=tuple(uploaded),
        unchanged=tuple(path for path in present if path not in uploaded),
        removed=tuple(removed),
        versions={key: versions[key] for key in _VERSIONED},
    )


def _check_bucket(bucket: str, s3: Any) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        status = s3.get_bucket_versioning(Bucket=bucket).get("Status")
    except (BotoCoreError, ClientError) as error:
        raise BundleError(f"s3://{bucket} cannot be used: {error}") from error
    if status != "Enabled":
        raise BundleError(
            f"s3://{bucket} keeps no versions, which MWAA requires: aws s3api put-bucket-versioning "
            f"--bucket {shlex.quote(bucket)} --versioning-configuration Status=Enabled"
        )


def _last_manifest(bucket: str, s3: Any) -> Manifest | None:
    from botocore.exceptions import ClientError

    try:
        body = s3.get_object(Bucket=bucket, Key=MANIFEST_KEY)["Body"].read()
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
            return None
        raise
    return Manifest.from_json(body)


def _find(bucket: str, key: str, s3: Any) -> _Found | None:
    from botocore.exceptions import ClientError

    try:
        answer = s3.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
            return None
        raise
    return _Found(version=answer.get("VersionId", "null"), sha256=answer["Metadata"].get(_MARK))


def _upload(folder: Path, file: BundledFile, bucket: str, s3: Any) -> _Found:
    body = (folder / file.path).read_bytes()
    answer = s3.put_object(Bucket=bucket, Key=file.path, Body=body, Metadata={_MARK: file.sha256})
    return _Found(version=answer["VersionId"], sha256=file.sha256)
