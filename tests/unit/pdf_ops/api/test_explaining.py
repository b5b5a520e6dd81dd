"""What people are told when AWS does not do what it should: which kind of trouble it is, and what to do."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, NoCredentialsError

from pdf_ops.api.problems import explain_aws


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "arn:aws:secret"}}, "Query")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EndpointConnectionError(endpoint_url="http://x"), "AWS cannot be reached (EndpointConnectionError)"),
        (ConnectTimeoutError(endpoint_url="http://x"), "AWS cannot be reached (ConnectTimeoutError)"),
        (NoCredentialsError(), "there are no usable credentials"),
        (refused("AccessDeniedException"), "AWS does not allow Query"),
        (refused("ExpiredTokenException"), "does not take the web server's credentials"),
        (refused("ResourceNotFoundException"), "nothing under a name of the settings"),
        (refused("ThrottlingException"), "Query was throttled"),
        (refused("InternalServerError"), "Query says InternalServerError"),
    ],
)
def test_each_kind_of_trouble_has_its_own_words_without_names_of_resources(error: Exception, said: str):
    text = explain_aws(error)

    assert said in text
    assert "secret" not in text
