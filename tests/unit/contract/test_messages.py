from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pdf_ops.contract.errors import ErrorKind
from pdf_ops.contract.layout import S3Uri
from pdf_ops.contract.messages import DocumentMessage, MessageError, MessageForm, parse_message


def s3_record(key="folder/file.pdf", event="ObjectCreated:Put", **more):
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "eventName": event,
        "s3": {
            "bucket": {"name": "my-bucket", "arn": "arn:aws:s3:::my-bucket"},
            "object": {
                "key": key,
                "size": 1024,
                "eTag": "abc",
                "versionId": "v1",
                "sequencer": "0A1B",
                **more,
            },
        },
    }


def s3_event(*records):
    return {"Records": list(records)}


def eventbridge(key="folder/file.pdf", detail_type="Object Created", source="aws.s3"):
    return {
        "version": "0",
        "detail-type": detail_type,
        "source": source,
        "detail": {
            "version": "0",
            "bucket": {"name": "my-bucket"},
            "object": {"key": key, "size": 1024, "etag": "abc", "version-id": "v1", "sequencer": "0A1B"},
            "reason": "PutObject",
        },
    }


def sns(inner):
    return {"Type": "Notification", "TopicArn": "arn:aws:sns:eu-west-1:1:t", "Message": json.dumps(inner)}


def parse(body):
    return parse_message(json.dumps(body))


FROM_EVENT = DocumentMessage(
    bucket="my-bucket", key="folder/file.pdf", version_id="v1", etag="abc", size=1024
)


@pytest.mark.parametrize(
    ("body", "expected", "form"),
    [
        ({"s3_key": "folder/file.pdf"}, DocumentMessage(key="folder/file.pdf"), MessageForm.SIMPLE),
        (
            {"s3_key": "s3://other/a b.pdf"},
            DocumentMessage(bucket="other", key="a b.pdf"),
            MessageForm.SIMPLE,
        ),
        ({"s3_key": "a+b%20c.pdf"}, DocumentMessage(key="a+b%20c.pdf"), MessageForm.SIMPLE),
        (
            {"s3_key": "a.pdf", "bucket": "s3://other/"},
            DocumentMessage(bucket="other", key="a.pdf"),
            MessageForm.SIMPLE,
        ),
        (
            {"s3Key": "a.pdf", "fileId": "f-1"},
            DocumentMessage(key="a.pdf", file_id="f-1"),
            MessageForm.FILE_ID,
        ),
        ({"s3Key": "a.pdf", "fileId": 17}, DocumentMessage(key="a.pdf", file_id="17"), MessageForm.FILE_ID),
        ({"s3Key": "s3://other/a.pdf"}, DocumentMessage(bucket="other", key="a.pdf"), MessageForm.FILE_ID),
        (s3_event(s3_record()), FROM_EVENT, MessageForm.S3_EVENT),
        (s3_event(s3_record(event="s3:ObjectCreated:Put")), FROM_EVENT, MessageForm.S3_EVENT),
        (s3_event(s3_record(event="ObjectRestore:Completed")), FROM_EVENT, MessageForm.S3_EVENT),
        (sns(s3_event(s3_record())), FROM_EVENT, MessageForm.S3_EVENT),
        (eventbridge(), FROM_EVENT, MessageForm.EVENTBRIDGE),
        (eventbridge(detail_type="Object Restore Completed"), FROM_EVENT, MessageForm.EVENTBRIDGE),
        (sns(eventbridge()), FROM_EVENT, MessageForm.EVENTBRIDGE),
        (
            {"v": 1, "s3_key": "a.pdf", "run_id": "r", "shard": "3"},
            DocumentMessage(key="a.pdf", run_id="r", shard="3"),
            MessageForm.ENQUEUED,
        ),
    ],
)
def test_every_accepted_form_gives_the_document_it_names(body, expected, form):
    for written in (
        json.dumps(body),
        json.dumps(body).encode(),
        "\ufeff" + json.dumps(body, ensure_ascii=False),
    ):
        (message,) = parse_message(written)
        assert message == expected
        assert message.form is form


def test_a_notification_may_hold_several_documents_in_order():
    keys = [message.key for message in parse(s3_event(s3_record("a"), s3_record("b"), s3_record("c")))]
    assert keys == ["a", "b", "c"]


def test_s3_notifications_encode_keys_and_eventbridge_does_not():
    (notified,) = parse(s3_event(s3_record("a+b%2Bc/%C3%BC%25.pdf")))
    assert notified.key == "a b+c/ü%.pdf"
    (bridged,) = parse(eventbridge("a+b%2Bc.pdf"))
    assert bridged.key == "a+b%2Bc.pdf"


@pytest.mark.parametrize(
    "body",
    [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "my-bucket"},
        sns({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "my-bucket"}),
        s3_event(),
        s3_event(s3_record(event="ObjectRemoved:Delete")),
        s3_event(s3_record(event="s3:ObjectTagging:Put")),
        s3_event(s3_record(event="ObjectRestore:Post")),
        eventbridge(detail_type="Object Deleted"),
        eventbridge(detail_type="Object Tags Added"),
    ],
)
def test_events_that_bring_no_document_give_none_and_are_no_error(body):
    assert parse(body) == ()


def test_removed_objects_are_left_out_of_a_mixed_notification():
    documents = parse(s3_event(s3_record("kept"), s3_record("gone", event="ObjectRemoved:Delete")))
    assert [message.key for message in documents] == ["kept"]


def test_quotes_around_an_etag_are_dropped():
    assert DocumentMessage(key="a", etag='"abc-2"').etag == "abc-2"
    assert DocumentMessage(key="a", etag='""').etag is None
    (message,) = parse(s3_event(s3_record(eTag='"abc"')))
    assert message.etag == "abc"


def test_empty_and_null_details_count_as_unknown():
    (message,) = parse({"v": 1, "s3_key": "a", "bucket": "", "etag": "", "version_id": None, "run_id": ""})
    assert message == DocumentMessage(key="a")
    (message,) = parse(s3_event(s3_record(eTag="", versionId=None)))
    assert (message.etag, message.version_id) == (None, None)


BAD = [
    ("", "not JSON"),
    ("null", "not an object"),
    ("[]", "not an object"),
    ('"s3_key"', "not an object"),
    ("{}", "no s3_key"),
    ('{"key": "a.pdf"}', "no s3_key .its fields: key"),
    ("{'s3_key': 'a'}", "not JSON"),
    ('{"s3_key": NaN}', "NaN is not a JSON value"),
    ('{"s3_key": 1}', "s3_key is not a text"),
    ('{"s3_key": ""}', "s3_key is missing or empty"),
    ('{"s3_key": null}', "s3_key is missing or empty"),
    ('{"s3_key": "\\ud800"}', "not valid Unicode"),
    (json.dumps({"s3_key": "é" * 513}), "1026 bytes"),
    ('{"s3_key": "s3://bucket"}', "not an S3 URI"),
    ('{"s3_key": "s3://bucket/"}', "0 bytes"),
    ('{"s3_key": "a", "bucket": "no bucket"}', "is not a bucket"),
    ('{"s3_key": "a", "bucket": []}', "bucket is not a text"),
    ('{"s3Key": "a", "fileId": true}', "fileId is not a text"),
    ('{"s3Key": "a", "fileId": %s}' % ("9" * 1025), "file_id has 1025 bytes"),
    ('{"s3Key": "a", "fileId": %s}' % ("9" * 5000), "not JSON"),
    ('{"v": 2, "s3_key": "a"}', "v is 2"),
    ('{"v": true, "s3_key": "a"}', "v is True"),
    ('{"v": 1.0, "s3_key": "a"}', "v is of another type"),
    ('{"v": 1}', "s3_key is missing"),
    ('{"v": 1, "s3_key": "a", "size": -1}', "size is not a number of bytes"),
    ('{"v": 1, "s3_key": "a", "size": 9223372036854775808}', "size is not a number of bytes"),
    ('{"v": 1, "s3_key": "a", "size": 1.5}', "size is not a whole number"),
    ('{"v": 1, "s3_key": "a", "size": true}', "size is not a whole number"),
    (json.dumps({"v": 1, "s3_key": "a", "run_id": "r" * 1025}), "run_id has 1025 bytes"),
    ('{"v": 1, "s3_key": "a", "run_id": "\\udfff"}', "run_id is not valid Unicode"),
    ('{"Records": {}}', "Records is not a list"),
    ('{"Records": [1]}', "no s3 part"),
    ('{"Records": [{"eventSource": "aws:sqs"}]}', "no s3 part"),
    (json.dumps(s3_event({**s3_record(), "eventName": None})), "eventName is missing"),
    (json.dumps(s3_event(s3_record(), s3_record("%FF"))), "URL-encoded"),
    (json.dumps(s3_event({"eventName": "ObjectCreated:Put", "s3": {}})), "object is not an object"),
    (json.dumps(eventbridge(source="my.app")), "not S3's own"),
    (json.dumps(eventbridge(detail_type="AWS API Call via CloudTrail")), "not S3's own"),
    (json.dumps({**eventbridge(), "detail": None}), "detail is not an object"),
    (json.dumps(sns(sns({"s3_key": "a"}))), "no s3_key"),
    (json.dumps({"Type": "Notification", "Message": "hello"}), "SNS notification's Message is not JSON"),
    (json.dumps({"Type": "Notification", "Message": {}}), "Message is not a text"),
    ("[" * 100_000, "nested too deeply"),
    ('{"v":' * 100_000, "nested too deeply"),
    ('{"v":' + "[" * 900 + "]" * 900 + "}", "v is of another type"),
    (b"\xff\xfe{\x00}\x00", "not JSON"),
]


@pytest.mark.parametrize(("body", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_a_message_that_names_no_document_is_refused_with_the_problem_and_the_accepted_forms(body, problem):
    with pytest.raises(MessageError, match=problem) as caught:
        parse_message(body)
    assert caught.value.kind is ErrorKind.SOURCE_INVALID_MESSAGE
    assert 'accepted: {"s3_key": "folder/file.pdf"}' in caught.value.detail
    assert caught.value.detail.endswith("an EventBridge event of aws.s3")


VALID_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
MESSAGES = st.builds(
    DocumentMessage,
    bucket=st.none() | st.from_regex(r"\A[a-z0-9][a-z0-9-]{1,20}[a-z0-9]\Z"),
    key=VALID_TEXT | VALID_TEXT.map("s3://bucket/{}".format),
    version_id=st.none() | VALID_TEXT,
    etag=st.none() | VALID_TEXT,
    size=st.none() | st.integers(0, 2**63 - 1),
    run_id=st.none() | VALID_TEXT,
    file_id=st.none() | VALID_TEXT,
    shard=st.none() | VALID_TEXT,
    form=st.sampled_from(MessageForm),
)


@given(MESSAGES)
@example(DocumentMessage(key="s3://bucket/key"))
def test_a_message_comes_back_as_it_was_written(message):
    written = message.to_json()
    assert parse_message(written) == (message,)
    assert parse_message(written.encode()) == (message,)
    assert parse_message(written)[0].form is MessageForm.ENQUEUED
    assert written.isascii()


def test_the_written_form_is_what_version_1_promised():
    message = DocumentMessage(bucket="my-bucket", key="ü.pdf", etag="e", size=3, run_id="r", shard="0")
    assert message.to_json() == (
        '{"v":1,"s3_key":"\\u00fc.pdf","bucket":"my-bucket","etag":"e","size":3,"run_id":"r","shard":"0"}'
    )


# JSON values built from the words that the parser looks for, so that many get far into it.
WORDS = st.sampled_from(
    [
        "v",
        "s3_key",
        "s3Key",
        "fileId",
        "bucket",
        "Records",
        "s3",
        "object",
        "key",
        "name",
        "eventName",
        "size",
        "eTag",
        "etag",
        "versionId",
        "detail-type",
        "detail",
        "source",
        "aws.s3",
        "Object Created",
        "Type",
        "Notification",
        "Message",
        "Event",
        "s3:TestEvent",
        "ObjectCreated:Put",
        "%FF",
        "s3://",
        "s3://b/k",
        "",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**20, 10**400),
    st.floats(),
    st.text(max_size=8),
    WORDS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=25,
)
RECORDS = st.fixed_dictionaries(
    {
        "eventName": st.just("ObjectCreated:Put"),
        "s3": VALUES
        | st.fixed_dictionaries(
            {"bucket": VALUES | st.just({"name": "my-bucket"}), "object": st.dictionaries(WORDS, VALUES)}
        ),
    }
)
LIKELY = st.one_of(
    st.fixed_dictionaries({"s3_key": VALUES}, optional={"bucket": VALUES, "v": VALUES, "size": VALUES}),
    st.fixed_dictionaries({"v": st.just(1), "s3_key": VALUES}, optional={"etag": VALUES, "run_id": VALUES}),
    st.fixed_dictionaries({"s3Key": VALUES}, optional={"fileId": VALUES}),
    st.fixed_dictionaries({"Records": VALUES | st.lists(RECORDS)}),
    st.builds(lambda detail: {**eventbridge(), "detail": detail}, VALUES),
    VALUES.map(sns),
    st.text().map(lambda text: {"Type": "Notification", "Message": text}),
)


def parses_or_is_refused(body):
    """Nothing but a MessageError may come out; what parses can be written and parsed again."""
    try:
        documents = parse_message(body)
    except MessageError as error:
        error.last_error.encode()
        return
    for document in documents:
        assert 1 <= len(document.key.encode()) <= 1024
        assert parse_message(document.to_json()) == (document,)


@given(st.text())
def test_any_text_parses_or_is_refused_as_a_message(body):
    parses_or_is_refused(body)


@given(st.binary())
def test_any_bytes_parse_or_are_refused_as_a_message(body):
    parses_or_is_refused(body)


@given(VALUES | LIKELY, st.booleans())
def test_any_json_parses_or_is_refused_as_a_message(body, ascii_only):
    parses_or_is_refused(json.dumps(body, ensure_ascii=ascii_only))


def test_a_message_without_a_bucket_means_the_default_bucket():
    assert DocumentMessage(key="a.pdf").source_uri("s3://default/") == S3Uri("default", "a.pdf")
    assert DocumentMessage(bucket="own", key="a.pdf").source_uri("default") == S3Uri("own", "a.pdf")


def test_a_message_about_nothing_cannot_be_made():
    for wrong in (
        {"key": ""},
        {"key": "a", "size": -1},
        {"key": "a", "run_id": ""},
        {"key": "a", "bucket": "?"},
    ):
        with pytest.raises(MessageError):
            DocumentMessage(**wrong)
