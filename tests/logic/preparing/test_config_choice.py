import config_cases
import pytest

from dra_driver import errors
from dra_driver.logic.preparing import config_choice, configs
from dra_driver.model import claims, sharing, slices

DRIVER = "gpu.nvidia.com"
GPU, MIG, VFIO = sharing.DeviceType
SHORT, LONG = config_cases.slices(interval="Short"), config_cases.slices(interval="Long")
MPS, MIG_MPS = config_cases.mps(), config_cases.mig({"strategy": "MPS"})


def entry(parameters, *requests, source="FromClaim", driver=DRIVER):
    return claims.OpaqueConfig(driver, parameters, requests, source)


def from_class(parameters, *requests):
    return entry(parameters, *requests, source="FromClass")


def result(request="gpu", device="gpu-0"):
    return claims.Result(request, slices.DeviceId(DRIVER, "node-1", device))


def choose(found, request="gpu", device_type=GPU, device="gpu-0"):
    own = config_choice.entries(found, DRIVER)
    return config_choice.for_result(own, result(request, device), device_type)


def chosen(*found, **facts):
    """The position of the entry that is in force."""
    return choose(found, **facts).position


@pytest.mark.parametrize(
    ("device_type", "config"),
    [
        (GPU, sharing.Config(sharing.Kind.GPU)),
        (MIG, sharing.Config(sharing.Kind.MIG)),
        (VFIO, sharing.Config(sharing.Kind.VFIO, sharing.Vfio())),
    ],
)
def test_without_any_config_the_defaults_of_the_type_are_in_force(device_type, config):
    choice = choose([], device_type=device_type)
    assert choice == config_choice.Choice(config)
    assert str(choice) == f"{config.kind}, defaults"


def test_a_config_is_told_with_its_source_and_position():
    choice = choose([entry({}, driver="other"), from_class(SHORT, "gpu")])
    assert choice == config_choice.Choice(
        sharing.Config(sharing.Kind.GPU, sharing.TimeSlicing(sharing.Interval.SHORT)),
        source="FromClass",
        position=1,
    )
    assert str(choice) == "GpuConfig, FromClass, config[1]"


def test_a_claim_wins_over_its_class_in_whatever_order_they_come():
    assert chosen(from_class(SHORT, "gpu"), entry(LONG)) == 1
    assert chosen(entry(LONG), from_class(SHORT, "gpu")) == 0


def test_later_entries_win_over_earlier_ones_of_the_same_source():
    assert chosen(entry(SHORT), entry(LONG)) == 1
    assert chosen(from_class(SHORT, "gpu"), from_class(LONG, "gpu")) == 1


def test_a_later_entry_for_all_wins_over_an_earlier_one_for_the_request():
    assert chosen(entry(SHORT, "gpu"), entry(LONG)) == 1


def test_nothing_is_merged():
    limited = config_cases.mps(defaultPinnedDeviceMemoryLimit="1Gi")
    choice = choose([from_class(limited, "gpu"), entry(MPS, "gpu")])
    assert choice.config.settings == sharing.Mps()


def test_a_later_config_without_sharing_switches_sharing_off():
    choice = choose([from_class(MPS, "gpu"), entry(config_cases.gpu(), "gpu")])
    assert (choice.config.settings, choice.position) == (None, 1)


def test_an_entry_for_another_request_is_passed_over_whatever_its_kind():
    assert chosen(entry(SHORT, "gpu"), entry(LONG, "other"), entry(MIG_MPS, "part")) == 0


def test_an_entry_for_a_request_covers_its_alternatives():
    assert chosen(entry(SHORT, "gpu"), request="gpu/big") == 0
    assert chosen(entry(SHORT, "gpu/big"), request="gpu/big") == 0
    assert chosen(entry(SHORT, "gpu/small"), request="gpu/big") is None
    assert chosen(entry(SHORT, "big"), request="gpu/big") is None


def test_an_entry_for_an_alternative_does_not_cover_the_request():
    assert chosen(entry(SHORT, "gpu/big"), request="gpu") is None


def test_an_alternatives_own_entry_and_the_requests_are_taken_in_order():
    assert chosen(entry(SHORT, "gpu/big"), entry(LONG, "gpu"), request="gpu/big") == 1
    assert chosen(entry(LONG, "gpu"), entry(SHORT, "gpu/big"), request="gpu/big") == 1


def test_an_entry_for_all_is_passed_over_where_its_kind_does_not_fit():
    found = [entry(SHORT), entry(MIG_MPS), entry(config_cases.vfio())]
    assert chosen(*found, device_type=GPU) == 0
    assert chosen(*found, device_type=MIG) == 1
    assert chosen(*found, device_type=VFIO) == 2


def test_a_kind_that_does_not_fit_the_device_it_names_is_refused():
    found = [entry(MIG_MPS), entry(SHORT, "part")]
    with pytest.raises(errors.Rejected) as caught:
        choose(found, request="part", device_type=MIG, device="gpu-0-mig-1g10gb-19-0")
    assert str(caught.value) == (
        "request 'part', config[1] (FromClaim): GpuConfig cannot be applied to device "
        "gpu-0-mig-1g10gb-19-0 of type mig: write a MigDeviceConfig, or take the request out of "
        "the config's `requests`"
    )


def test_a_kind_that_does_not_fit_is_no_matter_where_a_stronger_entry_does():
    assert chosen(from_class(MIG_MPS, "gpu"), entry(SHORT)) == 1


def test_devices_under_one_entry_have_one_position():
    found = config_choice.entries([entry(MPS, "a", "b")], DRIVER)
    positions = {config_choice.for_result(found, result(one), GPU).position for one in "ab"}
    assert positions == {0}


def test_an_entry_that_kubernetes_repeats_for_each_request_counts_once():
    """The scheduler lists a claim's entry once for each request that matches it."""
    found = config_choice.entries([entry(MPS, "a", "b"), entry(MPS, "a", "b")], DRIVER)
    positions = {config_choice.for_result(found, result(one), GPU).position for one in "ab"}
    assert positions == {1}


def test_configs_of_other_drivers_are_theirs():
    assert config_choice.entries([entry({"kind": "Nic"}, driver="nic.example.com")], DRIVER) == ()


def test_an_invalid_entry_is_told_with_its_place_even_where_it_is_not_in_force():
    with pytest.raises(configs.InvalidConfig) as caught:
        choose([entry(config_cases.mps(maxClients=0), "other"), entry(SHORT)])
    assert caught.value.subject == (
        "GpuConfig at status.allocation.devices.config[0].opaque.parameters is invalid"
    )
    assert [problem.field for problem in caught.value.problems] == ["sharing.mpsConfig.maxClients"]


def test_all_invalid_entries_are_told_at_once():
    with pytest.raises(configs.InvalidConfig) as caught:
        choose(
            [
                entry(config_cases.mps(maxClients=0)),
                entry(SHORT),
                entry(config_cases.slices(interval="x")),
            ]
        )
    assert caught.value.subject == "2 configs are invalid"
    first, second = map(str, caught.value.problems)
    assert first.startswith("GpuConfig at status.allocation.devices.config[0].opaque.parameters is")
    assert second.startswith(
        "GpuConfig at status.allocation.devices.config[2].opaque.parameters is"
    )


def test_a_source_that_is_not_known_is_refused():
    with pytest.raises(configs.InvalidConfig) as caught:
        choose([entry(SHORT, source="FromPod")])
    assert str(caught.value) == (
        'config at status.allocation.devices.config[0] is invalid: source: "FromPod" is not '
        "allowed: Kubernetes writes FromClass or FromClaim; a newer kind of source needs a newer "
        "driver"
    )
