"""``include/permissions.json`` as the tests read it: who may do what, on which resources."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any

from local_aws.resources import RESOURCES_FILE

if TYPE_CHECKING:
    from collections.abc import Mapping

PERMISSIONS_FILE = RESOURCES_FILE.with_name("permissions.json")


@dataclass(frozen=True, slots=True)
class Permission:
    """One action of one role on one kind of resource."""

    role: str
    action: str
    resource: str
    arns: tuple[str, ...]
    unproved: str | None
    condition: Mapping[str, Any] | None

    def allows(self, role: str, action: str, resource: str) -> bool:
        """Whether it covers a call, as IAM matches names: ``*`` is any text."""
        return (role, action) == (self.role, self.action) and any(
            fnmatch.fnmatchcase(resource, arn) for arn in self.arns
        )

    def __str__(self) -> str:
        return f"{self.role}: {self.action} on {self.resource}"


def load_permissions(names: Mapping[str, str]) -> list[Permission]:
    """All permissions, with the given values in place of the file's ``${...}``; unknown ones stay."""
    text = PERMISSIONS_FILE.read_text(encoding="utf-8")
    content = json.loads(Template(text).safe_substitute(names))
    return [
        Permission(
            role=role,
            action=action,
            resource=statement["resource"],
            # A value may be several ARNs, or none.
            arns=tuple(
                arn
                for entry in content["resources"][statement["resource"]]
                for arn in entry.split(",")
                if arn
            ),
            unproved=statement.get("unproved"),
            condition=content["conditions"][statement["condition"]] if "condition" in statement else None,
        )
        for role, statements in content["roles"].items()
        for statement in statements
        for action in statement["actions"]
    ]


def variables() -> set[str]:
    """The names of all values that the file leaves open."""
    return set(Template(PERMISSIONS_FILE.read_text(encoding="utf-8")).get_identifiers())
