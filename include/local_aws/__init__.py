"""A local AWS on one machine: the data services by ministack, and an ECS whose tasks are processes.

For the demo, the tests and a developer's terminal; never for a deployment. ``LocalAws`` starts and
stops it, ``python -m local_aws up`` does so from a shell.
"""

from local_aws.running import LocalAws
from local_aws.servers import LocalAwsError

__all__ = ["LocalAws", "LocalAwsError"]
