"""``include/permissions.json`` as the tests read it: who may do what, on which resources."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Any

from local_aws.recording import Caller
from local_aws.resources import RESOURCES_FILE
from local_aws.servers import ACCOUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.pipeline import Pipeline

    from local_aws import LocalAws

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


def names_of(aws: LocalAws, world: Pipeline) -> dict[str, str]:
    """The values of the file's variables for a pipeline on the local AWS."""
    prefix = f"arn:aws:{{}}:{aws.region}:{ACCOUNT}:"
    group = aws.resources.log_groups[aws.resources.task_definition.container.log_group].name
    return {
        "partition": "aws",
        "region": aws.region,
        "account": ACCOUNT,
        "input_bucket_arn": f"arn:aws:s3:::{world.input}",
        "output_bucket_arn": f"arn:aws:s3:::{world.output}",
        "output_prefix": world.layout.output_prefix,
        "manifest_bucket_arn": f"arn:aws:s3:::{world.output}",
        "manifest_prefix": world.layout.manifest_prefix,
        "queue_arn": prefix.format("sqs") + world.queue.rpartition("/")[2],
        "dead_letters_arn": prefix.format("sqs") + world.dlq.rpartition("/")[2],
        "events_arn": prefix.format("sqs") + aws.resources.queues["events"].name,
        "state_table_arn": prefix.format("dynamodb") + f"table/{world.state_table}",
        "runs_table_arn": prefix.format("dynamodb") + f"table/{world.runs_table}",
        "log_group_arn": prefix.format("logs") + f"log-group:{group}",
        "cluster": aws.resources.cluster.name,
        "task_family": world.task_family,
    }


def policy_of(role: str, permissions: Iterable[Permission]) -> dict[str, Any]:
    """A role's permissions as IAM takes them; what is allowed on nothing is left out."""
    statements = [
        {"Effect": "Allow", "Action": [one.action], "Resource": list(one.arns)}
        | ({"Condition": one.condition} if one.condition else {})
        for one in permissions
        if one.role == role and one.arns
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def give(iam: Any, permissions: Iterable[Permission]) -> None:
    """Have the callers of a local AWS that enforces policies be allowed this, and no more."""
    permissions = list(permissions)
    for caller in Caller:
        if caller is not Caller.ADMINISTRATOR:
            policy = json.dumps(policy_of(caller.value, permissions))
            iam.put_user_policy(UserName=caller.value, PolicyName="permissions", PolicyDocument=policy)


def variables() -> set[str]:
    """The names of all values that the file leaves open."""
    return set(Template(PERMISSIONS_FILE.read_text(encoding="utf-8")).get_identifiers())
