import pytest
import webhook_reviews as reviews

from dra_driver.logic.admission import admitted

TOLERATION = {"operator": "Exists", "effect": "NoExecute"}
REQUESTS = [
    reviews.request(
        "plain",
        selectors=reviews.selector("true"),
        tolerations=[TOLERATION],
        capacity={"requests": {"memory": "1Gi"}},
    ),
    reviews.request(
        "choice",
        firstAvailable=[
            {"name": "a", "deviceClassName": "mig.nvidia.com", "selectors": reviews.selector("a")},
            {"name": "b", "deviceClassName": "team-b"},
        ],
    ),
]


def read(resource, version="v1", **fields):
    return admitted.read(resource, reviews.made(resource, version, **fields), reviews.DRIVER)


@pytest.mark.parametrize("resource", ["resourceclaims", "resourceclaimtemplates"])
@pytest.mark.parametrize("version", admitted.VERSIONS)
def test_requests_and_their_alternatives_are_read_with_their_places(resource, version):
    plain, first, second = read(resource, version, requests=REQUESTS).asked

    root = f"{reviews.root(resource)}.requests"
    inner = "" if version == "v1beta1" else ".exactly"
    assert plain == admitted.Asked(
        path=f"{root}[0]{inner}",
        name="plain",
        device_class="gpu.nvidia.com",
        selectors=(admitted.Selector(f"{root}[0]{inner}.selectors[0].cel.expression", "true"),),
        tolerations=(admitted.Toleration(f"{root}[0]{inner}.tolerations[0]", TOLERATION),),
        capacity={"memory": "1Gi"},
    )
    path = f"{root}[1].firstAvailable"
    assert (first.name, first.path, first.device_class) == (
        "choice/a",
        f"{path}[0]",
        "mig.nvidia.com",
    )
    assert [one.path for one in first.selectors] == [f"{path}[0].selectors[0].cel.expression"]
    assert (second.name, second.path, second.device_class) == ("choice/b", f"{path}[1]", "team-b")


@pytest.mark.parametrize(("resource", "version"), reviews.EVERYWHERE)
def test_the_drivers_configs_are_read_with_their_places(resource, version):
    entries = [
        reviews.config({}, driver="dra.example"),
        {},
        reviews.config({"kind": "x"}, "plain"),
    ]
    (config,) = read(resource, version, configs=entries).configs
    assert config == admitted.Config(
        f"{reviews.root(resource)}.config[2]", 2, ("plain",), {"kind": "x"}
    )


def test_a_class_has_selectors_and_a_name():
    found = read("deviceclasses", selectors=reviews.selector("true"), name="gpus")
    assert (found.name, found.asked) == ("gpus", ())
    assert found.selectors == (admitted.Selector("spec.selectors[0].cel.expression", "true"),)


@pytest.mark.parametrize("resource", reviews.KINDS)
@pytest.mark.parametrize("spec", [None, 7, [], {}, {"devices": None}, {"config": {}}])
def test_what_is_of_another_shape_is_passed_over(resource, spec):
    found = admitted.read(resource, {"metadata": None, "spec": spec}, reviews.DRIVER)
    assert found == admitted.Admitted(resource, "")


# More than Kubernetes allows


def many(count, **fields):
    return [fields | {"name": f"n{number}"} for number in range(count)]


def test_of_each_list_as_many_are_read_as_kubernetes_allows_and_the_rest_is_told():
    tolerations, selectors = [TOLERATION] * 17, reviews.selector("true") * 33
    choice = many(9, deviceClassName="gpu.nvidia.com", tolerations=tolerations, selectors=selectors)
    found = read(
        "resourceclaims",
        requests=[reviews.request("r", firstAvailable=choice), *many(32)],
        configs=[reviews.config({}, *map(str, range(33))), *[reviews.config({})] * 32],
        constraints=[{"matchAttribute": "gpu.nvidia.com/uuid"}] * 33,
    )
    assert [len(found.asked), len(found.configs), len(found.constraints)] == [8 + 31, 32, 32]
    assert {len(one.tolerations) for one in found.asked[:8]} == {16}
    assert {len(one.selectors) for one in found.asked[:8]} == {32}
    assert len(found.configs[0].requests) == 32
    root = "spec.devices"
    assert found.beyond[:3] == tuple(
        f"{root}.{place}: only the first {most} of {most + 1} are checked: Kubernetes allows no "
        "more"
        for place, most in (("config", 32), ("config[0].requests", 32), ("requests", 32))
    )
    assert [text.partition(":")[0].removeprefix(root) for text in found.beyond[3:6]] == [
        ".requests[0].firstAvailable",
        ".requests[0].firstAvailable[0].selectors",
        ".requests[0].firstAvailable[0].tolerations",
    ]


def test_what_kubernetes_allows_is_read_whole():
    choice = many(8, deviceClassName="gpu.nvidia.com", tolerations=[TOLERATION] * 16)
    found = read(
        "resourceclaims",
        requests=[reviews.request(f"r{number}", firstAvailable=choice) for number in range(32)],
        configs=[reviews.config({"text": "x" * 10_000}, *map(str, range(32)))] * 32,
    )
    assert (len(found.asked), len(found.configs), found.beyond) == (256, 32, ())


TOO_LONG = {
    "text": "x" * 10_241,
    "key": {"x" * 10_241: 1},
    "list": [0] * 10_241,
    "keys": {f"{number:04}": 1 for number in range(2_100)},
    "inner lists": [[[]] * 10_241],
}


@pytest.mark.parametrize("parameters", TOO_LONG.values(), ids=TOO_LONG)
@pytest.mark.parametrize("resource", reviews.KINDS)
def test_parameters_that_are_longer_than_kubernetes_allows_are_not_read(resource, parameters):
    found = read(resource, configs=[reviews.config(parameters), reviews.config({})])
    assert [one.position for one in found.configs] == [1]
    assert found.beyond == (
        (
            f"{reviews.root(resource)}.config[0].opaque.parameters: not checked: longer than the "
            "10240 bytes that Kubernetes allows"
        ),
    )
