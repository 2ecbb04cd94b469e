"""What becomes of parameter objects: the claims, and what cannot be said."""

import effort
import hypothesis
import parameter_cases
import pytest
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.logic.cel import selection
from dra_driver.logic.parameters import claims
from dra_driver.logic.preparing import configs
from dra_driver.model import claims as claim_model
from dra_driver.model import parameters

DRIVER = "gpu.nvidia.com"
GPU, MIG, MIG_DEVICE, VFIO = parameters.Kind


def of(kind, spec, **options):
    return claims.of(kind, spec, DRIVER, **options)


def exactly(kind, spec, **options):
    made = of(kind, spec, **options)
    assert made.problems == ()
    [request] = made.spec["devices"]["requests"]
    return request["exactly"]


def told(kind, spec, **options):
    made = of(kind, spec, **options)
    assert (made.spec, made.expressions) == (None, ())
    return [str(problem) for problem in made.problems]


@pytest.mark.parametrize(
    ("kind", "spec", "device_class"),
    [
        (GPU, {}, "gpu.nvidia.com"),
        (GPU, None, "gpu.nvidia.com"),
        (MIG, {"profile": "1g.5gb"}, "mig.nvidia.com"),
        (MIG_DEVICE, {"profile": "1g.10gb+me"}, "mig.nvidia.com"),
        (VFIO, {}, "vfio.gpu.nvidia.com"),
    ],
)
def test_the_kind_says_the_class_and_one_device_is_asked_for(kind, spec, device_class):
    body = exactly(kind, spec)
    assert (body["deviceClassName"], body["count"]) == (device_class, 1)


def test_the_example_of_the_talk_becomes_two_selectors():
    spec = {
        "selector": {
            "andExpression": [
                {"memory": {"value": "16G", "operator": "LessThanOrEqualTo"}},
                {"cudaComputeCapability": {"value": "7.5", "operator": "GreaterThanOrEqualTo"}},
            ]
        }
    }
    made = of(GPU, spec)
    assert [str(each) for each in made.conditions[:2]] == [
        "spec.selector.andExpression[0]: memory LessThanOrEqualTo 16G",
        "spec.selector.andExpression[1]: cudaComputeCapability GreaterThanOrEqualTo 7.5.0",
    ]
    assert made.request["selectors"] == [{"cel": {"expression": text}} for text in made.expressions]
    parsed = claim_model.parse(
        {"metadata": {"namespace": "n", "name": "c", "uid": "u"}, "spec": made.spec}
    )
    [request] = parsed.requests
    assert request.alternatives[0].selectors == made.expressions


def test_a_device_that_is_shared_by_count_is_no_whole_one():
    assert of(GPU, {}).expressions == ("!('shares' in device.capacity['gpu.nvidia.com'])",)
    assert of(VFIO, {}).expressions == ()
    sliced = {"sharing": {"strategy": "TimeSlicing"}}
    assert of(GPU, sliced).expressions == (
        "!('enforcement' in device.attributes['gpu.nvidia.com'])",
    )


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (
            {"maxConnections": 2, "activeThreadPercentage": 50, "pinnedDeviceMemoryLimit": "2Gi"},
            {
                "maxClients": 2,
                "defaultActiveThreadPercentage": 50,
                "defaultPinnedDeviceMemoryLimit": "2048Mi",
            },
        ),
        (
            {"pinnedDeviceMemoryLimit": {"0": "2Gi"}},
            {"defaultPerDevicePinnedMemoryLimit": {"0": "2048Mi"}},
        ),
        (
            {"perDevicePinnedMemoryLimit": {"GPU-1": "1Gi"}},
            {"defaultPerDevicePinnedMemoryLimit": {"GPU-1": "1024Mi"}},
        ),
        ({"defaultPinnedDeviceMemoryLimit": "3Gi"}, {"defaultPinnedDeviceMemoryLimit": "3072Mi"}),
    ],
    ids=["first names", "a map by its first name", "a map", "last names"],
)
@pytest.mark.parametrize("kind", [GPU, MIG])
def test_mps_keeps_its_limits_under_the_names_of_today(kind, given, settings):
    spec = {"sharing": {"strategy": "MPS", "mpsConfig": given}}
    made = of(kind, spec | ({"profile": "1g.5gb"} if kind is MIG else {}))
    [config] = made.spec["devices"]["config"]
    assert config["requests"] == [made.name]
    parameters = config["opaque"]["parameters"]
    found = parameters["sharing"]["mpsConfig"]
    assert {name: found.get(name) for name in settings} == settings
    configs.decode(parameters, path="test")
    assert config["opaque"]["driver"] == DRIVER


def test_time_slices_of_gpus_become_a_config_and_those_of_partitions_did_nothing():
    sharing = {"strategy": "TimeSlicing", "timeSlicingConfig": {"timeSlice": "Long"}}
    made = of(GPU, {"sharing": sharing})
    assert made.config["sharing"]["timeSlicingConfig"] == {"interval": "Long"}
    made = of(MIG, {"profile": "1g.5gb", "sharing": {"strategy": "TimeSlicing"}})
    assert (made.config, made.problems) == (None, ())


def test_what_is_wrong_with_sharing_is_told_with_its_path():
    spec = {"sharing": {"strategy": "TimeSlicing", "mpsConfig": {"activeThreadPercentage": 0}}}
    first, second = told(GPU, spec)
    assert first.startswith("spec.sharing.mpsConfig.activeThreadPercentage: 0 is not allowed")
    assert second.startswith("spec.sharing.mpsConfig: not allowed with the strategy TimeSlicing")
    both = {"pinnedDeviceMemoryLimit": {"0": "1Gi"}}
    both["defaultPerDevicePinnedMemoryLimit"] = {"0": "2Gi"}
    [text] = told(GPU, {"sharing": {"strategy": "MPS", "mpsConfig": both}})
    assert "not allowed together with defaultPerDevicePinnedMemoryLimit" in text
    [text] = told(MIG, {"profile": "1g.5gb", "sharing": {"timeSlicingConfig": {"timeSlice": "X"}}})
    assert 'unknown field "spec.sharing.timeSlicingConfig"' in text


def test_a_partition_of_the_gpu_of_another_claim_has_no_claim_of_its_own():
    made = of(MIG_DEVICE, {"profile": "1g.5gb", "gpuClaimName": "mig-enabled-gpu"})
    assert (made.spec, made.gpu_claim_name, made.problems) == (None, "mig-enabled-gpu", ())
    assert made.spec_without_gpu_claim["devices"]["requests"][0]["name"] == "mig"


def test_what_was_asked_of_that_gpu_is_asked_of_the_gpu_of_the_partition():
    gpu = {"selector": {"andExpression": [{"migEnabled": True}, {"productName": "*a100*"}]}}
    made = of(MIG, {"profile": "1g.5gb", "gpuClaimName": "g"}, gpu_spec=gpu)
    assert any(".productName.lowerAscii().contains('a100')" in each for each in made.expressions)
    [problem] = of(MIG, {"profile": "1g.5gb"}, gpu_spec={"selector": {"index": 1}}).problems
    assert problem.field == "spec.selector.index"


def test_a_kind_that_is_none_is_refused():
    with pytest.raises(errors.Rejected, match="allowed are GpuClaimParameters, MigClaim"):
        of("ComputeInstanceParameters", {})


def test_cel_that_is_too_long_is_a_problem_and_all_that_is_given_out_compiles():
    wide = {"orExpression": [{"productName": f"*{'x' * 100}?{number}*"} for number in range(30)]}
    [text] = told(GPU, {"selector": {"orExpression": [wide, wide]}})
    assert text.startswith("spec.selector: longer than the 10240 bytes that are allowed")
    made = of(GPU, {"selector": {"andExpression": wide["orExpression"][:14]}})
    assert len(made.expressions) == 15
    assert all(selection.check(each, lists=False) is None for each in made.expressions)


def test_more_parts_than_a_request_may_have_selectors_are_one_selector():
    parts = [{"index": number} for number in range(30)]
    assert len(of(GPU, {"selector": {"andExpression": parts}}).expressions) == 2


@pytest.mark.parametrize("case", parameter_cases.SHARING)
def test_what_is_wrong_with_sharing_is_a_problem(case):
    illegal = parameter_cases.SHARING[case]
    assert told(illegal.kind, illegal.spec)[0].startswith(illegal.told)


@pytest.mark.parametrize("case", parameter_cases.LEGAL)
def test_what_is_legal_becomes_a_claim(case):
    kind, spec = parameter_cases.LEGAL[case]
    made = of(kind, spec)
    assert made.problems == ()
    assert made.request is not None


@hypothesis.settings(max_examples=effort.examples(300))
@hypothesis.given(
    st.sampled_from(parameters.Kind),
    st.fixed_dictionaries({}, optional={
        "profile": st.just("1g.5gb"), "count": st.integers(0, 3),
        "selector": parameter_cases.anything, "sharing": parameter_cases.anything,
    }),
)  # fmt: skip
def test_whatever_is_written_becomes_a_claim_or_problems(kind, spec):
    made = of(kind, spec)
    assert (made.request is None) is bool(made.problems)
