import pytest
import webhook_reviews as reviews

from dra_driver.logic import admitted

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
