import json

import config_cases
import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admission
from dra_driver.logic.preparing import configs
from dra_driver.logic.scheduling import misnamed

EVERYWHERE = reviews.EVERYWHERE
GPU, MIG = config_cases.gpu(), config_cases.mig()
BAD = config_cases.mps(maxClients=0)
TWO_NAMES = config_cases.slices(interval="Short", timeSlice="Short")


def decide(resource="resourceclaims", version="v1", *, driver=reviews.DRIVER, **fields):
    body = reviews.made(resource, version, **fields)
    return admission.decide(reviews.review(resource, version, body), driver)


def decide_update(new, old, resource="resourceclaims"):
    document = reviews.review(resource, body=new, operation="UPDATE", oldObject=old)
    return admission.decide(document, reviews.DRIVER)


def problems(decision):
    return [(one.field, one.message) for one in decision.problems]


# What is looked at


@pytest.mark.parametrize(("resource", "version"), EVERYWHERE)
def test_a_problem_is_told_with_its_field_from_the_root_of_the_object(resource, version):
    good, bad = reviews.config(GPU), reviews.config(BAD)
    decision = decide(resource, version, configs=[good, bad])

    field = f"{reviews.root(resource)}.config[1].opaque.parameters.sharing.mpsConfig.maxClients"
    text = f"{field}: 0 is not allowed: {config_cases.CLIENTS}"
    assert problems(decision) == [(field, text)]
    assert admission.message(decision) == f"1 problem in configs: {text}"
    assert not decision.allowed


def test_all_problems_of_all_configs_are_told_at_once():
    decision = decide(configs=[reviews.config(BAD), reviews.config(TWO_NAMES)])

    assert [field for field, _ in problems(decision)] == [
        "spec.devices.config[0].opaque.parameters.sharing.mpsConfig.maxClients",
        "spec.devices.config[1].opaque.parameters.sharing.timeSlicingConfig.timeSlice",
    ]
    assert admission.message(decision).startswith("2 problems in configs: spec.devices.config[0]")


def test_configs_for_other_drivers_are_not_looked_at():
    other = reviews.config({"kind": "Whatever"}, driver="dra.example")
    assert decide(configs=[other]).allowed
    assert decide(configs=[reviews.config(BAD)], driver="dra.example").allowed


def test_an_object_without_configs_is_allowed():
    for resource in reviews.KINDS:
        decision = decide(resource)
        assert (decision.allowed, decision.warnings, decision.resource) == (True, (), resource)


@pytest.mark.parametrize("parameters", [None, "GpuConfig", [], 7])
def test_parameters_that_are_no_object_are_refused(parameters):
    (problem,) = decide(configs=[reviews.config(parameters)]).problems
    assert problem.field == "spec.devices.config[0].opaque.parameters"
    assert problem.message.startswith(f"{problem.field}: ")
    assert problem.message.endswith("is not allowed: write an object")


def test_an_unknown_field_is_told_in_the_words_of_a_strict_decoder():
    (problem,) = decide(configs=[reviews.config(config_cases.gpu(wrong=1))]).problems
    assert problem.message == (
        "spec.devices.config[0].opaque.parameters.wrong: strict decoding error: unknown field "
        '"wrong": allowed are apiVersion, kind, sharing'
    )


def test_of_very_many_problems_the_first_are_told():
    fields = config_cases.gpu(**{f"wrong{number}": 1 for number in range(150)})
    decision = decide(configs=[reviews.config(fields)])
    status = admission.answer(decision)["response"]["status"]
    assert status["message"].startswith("150 problems in configs: ")
    assert status["message"].endswith("; and 140 more problems")
    assert len(status["details"]["causes"]) == 10


def test_however_large_the_configs_are_the_answer_is_short():
    names = [f"{number}" + "\u202e" * 50 + "x" * 200 for number in range(25)]
    # As many and as large as the API server allows.
    large = [reviews.config(config_cases.gpu(**dict.fromkeys(names, 1))) for _ in range(32)]
    decision = decide(configs=large)
    assert len(decision.problems) == 10
    assert admission.message(decision).startswith(f"{32 * 25} problems in configs: ")
    assert admission.message(decision).endswith(" more problems")
    assert len(admission.message(decision).encode()) <= 4096
    assert "\u202e" not in admission.message(decision)
    answer = json.dumps(admission.answer(decision))
    assert len(answer) <= 16384


def test_names_of_any_length_make_a_short_answer():
    long = "x" * 100_000
    document = reviews.review("resourceclaims", body=reviews.made("resourceclaims", name=long))
    document["request"]["object"]["spec"]["devices"]["config"] = [reviews.config(BAD)]
    document["request"] |= {"name": "", "kind": {"kind": long}}
    decision = admission.decide(document, reviews.DRIVER)
    assert (decision.name, decision.kind) == (long[:253], long[:253])
    assert len(json.dumps(admission.answer(decision))) < 4096
    document["request"]["uid"] = long
    with pytest.raises(admission.MalformedReview, match=r"request\.uid: longer than the 253"):
        admission.decide(document, reviews.DRIVER)


def test_of_very_many_warnings_the_first_are_told():
    requests = [
        reviews.request(f"gpu-{number}", tolerations=[{"operator": "Exists"}])
        for number in range(32)
    ]
    warnings = decide(requests=requests).warnings
    assert len(warnings) == 11
    assert warnings[-1] == "and more warnings"


def test_what_is_not_checked_is_told_first_and_leaves_open_which_config_is_in_force():
    """Of the 33 configs the last one, which is not looked at, may be in force."""
    wrong = reviews.config(MIG, "gpu")
    assert not decide(configs=[wrong] * 32).allowed
    decision = decide(configs=[wrong] * 33)
    assert decision.allowed
    assert decision.warnings[0].startswith("spec.devices.config: only the first 32 of 33 are")


def test_no_more_warnings_are_worked_out_than_are_told(monkeypatch):
    """Kubernetes sets no limit to the names of capacities in one request."""
    asked = []
    nearest = misnamed.nearest
    monkeypatch.setattr(
        misnamed, "nearest", lambda name, known: asked.append(name) or nearest(name, known)
    )
    names = {f"name{number}": "1" for number in range(500)}
    request = reviews.request("gpu", capacity={"requests": names})
    warnings = decide(requests=[request]).warnings
    assert (len(warnings), warnings[-1]) == (11, "and more warnings")
    assert set(asked) == {f"name{number}" for number in range(11)}


def test_what_is_refused_is_not_warned_of_as_well():
    requests = [reviews.request("gpu", tolerations=[{"operator": "Exists"}])]
    assert decide(requests=requests).warnings
    refused = decide(requests=requests, configs=[reviews.config(BAD)])
    assert (refused.allowed, refused.warnings) == (False, ())


# Updates


@pytest.mark.parametrize("resource", reviews.KINDS)
def test_an_old_object_may_always_be_let_go(resource):
    old = reviews.made(resource, configs=[reviews.config(BAD)])
    new = old | {"metadata": {"name": "some", "finalizers": []}}
    assert decide_update(new, old, resource).allowed


def test_an_update_that_leaves_the_configs_as_they_are_is_allowed():
    entries = [reviews.config(BAD)]
    old = reviews.made("deviceclasses", configs=entries)
    selectors = reviews.selector('device.driver == "gpu.nvidia.com"')
    new = reviews.made("deviceclasses", configs=entries, selectors=selectors)
    assert decide_update(new, old, "deviceclasses").allowed


def test_an_update_that_brings_a_bad_config_is_refused():
    old = reviews.made("deviceclasses", configs=[reviews.config(GPU)])
    new = reviews.made("deviceclasses", configs=[reviews.config(BAD)])
    assert not decide_update(new, old, "deviceclasses").allowed
    assert decide_update(old, new, "deviceclasses").allowed


def test_an_update_that_makes_a_config_one_for_another_type_is_refused():
    entries = [reviews.config(GPU, "gpu")]
    old = reviews.made("resourceclaimtemplates", configs=entries)
    requests = [reviews.request("gpu", "mig.nvidia.com")]
    new = reviews.made("resourceclaimtemplates", configs=entries, requests=requests)
    assert not decide_update(new, old, "resourceclaimtemplates").allowed


def test_an_update_that_leaves_the_spec_as_it_is_is_not_warned_of():
    selectors = reviews.selector('device.attributes["gpu.nvidia.com"].numaNode == 1')
    old = reviews.made("deviceclasses")
    new = reviews.made("deviceclasses", selectors=selectors)
    assert decide_update(new, old, "deviceclasses").warnings
    labelled = new | {"metadata": {"name": "some", "labels": {"a": "b"}}}
    assert not decide_update(labelled, new, "deviceclasses").warnings


@pytest.mark.parametrize("changes", [{"operation": "DELETE"}, {"subResource": "status"}])
def test_what_changes_no_spec_is_allowed(changes):
    body = reviews.made("resourceclaims", configs=[reviews.config(BAD)])
    document = reviews.review("resourceclaims", body=body, **changes)
    assert admission.decide(document, reviews.DRIVER).allowed


def test_a_deletion_has_no_object_and_is_allowed():
    document = reviews.review("resourceclaims", operation="DELETE", object=None, oldObject={})
    assert admission.decide(document, reviews.DRIVER).allowed


# Kind of config against type of device


@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates"])
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
@pytest.mark.parametrize(
    ("device_class", "device_type", "right"),
    [
        ("gpu.nvidia.com", "gpu", GPU),
        ("mig.nvidia.com", "mig", MIG),
        ("vfio.gpu.nvidia.com", "vfio", config_cases.vfio()),
    ],
)
def test_a_config_for_a_request_has_the_kind_of_its_class(
    resource, version, device_class, device_type, right
):
    requests = [reviews.request("other"), reviews.request("part", device_class)]
    for wrong in (GPU, MIG, config_cases.vfio()):
        entries = [reviews.config(wrong, "part")]
        decision = decide(resource, version, requests=requests, configs=entries)
        if wrong is right or wrong["kind"] == right["kind"]:
            assert decision.allowed
            continue
        field = f"{reviews.root(resource)}.config[0].requests"
        text = (
            f"{field}: {wrong['kind']} cannot be applied to request 'part': devices of class "
            f"{device_class} are of type {device_type}: write a {right['kind']}, or take the "
            "request out of `requests`"
        )
        assert problems(decision) == [(field, text)]


def test_of_a_class_with_another_name_nothing_is_said():
    requests = [reviews.request("part", "team-a-small")]
    assert decide(requests=requests, configs=[reviews.config(GPU, "part")]).allowed


def test_another_driver_has_no_classes_that_are_known_by_name():
    requests = [reviews.request("part", "mig.nvidia.com")]
    entries = [reviews.config(GPU, "part", driver="gpu.example")]
    assert decide(requests=requests, configs=entries, driver="gpu.example").allowed


def alternatives():
    return [
        reviews.request(
            "one",
            firstAvailable=[
                {"name": "whole", "deviceClassName": "gpu.nvidia.com"},
                {"name": "part", "deviceClassName": "mig.nvidia.com"},
            ],
        )
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_config_for_a_request_covers_its_alternatives(version):
    decision = decide(
        version=version, requests=alternatives(), configs=[reviews.config(GPU, "one")]
    )
    (problem,) = decision.problems
    assert "cannot be applied to request 'one/part'" in problem.message


def test_a_config_that_a_later_one_stands_before_is_in_nobodys_way():
    general, special = reviews.config(GPU, "one"), reviews.config(MIG, "one/part")
    assert decide(requests=alternatives(), configs=[general, special]).allowed
    assert not decide(requests=alternatives(), configs=[special, general]).allowed


def test_the_kind_of_an_invalid_config_is_looked_at_too():
    requests = [reviews.request("part", "mig.nvidia.com")]
    decision = decide(requests=requests, configs=[reviews.config(BAD, "part")])
    assert [field.rpartition(".")[2] for field, _ in problems(decision)] == [
        "maxClients",
        "requests",
    ]


def test_while_a_kind_cannot_be_read_nothing_is_said_about_which_config_is_in_force():
    requests = [reviews.request("part", "mig.nvidia.com")]
    entries = [reviews.config(GPU, "part"), reviews.config({"kind": "MigConfig"}, "part")]
    fields = [field for field, _ in problems(decide(requests=requests, configs=entries))]
    assert fields == [
        "spec.devices.config[1].opaque.parameters.apiVersion",
        "spec.devices.config[1].opaque.parameters.kind",
    ]


# Answers


def test_the_answer_has_the_uid_and_the_problems_one_by_one():
    decision = decide(configs=[reviews.config(BAD), reviews.config(config_cases.gpu(wrong=1))])
    response = admission.answer(decision)["response"]

    assert (response["uid"], response["allowed"]) == ("705ab4f5-6393-11e8-b7cc-42010a800002", False)
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"] == admission.message(decision)
    details = status["details"]
    assert (details["kind"], details["name"]) == ("ResourceClaim", "some")
    path = "spec.devices.config"
    assert [(cause["field"], cause["message"]) for cause in details["causes"]] == [
        (
            f"{path}[0].opaque.parameters.sharing.mpsConfig.maxClients",
            f"0 is not allowed: {config_cases.CLIENTS}",
        ),
        (
            f"{path}[1].opaque.parameters.wrong",
            'strict decoding error: unknown field "wrong": allowed are apiVersion, kind, sharing',
        ),
    ]


def test_the_answer_to_what_is_allowed_says_no_more():
    assert admission.answer(decide()) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True},
    }


def test_a_claim_that_gets_its_name_later_is_told_by_the_beginning_of_it():
    body = reviews.made("resourceclaims", configs=[reviews.config(BAD)])
    body["metadata"] = {"generateName": "job-"}
    decision = admission.decide(
        reviews.review("resourceclaims", body=body, name=""), reviews.DRIVER
    )
    assert decision.name == "job-"


# What is no such review


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"kind": "AdmissionReview"},
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": None},
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}},
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 7}},
        {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}},
        reviews.review("resourceclaims") | {"kind": "Review"},
    ],
)
def test_what_is_no_review_is_malformed(document):
    with pytest.raises(admission.MalformedReview):
        admission.decide(document, reviews.DRIVER)


def test_resources_that_are_not_checked_are_allowed_with_a_word():
    decision = admission.decide(reviews.review("pods", body={}), reviews.DRIVER)
    assert decision.allowed
    assert decision.warnings == (
        "the webhook does not check pods: its rules name more than it is for",
    )


def test_a_version_that_is_not_known_is_refused():
    document = reviews.review("resourceclaims", "v2")
    decision = admission.decide(document, reviews.DRIVER)
    (problem,) = decision.problems
    assert str(problem) == (
        "apiVersion: resource.k8s.io/v2 is not known here: write one of v1, v1beta2, v1beta1, "
        "or use a newer driver"
    )


def test_the_problem_type_is_that_of_the_plugin():
    assert isinstance(decide(configs=[reviews.config(BAD)]).problems[0], configs.Problem)
