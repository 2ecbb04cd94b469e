"""Objects of DRA's first API, as people wrote them."""

GROUP = "gpu.resource.nvidia.com"


def parameters(name, kind="GpuClaimParameters", **spec):
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def claim_spec(ref=None, kind="GpuClaimParameters", **more):
    spec = {"resourceClassName": "gpu.nvidia.com", **more}
    if ref is not None:
        spec["parametersRef"] = {"apiGroup": GROUP, "kind": kind, "name": ref}
    return spec


def template(name, spec, version="v1alpha2"):
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }


def claim(name, spec, version="v1alpha2"):
    body = template(name, spec, version)
    return {**body, "kind": "ResourceClaim", "spec": spec}


def pod(templates, *, used=None, name="train"):
    """`templates`: templates by the names of claims; `used`: claims by container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": [
                {"name": each, "source": {"resourceClaimTemplateName": of}}
                for each, of in templates.items()
            ],
            "containers": [
                {"name": each, "resources": {"claims": [{"name": one} for one in claims_of]}}
                for each, claims_of in (used or {"main": list(templates)}).items()
            ],
        },
    }
