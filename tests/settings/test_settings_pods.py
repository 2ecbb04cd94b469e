"""Settings of what runs MPS daemons."""

import pytest

from dra_driver import errors, settings

NODE = {"NODE_NAME": "node-1"}


def resolve(environment=NODE, **flags):
    return settings.resolve(settings.KubeletPlugin, environment=environment, flags=flags)


def test_daemons_are_processes_unless_pods_are_asked_for():
    assert resolve().mps_launcher == "process"
    assert resolve(mps_launcher="pod").mps_launcher == "pod"
    with pytest.raises(errors.Fatal, match=r"'container'.*'process' or 'pod'"):
        resolve(mps_launcher="container")


def test_the_namespace_is_that_which_the_downward_api_gives():
    assert resolve(NODE | {"POD_NAMESPACE": "gpu"}).pod_namespace == "gpu"
    ours = {"POD_NAMESPACE": "gpu", "DRA_DRIVER_POD_NAMESPACE": "ours"}
    assert resolve(NODE | ours).pod_namespace == "ours"
    assert resolve().pod_namespace == ""


@pytest.mark.parametrize("namespace", ["A", "a/b", "-a", "a" * 64])
def test_what_is_no_namespace_is_refused(namespace):
    with pytest.raises(errors.Fatal, match="--pod-namespace"):
        resolve(pod_namespace=namespace)


def test_an_image_is_pulled_always_never_or_if_it_is_not_there():
    assert resolve(mps_image_pull_policy="Never").mps_image_pull_policy == "Never"
    with pytest.raises(errors.Fatal, match="--mps-image-pull-policy"):
        resolve(mps_image_pull_policy="Sometimes")


def test_pull_secrets_are_named_with_commas_between_them():
    secrets = resolve(mps_image_pull_secrets="registry,mirror.example.com").mps_image_pull_secrets
    assert secrets == ("registry", "mirror.example.com")
    with pytest.raises(errors.Fatal, match=r"--mps-image-pull-secrets, at \[1\]: 'Registry'"):
        resolve(mps_image_pull_secrets="registry,Registry")


def test_what_is_no_service_account_is_refused():
    with pytest.raises(errors.Fatal, match="--mps-service-account: 'gpu:mps'"):
        resolve(mps_service_account="gpu:mps")


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("mps_cpu", "0", "more than 0 is needed"),
        ("mps_cpu", "-1", "more than 0 is needed"),
        ("mps_cpu", "much", "not a number with an optional suffix"),
        ("mps_memory", "64Ki", "at least 1Mi is needed"),
        ("mps_memory", "-1", "more than 0 is needed"),
        ("mps_shm_size", "1000", "at least 1Mi is needed"),
    ],
)
def test_amounts_have_to_be_such(flag, value, problem):
    with pytest.raises(errors.Fatal, match=problem):
        resolve(**{flag: value})


def test_amounts_are_kept_as_they_are_written():
    config = resolve(mps_cpu="0.05", mps_memory="1e9")
    assert (config.mps_cpu, config.mps_memory) == ("0.05", "1e9")
