import config_cases
import pytest

from dra_driver import errors
from dra_driver.logic.preparing import configs
from dra_driver.model import sharing

PATH = "spec.devices.config[0].opaque.parameters"
KINDS = "write GpuConfig, MigDeviceConfig or VfioDeviceConfig"
NO_CONFIGS = {
    "nothing": config_cases.illegal(
        {}, "apiVersion: missing: write resource.nvidia.com/v1beta1", f"kind: missing: {KINDS}"
    ),
    "an unknown kind": config_cases.illegal(
        config_cases.made("ComputeDomainChannelConfig", {}),
        f'kind: "ComputeDomainChannelConfig" is not allowed: {KINDS}',
    ),
    "a kind in lower case": config_cases.illegal(
        config_cases.made("gpuconfig", {}), f'kind: "gpuconfig" is not allowed: {KINDS}'
    ),
    "a kind that is no text": config_cases.illegal(
        config_cases.made(7, {}), f"kind: 7 is not allowed: {KINDS}"
    ),
    "a kind that is a list": config_cases.illegal(
        config_cases.made([], {}), f"kind: a list is not allowed: {KINDS}"
    ),
    "a list": config_cases.illegal([], "a list is not allowed: write an object"),
    "a text": config_cases.illegal("GpuConfig", '"GpuConfig" is not allowed: write an object'),
    "null": config_cases.illegal(None, "null is not allowed: write an object"),
}
REFUSED = config_cases.ILLEGAL | NO_CONFIGS


def refusal(parameters):
    with pytest.raises(configs.InvalidConfig) as caught:
        configs.decode(parameters, path=PATH)
    return caught.value


@pytest.mark.parametrize("case", config_cases.LEGAL)
def test_a_legal_config_comes_to_what_it_asks_for(case):
    parameters, expected = config_cases.LEGAL[case]
    assert configs.decode(parameters, path=PATH) == expected


@pytest.mark.parametrize("case", config_cases.LEGAL)
def test_a_config_with_its_defaults_written_out_says_the_same(case):
    _, config = config_cases.LEGAL[case]
    parameters = configs.encode(config)
    again = configs.decode(parameters, path=PATH)
    assert again == config
    assert configs.encode(again) == parameters


@pytest.mark.parametrize("case", REFUSED)
def test_an_illegal_config_is_refused_with_all_that_is_wrong(case):
    error = refusal(REFUSED[case].parameters)
    assert tuple(map(str, error.problems)) == REFUSED[case].messages
    assert str(error) == f"{error.subject}: {'; '.join(REFUSED[case].messages)}"


def test_a_refusal_says_where_the_config_is_and_what_fields_are_wrong():
    error = refusal(config_cases.ILLEGAL["all at once"].parameters)
    assert isinstance(error, errors.Rejected)
    assert error.subject == f"GpuConfig at {PATH} is invalid"
    assert [problem.field for problem in error.problems] == [
        "apiVersion",
        "sharing.timeSlicingConfig.interval",
        "sharing.mpsConfig.defaultActiveThreadPercentage",
        "sharing.mpsConfig.maxClients",
        "sharing.timeSlicingConfig",
        "sharing.mpsConfig.activeThreadPercentage",
    ]
    assert refusal({}).subject == f"config at {PATH} is invalid"


def test_what_is_written_out_is_the_current_name_in_whole_mebibytes():
    older = config_cases.mps(
        activeThreadPercentage=30,
        pinnedDeviceMemoryLimit="1G",
        defaultPerDevicePinnedMemoryLimit={"1": "2Gi", "0": "1Gi"},
        maxConnections=4,
    )
    assert configs.encode(configs.decode(older, path=PATH)) == config_cases.mps(
        defaultActiveThreadPercentage=30,
        defaultPinnedDeviceMemoryLimit="953Mi",
        defaultPerDevicePinnedMemoryLimit={"0": "1024Mi", "1": "2048Mi"},
        maxClients=4,
        multiUser=False,
        domain="Claim",
    )
    assert configs.encode(sharing.Config(sharing.Kind.VFIO, sharing.Vfio())) == config_cases.vfio(
        {
            "backendPolicy": "LegacyOnly",
            "enableAPIDevice": False,
        }
    )


def test_an_index_that_yaml_took_for_a_number_is_an_index():
    parameters = config_cases.mps(defaultPerDevicePinnedMemoryLimit={0: "1Gi"})
    settings = configs.decode(parameters, path=PATH).settings
    assert settings == sharing.Mps(per_device={"0": 2**30})


def test_keys_that_are_no_text_are_unknown_fields():
    assert [problem.field for problem in refusal(config_cases.gpu({3: 4})).problems] == [
        "sharing.3"
    ]


def test_a_message_does_not_repeat_a_long_value_or_name():
    long = "x" * 5000
    value = refusal(config_cases.slices(interval=long))
    assert f'interval: "{"x" * 59}… is not allowed' in str(value)
    name = refusal(config_cases.gpu(**{long: 1}))
    assert f'unknown field "{"x" * 60}…"' in str(name)


def test_a_message_can_be_sent_whatever_a_key_holds():
    half = "\ud800"
    per_device = {half: "1Mi", "0": half}
    error = refusal(
        config_cases.mps(defaultPerDevicePinnedMemoryLimit=per_device, domain=half, maxClients=2)
    )
    assert len(error.problems) == 4
    assert "MemoryLimit[\\ud800]" in error.problems[-1].message
    assert str(error).encode()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1Gi", 1024), ("1G", 953), ("10M", 9), ("10Gi", 10240), ("80Gi", 81920)],
)
def test_limits_are_counted_in_mebibytes_as_by_the_peer(limit, expected):
    parameters = config_cases.mps(defaultPinnedDeviceMemoryLimit=limit)
    settings = configs.decode(parameters, path=PATH).settings
    assert settings.memory_limit == expected * 2**20
    assert configs.quantity(settings.memory_limit) == f"{expected}Mi"
