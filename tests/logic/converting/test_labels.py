"""Labels in manifests, one by one: what they become, what stays, what is refused."""

import pytest

from dra_driver.logic.cel import selection
from dra_driver.logic.converting import labels

DRIVER = "gpu.nvidia.com"
A, C = "device.attributes['gpu.nvidia.com']", "device.capacity['gpu.nvidia.com']"
LABEL = f"{A}.productName.replace(' ', '-')"
MEMORY = f"{C}.memory.compareTo(quantity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
PRODUCT, ZONE = "nvidia.com/gpu.product", "topology.kubernetes.io/zone"


def terms(*each):
    """A spec with terms, each with its requirements as `(key, operator, value, …)`."""
    made = [
        {"matchExpressions": [{"key": k, "operator": o, "values": list(v)} for k, o, *v in one]}
        for one in each
    ]
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": made}}}}


def known(name):
    return f"'{name}' in {A} && {A}.{name}"


ENTRIES = {
    ("gpu.product", "NVIDIA-H100-80GB-HBM3"): f"{known('productName')}.replace(' ', '-') == "
    "'NVIDIA-H100-80GB-HBM3'",
    ("gpu.product", "Tesla-T4-SHARED"): f"{known('productName')}.replace(' ', '-') == 'Tesla-T4'",
    ("gpu.memory", "15360"): f"'memory' in {C} && {MEMORY}('15360Mi')) >= 0 && "
    f"{MEMORY}('15361Mi')) < 0",
    ("gpu.family", "ada-lovelace"): f"{known('architecture')} == 'Ada Lovelace'",
    ("gpu.compute.major", "8"): f"{known('cudaComputeCapability')}.major() == 8",
    ("gpu.compute.minor", "9"): f"{known('cudaComputeCapability')}.minor() == 9",
    ("cuda.driver.major", "580"): f"{known('driverVersion')}.major() == 580",
    ("cuda.driver.minor", "65"): f"{known('driverVersion')}.minor() == 65",
    ("cuda.driver.rev", "06"): f"{known('driverVersion')}.patch() == 6",
    ("cuda.driver.rev", ""): f"{known('driverVersion')}.patch() == 0",
    ("cuda.driver-version.revision", "06"): f"{known('driverVersion')}.patch() == 6",
    ("cuda.driver-version.full", "580.65.06"): f"{known('driverVersion')} == semver('580.65.6')",
    ("cuda.driver-version.full", "535.104"): f"{known('driverVersion')} == semver('535.104.0')",
    ("cuda.runtime.major", "12"): f"{known('cudaDriverVersion')}.major() == 12",
    ("cuda.runtime-version.minor", "4"): f"{known('cudaDriverVersion')}.minor() == 4",
    ("cuda.runtime-version.full", "12.4"): f"{known('cudaDriverVersion')} == semver('12.4.0')",
    (
        "mig.capable",
        "true",
    ): f"('migCapable' in {A} ? {A}.migCapable : {A}.type == 'mig')",
}


@pytest.mark.parametrize("entry", ENTRIES, ids="=".join)
def test_an_entry_becomes_a_selector(entry):
    name, value = entry
    read = labels.read({"nodeSelector": {f"nvidia.com/{name}": value, "disk": "ssd"}}, DRIVER)
    assert read.selectors == (ENTRIES[entry],)
    assert selection.check(ENTRIES[entry], lists=False) is None
    assert read.spec == {"nodeSelector": {"disk": "ssd"}}
    (line,) = read.lines
    assert line.asked == f"nodeSelector nvidia.com/{name}={value}"
    assert (read.warnings, read.problems, read.partition) == ((), (), False)


NUMBERS = {
    ("gpu.memory", "Gt", "40000"): f"'memory' in {C} && {MEMORY}('40001Mi')) >= 0",
    ("gpu.memory", "Lt", "40000"): f"'memory' in {C} && {MEMORY}('40000Mi')) < 0",
    ("gpu.compute.major", "Gt", "7"): f"{known('cudaComputeCapability')}.major() > 7",
    ("cuda.driver.major", "Lt", "580"): f"{known('driverVersion')}.major() < 580",
    ("gpu.product", "NotIn", "Tesla-T4", "NVIDIA-L4"): f"!({known('productName')}"
    ".replace(' ', '-') in ['Tesla-T4', 'NVIDIA-L4'])",
    ("gpu.family", "In", "ampere", "hopper"): f"{known('architecture')} in ['Ampere', 'Hopper']",
    ("gpu.product", "Exists"): f"'productName' in {A}",
    ("gpu.product", "DoesNotExist"): f"!('productName' in {A})",
}


@pytest.mark.parametrize("entry", NUMBERS, ids=" ".join)
def test_a_required_term_becomes_a_selector_and_goes(entry):
    name, *rest = entry
    read = labels.read(terms([(f"nvidia.com/{name}", *rest)]), DRIVER)
    assert read.selectors == (NUMBERS[entry],)
    assert selection.check(NUMBERS[entry], lists=False) is None
    assert read.spec == {}


IMPLIED = {"gpu.present": "true", "mig.strategy": "mixed"}


@pytest.mark.parametrize("name", IMPLIED)
def test_what_every_claim_meets_goes_without_a_selector(name):
    read = labels.read({"nodeSelector": {f"nvidia.com/{name}": IMPLIED[name]}}, DRIVER)
    assert (read.selectors, read.spec) == ((), {})
    assert read.lines[0].becomes.startswith("nothing: ")


STAYS = {
    ("gpu.count", "8"): "tells of a node",
    ("gpu.machine", "DGX-H100"): "tells of a node",
    ("gpu.replicas", "4"): "tells of a node",
    ("gpu.sharing-strategy", "mps"): "tells of a node",
    ("gpu.present", "false"): "nodes without GPUs",
    ("mig.strategy", "single"): "ask for nvidia.com/mig-",
    ("gpu.family", "voodoo"): "'voodoo' is no family",
    ("gpu.memory", "much"): "'much' is no whole number",
    ("gpu.memory", "99999999999"): "no whole number from 0 to 2147483647",
    ("cuda.driver-version.full", "latest"): "no version",
    ("mig-1g.10gb.count", "7"): "does not ask for",
    ("gpu.product", "NVIDIA-H100-80GB-HBM3-MIG-INVALID"): "in no order",
}


@pytest.mark.parametrize("entry", STAYS, ids="=".join)
def test_what_cannot_be_said_stays_with_a_warning(entry):
    name, value = entry
    spec = {"nodeSelector": {f"nvidia.com/{name}": value}}
    read = labels.read(spec, DRIVER)
    assert (read.selectors, read.spec, read.lines) == ((), spec, ())
    (warning,) = read.warnings
    assert warning.asked == f"nodeSelector nvidia.com/{name}={value}"
    assert STAYS[entry] in warning.becomes


def test_other_labels_are_nobody_elses_business():
    spec = {"nodeSelector": {"disk": "ssd"}, **terms([(ZONE, "In", "a")])}
    assert labels.read(spec, DRIVER) == labels.Labels((), spec)


def test_a_partition_by_the_name_of_its_card_has_its_profile():
    spec = {"nodeSelector": {PRODUCT: "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me-SHARED"}}
    read = labels.read(spec, DRIVER)
    assert read.partition
    (selector,) = read.selectors
    assert selector == (
        f"'profile' in {A} && {known('productName')}.replace(' ', '-') == 'NVIDIA-H100-80GB-HBM3'"
        f" && {A}.profile == '1g.10gb+me'"
    )
    assert read.lines[0].becomes.endswith("shared or not is said by the class")


@pytest.mark.parametrize(
    "spec",
    [
        terms([(PRODUCT, "In", "A-MIG-1g.10gb", "B")]),
        terms([(PRODUCT, "In", "A-MIG-1g.10gb")], [(PRODUCT, "In", "B")]),
        {"nodeSelector": {PRODUCT: "B"}, **terms([(PRODUCT, "In", "A-MIG-1g.10gb")])},
    ],
    ids=["in a list", "in terms", "in both places"],
)
def test_cards_and_partitions_in_one_pod_are_refused(spec):
    read = labels.read(spec, DRIVER)
    assert (read.spec, read.selectors, read.lines) == (spec, (), ())
    assert "GPUs and partitions" in str(read.problems[0])


def test_facts_of_cards_stay_where_partitions_are_asked_for():
    spec = {
        "nodeSelector": {"nvidia.com/gpu.memory": "81559", PRODUCT: "NVIDIA-H100"},
        "containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}],
    }
    read = labels.read(spec, DRIVER)
    assert read.spec["nodeSelector"] == {"nvidia.com/gpu.memory": "81559"}
    assert "only their own memory" in read.warnings[0].becomes
    asked = labels.read({"nodeSelector": spec["nodeSelector"]}, DRIVER, partitions=True)
    assert asked.spec["nodeSelector"] == {"nvidia.com/gpu.memory": "81559"}


def test_facts_of_partitions_hold_for_those_that_are_asked_for():
    spec = {
        "initContainers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb.shared": 1}}}],
        "nodeSelector": {
            "nvidia.com/mig-1g.10gb.memory": "9984",
            "nvidia.com/mig-1g.10gb.product": "NVIDIA-H100-MIG-1g.10gb",
        },
        **terms([("nvidia.com/mig-1g.10gb.count", "Gt", "0")]),
    }
    other = f"!({A}.?profile.orValue('') == '1g.10gb')"
    read = labels.read(spec, DRIVER)
    assert read.selectors == (
        f"{other} || ('memory' in {C} && {MEMORY}('9984Mi')) >= 0 && {MEMORY}('9985Mi')) < 0)",
        f"{other} || ({known('productName')}.replace(' ', '-') == 'NVIDIA-H100')",
    )
    assert read.spec == {"initContainers": spec["initContainers"]}


def test_terms_with_the_same_conditions_for_nodes_become_one():
    spec = terms(
        [(PRODUCT, "In", "A"), (ZONE, "In", "a")],
        [(ZONE, "In", "a"), ("nvidia.com/gpu.memory", "Gt", "40000")],
    )
    read = labels.read(spec, DRIVER)
    (selector,) = read.selectors
    assert selector == (
        f"({known('productName')}.replace(' ', '-') == 'A') || "
        f"('memory' in {C} && {MEMORY}('40001Mi')) >= 0)"
    )
    assert read.spec == terms([(ZONE, "In", "a")])


def test_terms_that_ask_for_the_same_gpus_keep_their_conditions():
    spec = terms(
        [(PRODUCT, "In", "A"), (ZONE, "In", "a")], [(PRODUCT, "In", "A"), (ZONE, "In", "b")]
    )
    read = labels.read(spec, DRIVER)
    assert read.selectors == (f"{known('productName')}.replace(' ', '-') == 'A'",)
    assert read.spec == terms([(ZONE, "In", "a")], [(ZONE, "In", "b")])


def test_terms_that_cannot_be_taken_apart_stay_with_a_warning():
    spec = terms(
        [(PRODUCT, "In", "A"), (ZONE, "In", "a")], [(PRODUCT, "In", "B"), (ZONE, "In", "b")]
    )
    read = labels.read(spec, DRIVER)
    assert (read.spec, read.selectors, read.lines) == (spec, (), ())
    assert "no selector says that" in read.warnings[0].becomes


def test_a_term_that_asks_for_no_gpu_makes_any_gpu_do():
    read = labels.read(
        terms([(PRODUCT, "In", "A"), (ZONE, "In", "a")], [(ZONE, "In", "a")]), DRIVER
    )
    assert (read.selectors, read.spec) == ((), terms([(ZONE, "In", "a")]))
    assert read.lines[0].becomes == "nothing: a term asks for no GPU"


def test_wishes_stay_with_a_warning():
    wish = {"weight": 1, "preference": terms([(PRODUCT, "In", "A")])["affinity"]["nodeAffinity"]}
    wish["preference"] = wish["preference"][REQUIRED]["nodeSelectorTerms"][0]
    spec = {"affinity": {"nodeAffinity": {PREFERRED: [wish]}}}
    read = labels.read(spec, DRIVER)
    assert (read.spec, read.lines) == (spec, ())
    assert read.warnings[0].becomes == "stays a wish for nodes: claims have none"


def test_many_entries_become_as_many_selectors_as_a_request_may_have():
    each = [("nvidia.com/gpu.memory", "Gt", str(number)) for number in range(40)]
    spec = terms(*[[one] for one in each[:1]])
    spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] = [
        {"matchExpressions": [{"key": k, "operator": o, "values": [v]}]} for k, o, v in each
    ]
    many = {
        "nodeSelector": {
            **{f"nvidia.com/gpu.{n}": "1" for n in ("memory", "compute.major", "compute.minor")},
            **{f"nvidia.com/cuda.driver.{n}": "1" for n in ("major", "minor", "rev")},
            **{f"nvidia.com/cuda.driver-version.{n}": "2" for n in ("major", "minor", "revision")},
            **{f"nvidia.com/cuda.runtime.{n}": "1" for n in ("major", "minor")},
            **{f"nvidia.com/cuda.runtime-version.{n}": "2" for n in ("major", "minor")},
            "nvidia.com/cuda.runtime-version.full": "1.1",
            "nvidia.com/cuda.driver-version.full": "1.1",
            "nvidia.com/gpu.product": "A",
            "nvidia.com/gpu.family": "ampere",
            "nvidia.com/mig.capable": "true",
        }
    }
    read = labels.read({**many, **spec}, DRIVER)
    assert len(read.selectors) == labels.MOST_SELECTORS
    assert not read.problems
    assert read.selectors[-1].count("productName.replace") == 1


def test_an_expression_that_is_too_long_is_refused_and_nothing_else_is_said():
    values = [f"NVIDIA-H100-{number:040d}" for number in range(250)]
    spec = {"nodeSelector": {"disk": "ssd"}, **terms([(PRODUCT, "In", *values)])}
    read = labels.read(spec, DRIVER)
    assert read.spec == spec
    assert "longer than the 10240 bytes" in read.problems[0].rule
    assert len(str(read.problems[0])) < 1000


def test_quotes_in_values_stay_in_them():
    read = labels.read({"nodeSelector": {PRODUCT: 'it\'s \\ "x"'}}, DRIVER)
    assert selection.check(read.selectors[0], lists=False) is None
    assert read.selectors[0].endswith(r'''== "it's \\ \"x\""''')
