"""What the API server makes of workloads, and what it refuses, over HTTP."""

import api_objects
import pytest
from api_objects import changed
from workload_scene import job, template, workload

APPS = "/apis/apps/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"
PATHS = {
    "Deployment": f"{APPS}/deployments",
    "ReplicaSet": f"{APPS}/replicasets",
    "StatefulSet": f"{APPS}/statefulsets",
    "DaemonSet": f"{APPS}/daemonsets",
    "Job": f"{BATCH}/jobs",
    "CronJob": f"{BATCH}/cronjobs",
}


def cron_job(**spec):
    body = {"schedule": "@daily", "jobTemplate": {"spec": job()["spec"]}} | spec
    return {
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "web"}, "spec": body,
    }  # fmt: skip


def causes(api, body, path=None):
    answer = api.send("POST", path or PATHS[body["kind"]], body, dryRun="All")
    assert answer.status == 422, answer
    return answer.causes


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        (workload("Deployment"), "replicas", 1),
        (workload("Deployment"), "revisionHistoryLimit", 10),
        (workload("Deployment"), "strategy", {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        }),
        (workload("StatefulSet"), "podManagementPolicy", "OrderedReady"),
        (workload("DaemonSet"), "updateStrategy", {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
        }),
        (job(), "completions", 1),
        (job(), "parallelism", 1),
        (job(), "backoffLimit", 6),
        (job(completions=3), "parallelism", 1),
        (cron_job(), "concurrencyPolicy", "Allow"),
    ],
)  # fmt: skip
def test_what_is_not_said_has_its_default(shared_api, body, field, value):
    made = shared_api.create(PATHS[body["kind"]], body, dryRun="All")
    assert made["spec"][field] == value


def test_a_job_of_parallel_workers_has_no_completions(shared_api):
    made = shared_api.create(PATHS["Job"], job(parallelism=2), dryRun="All")
    assert "completions" not in made["spec"]


def test_templates_have_the_defaults_of_pods(shared_api):
    made = shared_api.create(PATHS["Deployment"], workload("Deployment"), dryRun="All")
    spec = made["spec"]["template"]["spec"]
    assert (spec["restartPolicy"], spec["schedulerName"]) == ("Always", "default-scheduler")
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert "priority" not in spec
    assert "tolerations" not in spec


def test_a_job_selects_its_pods_by_its_uid(shared_api):
    made = shared_api.create(PATHS["Job"], job(), dryRun="All")
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"] == {
        "app": "web",
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "web",
        "controller-uid": uid,
        "job-name": "web",
    }


MISMATCH = "`selector` does not match template `labels`"


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (workload("Deployment", selector=None), "spec.selector: Required value"),
        (
            workload("ReplicaSet", selector={}),
            "spec.selector: Invalid value: {}: empty selector is invalid for replicaset",
        ),
        (
            workload("Deployment", selector={"matchLabels": {}, "matchExpressions": []}),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
        ),
        (
            workload("StatefulSet", selector={"matchLabels": {"app": "db"}}),
            f'spec.template.metadata.labels: Invalid value: {{"app":"web"}}: {MISMATCH}',
        ),
        (
            workload("ReplicaSet", selector={"matchExpressions": [{"key": "x", "operator": "Is"}]}),
            ('spec.selector.matchExpressions[0].operator: Unsupported value: "Is": '
            'supported values: "DoesNotExist", "Exists", "In", "NotIn"'),
        ),
        (
            workload("ReplicaSet", replicas=-1),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            workload("DaemonSet", template=template(restartPolicy="Never")),
            ('spec.template.spec.restartPolicy: Unsupported value: "Never": '
            'supported values: "Always"'),
        ),
        (
            workload("Deployment", template=template(containers=[])),
            "spec.template.spec.containers: Required value",
        ),
        (
            workload("Deployment", template=template(containers=[{"name": "main", "image": "a",
                     "resources": {"claims": [{"name": "gpu"}]}}])),
            'spec.template.spec.containers[0].resources.claims[0].name: Not found: "gpu"',
        ),
        (
            job(policy="Always"),
            'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
        ),
        (job(parallelism=-1),
         "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
        (
            job(completionMode="Indexed", parallelism=2),
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            job(completionMode="Some"),
            ('spec.completionMode: Unsupported value: "Some": '
            'supported values: "Indexed", "NonIndexed"'),
        ),
        (cron_job(schedule=""), "spec.schedule: Required value"),
        (
            changed(cron_job(), "metadata.name", "a" * 53),
            f'metadata.name: Invalid value: "{"a" * 53}": must be no more than 52 characters',
        ),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(shared_api, body, cause):
    assert cause in causes(shared_api, body)


def test_a_selector_with_expressions_has_to_hold_for_the_template(shared_api):
    def selector(operator, *values):
        return {"matchExpressions": [{"key": "app", "operator": operator, "values": [*values]}]}

    for operator, values, holds in (
        ("In", ["web", "db"], True),
        ("In", ["db"], False),
        ("NotIn", ["db"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ):
        body = workload("Deployment", selector=selector(operator, *values))
        answer = shared_api.send("POST", PATHS["Deployment"], body, dryRun="All")
        assert (answer.status == 201) is holds, (operator, values)


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        (workload("Deployment"), "selector", {"matchLabels": {"app": "web", "tier": "a"}}),
        (job(), "completions", 2),
        (job(), "template", template(restartPolicy="Never", hostname="a")),
    ],
)
def test_what_may_not_change_is_refused(api, body, field, value):
    path = PATHS[body["kind"]]
    made = api.create(path, body)
    if field == "selector":
        made["spec"]["template"]["metadata"]["labels"] = value["matchLabels"]
    answer = api.send("PUT", f"{path}/web", changed(made, f"spec.{field}", value))
    assert answer.status == 422
    assert any(
        cause.startswith(f"spec.{field}: ") and cause.endswith("field is immutable")
        for cause in answer.causes
    )


def test_an_elastic_indexed_job_may_be_scaled(api):
    made = api.create(PATHS["Job"], job(completionMode="Indexed", completions=2, parallelism=2))
    made["spec"] |= {"completions": 3, "parallelism": 3}
    assert api.put(f"{PATHS['Job']}/web", made)["spec"]["completions"] == 3


def test_a_misspelt_field_of_a_template_is_told(shared_api):
    body = changed(workload("Deployment"), "spec.template.spec.resourceClaims", [{"nam": "gpu"}])
    answer = shared_api.send(
        "POST", PATHS["Deployment"], body, dryRun="All", fieldValidation="Strict"
    )
    assert answer.status == 400
    assert 'unknown field "spec.template.spec.resourceClaims[0].nam"' in answer.body["message"]


def test_the_status_is_written_apart_from_the_spec(api):
    api.create(PATHS["Deployment"], workload("Deployment") | {"status": {"replicas": 9}})
    path = f"{PATHS['Deployment']}/web"
    assert "status" not in api.get(path)
    api.patch(f"{path}/status", {"status": {"replicas": 2}, "spec": {"replicas": 5}})
    body = api.get(path)
    assert (body["status"], body["spec"]["replicas"]) == ({"replicas": 2}, 1)
    assert body["metadata"]["generation"] == 1
    assert api.patch(path, {"spec": {"replicas": 3}})["metadata"]["generation"] == 2


@pytest.mark.parametrize("content_type", ["merge-patch+json", "strategic-merge-patch+json"])
def test_scale_is_read_and_written_in_its_own_form(api, content_type):
    api.create(PATHS["Deployment"], workload("Deployment", replicas=2))
    path = f"{PATHS['Deployment']}/web"
    scale = api.get(f"{path}/scale")
    assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    api.patch(f"{path}/scale", {"spec": {"replicas": 4}}, content_type)
    assert api.get(path)["spec"]["replicas"] == 4
    scale = api.get(f"{path}/scale") | {"spec": {"replicas": 1}}
    assert api.put(f"{path}/scale", scale)["spec"] == {"replicas": 1}


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("PUT", {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}}, 409),
        ("PUT", {"spec": {"replicas": -1}}, 422),
        ("PUT", {"spec": {"replicas": "two"}}, 400),
        ("PUT", [], 400),
        ("POST", {"spec": {"replicas": 1}}, 405),
    ],
)
def test_a_scale_that_cannot_be_is_refused_and_changes_nothing(api, method, body, status):
    api.create(PATHS["Deployment"], workload("Deployment", replicas=2))
    answer = api.send(method, f"{PATHS['Deployment']}/web/scale", body)
    assert answer.status == status
    assert api.get(f"{PATHS['Deployment']}/web")["spec"]["replicas"] == 2
    assert not api.exists(f"{PATHS['DaemonSet']}/web/scale")


def test_what_belongs_to_workloads_is_kept_as_it_comes(api):
    base = "/api/v1/namespaces/default"
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
    assert api.create(f"{base}/services", service)["spec"] == service["spec"]
    role = {"metadata": {"name": "system:anything"}, "rules": [{"verbs": ["get"]}]}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert api.create(f"{rbac}/clusterroles", role)["rules"] == role["rules"]
    for name in ("a/b", ".."):
        answer = api.send("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}})
        assert answer.status == 422, answer
    answer = api.send("POST", f"{base}/services", {"metadata": {"name": "Not_A_Name"}})
    assert answer.causes[0].startswith("metadata.name: Invalid value")
    hpa = "/namespaces/default/horizontalpodautoscalers"
    api.create(f"/apis/autoscaling/v2{hpa}", {"metadata": {"name": "a"}, "spec": {"x": 1}})
    assert api.get(f"/apis/autoscaling/v1{hpa}/a")["apiVersion"] == "autoscaling/v1"


def test_they_go_with_their_namespace(api):
    api.create(api_objects.NAMESPACES, {"metadata": {"name": "team"}})
    services = "/api/v1/namespaces/team/services"
    api.create(services, {"metadata": {"name": "web"}})
    api.delete(f"{api_objects.NAMESPACES}/team")
    assert api.names(services) == []
