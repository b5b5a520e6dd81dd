"""Has ministack check every call against IAM policies, which it otherwise does not: all is allowed then.

Each of our callers is a user without permissions until it is given a policy by ordinary IAM calls. Not for
ECS, which moto answers: its check knows neither a task definition's ARN nor the condition on the cluster.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from local_aws.recording import ACTIONS, Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Parameters = dict[str, Any]

SECRET = "test"  # noqa: S105 -- no secret
# What ministack reads as it is imported. Its root user is our administrator, who may do everything.
ENVIRONMENT: Mapping[str, str] = {
    "AUTH": "true",
    "AWS_ACCESS_KEY_ID": Caller.ADMINISTRATOR.value,
    "AWS_SECRET_ACCESS_KEY": SECRET,
}


def install() -> None:
    """Change this process's ministack.

    A user's name is his access key; and a batch to a queue, and a stream of a log group, are checked under
    the names that AWS has for them.
    """
    from ministack.core import iam_actions
    from ministack.services import iam

    name: Callable[..., str | None] = iam_actions.extract_iam_action
    place: Callable[..., str] = iam_actions.extract_resource_arn
    create: Callable[[Parameters], Any] = iam._IAM_HANDLERS["CreateAccessKey"]

    def create_by_name(parameters: Parameters) -> Any:
        before = set(iam._access_keys)
        answer = create(parameters)
        for made in set(iam._access_keys) - before:
            key = iam._access_keys[made]
            del iam._access_keys[made]
            name = key["UserName"]
            iam._access_keys[name] = key | {"AccessKeyId": name, "SecretAccessKey": SECRET}
        return answer

    def name_as_aws_does(*request: Any) -> str | None:
        namespace, _, action = (name(*request) or "").partition(":")
        return f"{namespace}:{ACTIONS.get(action, action)}" if action else None

    def place_as_aws_does(service: str, method: str, path: str, headers: Any, body: bytes, *rest: Any) -> str:
        arn = place(service, method, path, headers, body, *rest)
        stream = json.loads(body or b"{}").get("logStreamName") if service == "logs" else None
        return f"{arn}:log-stream:{stream}" if stream else arn

    iam_actions.extract_resource_arn = place_as_aws_does
    iam_actions.extract_iam_action = name_as_aws_does
    iam._IAM_HANDLERS["CreateAccessKey"] = create_by_name


def create_callers(iam: Any) -> None:
    """Make a user with an access key of each caller that is not there yet."""
    there = {user["UserName"] for user in iam.list_users()["Users"]}
    for caller in Caller:
        if caller is not Caller.ADMINISTRATOR and caller.value not in there:
            iam.create_user(UserName=caller.value)
            iam.create_access_key(UserName=caller.value)
