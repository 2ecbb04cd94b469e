"""What holds for the metadata of the claims that a template makes; for their spec: claims."""

import pytest
from api_objects import TEMPLATES, changed, template


def with_metadata(metadata, name="one"):
    return changed(template(name), "spec.metadata", metadata)


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"labels": {"a": "b c"}}, 'spec.metadata.labels: Invalid value: "b c"'),
        ({"annotations": {"a b": "c"}}, 'spec.metadata.annotations: Invalid value: "a b"'),
        ({"name": "claim"}, "spec.metadata.name: Forbidden: cannot be set"),
        ({"finalizers": ["a/b"]}, "spec.metadata.finalizers: Forbidden: cannot be set"),
    ],
)
def test_what_is_wrong_with_it_is_told(shared_api, metadata, cause):
    answer = shared_api.send("POST", TEMPLATES, with_metadata(metadata))

    assert answer.status == 422
    assert [text[: len(cause)] for text in answer.causes] == [cause]


def test_annotations_come_first_and_fields_that_cannot_be_set_last(shared_api):
    metadata = {"name": "claim", "labels": {"a b": "c"}, "annotations": {"d e": "f"}}

    answer = shared_api.send("POST", TEMPLATES, with_metadata(metadata))

    assert [text.partition(": ")[0] for text in answer.causes] == [
        "spec.metadata.annotations",
        "spec.metadata.labels",
        "spec.metadata.name",
    ]


@pytest.mark.parametrize("metadata", [{"labels": "a"}, {"annotations": {"a": 1}}, "x"])
def test_another_type_cannot_be_read(shared_api, metadata):
    answer = shared_api.send("POST", TEMPLATES, with_metadata(metadata))

    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


def test_an_unknown_field_is_refused_where_that_is_asked_for(shared_api):
    body = with_metadata({"colour": "red"}, "strict")

    answer = shared_api.send("POST", TEMPLATES, body, fieldValidation="Strict")

    assert answer.status == 400
    assert answer.body["message"].endswith(
        'strict decoding error: unknown field "spec.metadata.colour"'
    )


def test_it_is_there_though_nothing_was_said_of_it(shared_api):
    assert shared_api.create(TEMPLATES, template("plain"))["spec"]["metadata"] == {}
