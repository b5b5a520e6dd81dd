"""The local AWS of the end-to-end tests."""

from __future__ import annotations

from tests.e2e.conftest import local_aws

__all__ = ["local_aws"]
