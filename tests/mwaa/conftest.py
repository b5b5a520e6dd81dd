"""What the tests of the bundle share: a local AWS."""

from __future__ import annotations

from tests.e2e.conftest import local_aws

__all__ = ["local_aws"]
