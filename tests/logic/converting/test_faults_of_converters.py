"""Faults of another converter of HAMi's asks, each with what is done here instead.

What they are was read in HAMi-DRA 0213e665; its later versions have mended most.
"""

import copy
import re

import converting_scene as scene
from converting_scene import (
    APART,
    MIG,
    UNDIVIDED,
    WHOLE,
    A,
    container,
    devices,
    has_just,
    one,
    share,
)

from dra_driver.logic.converting import conversion, converting

GPU, MEMORY, PERCENT, CORES = (
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
)
HAMI = {GPU: 1, MEMORY: 10240, CORES: 30}
WEBHOOK = scene.policy(scene.card(80), command=False)


def test_a_claim_made_during_a_review_is_left_over_when_the_pod_is_not_made():
    """The claim was made while the pod was reviewed, also in dry runs; here nothing is made.

    The translation only says which templates have to be there, and a template is no claim: claims
    are made of it for a pod, and go with it.
    """
    body = scene.pod(container(limits=HAMI))
    before = copy.deepcopy(body)
    first, second = converting.convert(body, WEBHOOK), converting.convert(body, WEBHOOK)
    assert (body, first) == (before, second)
    [template] = first.templates
    assert isinstance(template, conversion.Template)
    [claim] = first.pod["spec"]["resourceClaims"]
    assert claim == {"name": "gpu-main", "resourceClaimTemplateName": template.name}


def test_names_of_claims_were_those_of_pods_which_may_have_none_and_may_be_long():
    """`<namespace>-<pod>-<container>` is wrong for `generateName`, and can have 300 characters."""
    for metadata in ({"generateName": "web-"}, {"name": "p" * 253, "namespace": "n" * 63}, {}):
        body = {"metadata": metadata, "spec": {"containers": [container("c" * 63, HAMI)]}}
        made = scene.converted(body, WEBHOOK)
        [template] = made.templates
        assert re.fullmatch(r"converted-[0-9a-f]{12}", template.name)
        [claim] = made.pod["spec"]["resourceClaims"]
        assert len(claim["name"]) <= 63
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", claim["name"])


def test_claims_that_a_container_had_were_lost():
    """`resources.claims` was set anew; here the others stay, with the pod's claims they are of."""
    there = [
        {"name": "net", "resourceClaimTemplateName": "nics"},
        {"name": "gpu-main", "resourceClaimName": "mine"},
    ]
    resources = {"limits": HAMI, "claims": [{"name": "net"}, {"name": "gpu-main", "request": "a"}]}
    body = scene.pod(container(resources=resources), resourceClaims=there)
    spec = scene.converted(body, WEBHOOK).pod["spec"]
    *old, new = spec["resourceClaims"]
    assert old == there
    assert new["name"] not in {"net", "gpu-main"}
    assert spec["containers"][0]["resources"]["claims"] == [
        {"name": "net"},
        {"name": "gpu-main", "request": "a"},
        {"name": new["name"]},
    ]


def test_much_of_what_was_asked_for_was_left_untranslated():
    """Init containers, percentages, priorities, `nouse-…`, NUMA, modes, and lists were passed over.

    Their containers got other devices than they asked for, or none, without a word.
    """
    half = {GPU: 1, PERCENT: 50, "nvidia.com/priority": 0}
    annotations = {
        "nvidia.com/use-gpuuuid": "GPU-a,GPU-b",
        "nvidia.com/nouse-gpuuuid": "GPU-c",
        "nvidia.com/use-gputype": "A100,H100",
        "nvidia.com/nouse-gputype": "PCIe",
        "nvidia.com/numa-bind": "true",
        "hami.io/gpu-scheduler-policy": "spread",
    }
    body = scene.pod(
        container(limits=HAMI | {GPU: 2}),
        initContainers=[container("before", half)],
        metadata={"annotations": annotations},
    )
    made = scene.converted(body, WEBHOOK)
    name = f"{A}.productName.lowerAscii().contains"
    lists = (
        f"'uuid' in {A} && {A}.uuid in ['GPU-a', 'GPU-b']",
        f"'uuid' in {A} && !({A}.uuid in ['GPU-c'])",
        f"'productName' in {A} && ({name}('a100') || {name}('h100'))",
        f"'productName' in {A} && !({name}('pcie'))",
    )
    main = one(share("10Gi", "30", *lists, count=2))
    main["devices"]["constraints"].append(
        {"requests": ["gpu"], "matchAttribute": "gpu.nvidia.com/numaNode"}
    )
    assert scene.specs(made) == {
        "gpu-before": one(share("40Gi", "50", *lists, has_just("80Gi"))),
        "gpu-main": main,
    }
    [before] = made.pod["spec"]["initContainers"]
    assert before["env"] == [{"name": "CUDA_MPS_CLIENT_PRIORITY", "value": "0"}]
    assert "annotations" not in made.pod["metadata"]
    told = " ".join(line.asked for line in made.lines)
    assert all(annotation in told for annotation in annotations)


def test_the_mode_of_partitions_was_left_untranslated():
    metadata = {"annotations": {"nvidia.com/vgpu-mode": "mig"}}
    body = scene.pod(container(limits={GPU: 1, MEMORY: 8000}), metadata=metadata)
    [claim] = scene.specs(scene.converted(body, WEBHOOK)).values()
    assert claim == one(devices(MIG, scene.at_least("8000Mi")))


def test_several_shares_could_be_of_one_card():
    """Without a constraint a shared card serves a count of two; HAMi promises two cards."""
    claims = [
        scene.specs(scene.converted(scene.pod(container(limits=limits)), WEBHOOK))["gpu-main"]
        for limits in ({GPU: 2, MEMORY: 1024, CORES: 5}, {GPU: 2, PERCENT: 10}, {GPU: 2, CORES: 0})
    ]
    assert [claim["devices"]["constraints"] for claim in claims] == [[APART]] * 3
    assert claims[2] == one(devices(WHOLE, UNDIVIDED, count=2))
