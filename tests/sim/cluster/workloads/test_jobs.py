"""Jobs and CronJobs: how many pods run, until the Job has ended."""

import re

import pytest
import workload_scene
from workload_scene import job, template


@pytest.fixture
def shop():
    return workload_scene.Shop()


def active(shop):
    return [n for n, pod in shop.pods().items() if pod["status"]["phase"] in ("Pending", "Running")]


def status(shop):
    return shop.status("Job", api="batch/v1")


def ended(shop):
    conditions = status(shop).get("conditions") or ()
    return {item["type"]: item["reason"] for item in conditions if item["status"] == "True"}


def test_as_many_pods_run_as_may_until_enough_have_succeeded(shop):
    shop.add(job(completions=3, parallelism=2))
    shop.settle()
    assert len(active(shop)) == 2
    shop.end(active(shop)[0])
    shop.settle()
    assert len(active(shop)) == 2
    shop.end(*active(shop))
    shop.settle()
    assert active(shop) == []
    assert len(shop.pods()) == 3
    assert ended(shop) == {
        "SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached",
    }  # fmt: skip
    assert status(shop)["succeeded"] == 3
    assert status(shop)["completionTime"] >= status(shop)["startTime"]


def test_a_job_that_says_nothing_runs_one_pod_once(shop):
    body = shop.add(job())
    shop.settle()
    [(name, pod)] = shop.pods().items()
    assert re.fullmatch("web-[a-z0-9]{5}", name)
    labels = pod["metadata"]["labels"]
    uid = body["metadata"]["uid"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == "web"
    assert labels["batch.kubernetes.io/controller-uid"] == labels["controller-uid"] == uid
    shop.end(name)
    shop.settle()
    assert "Complete" in ended(shop)


def test_failures_are_made_good_up_to_the_limit(shop):
    shop.add(job(backoffLimit=1, parallelism=2, completions=2))
    shop.settle()
    shop.end(active(shop)[0], phase="Failed")
    shop.settle()
    assert len(active(shop)) == 2
    assert ended(shop) == {}
    shop.end(active(shop)[0], phase="Failed")
    shop.settle()
    assert ended(shop) == {
        "FailureTarget": "BackoffLimitExceeded",
        "Failed": "BackoffLimitExceeded",
    }
    assert active(shop) == []
    assert status(shop)["failed"] == 2


def test_restarts_of_containers_count_where_they_are_restarted(shop):
    shop.add(job(policy="OnFailure", backoffLimit=2))
    shop.settle()
    shop.restarted(active(shop)[0], 1)
    shop.settle()
    assert ended(shop) == {}
    shop.restarted(active(shop)[0], 2)
    shop.settle()
    assert "Failed" in ended(shop)


def test_an_indexed_job_has_a_pod_for_each_index_and_a_failed_one_again(shop):
    shop.add(job(completions=4, parallelism=2, completionMode="Indexed"))
    shop.settle()
    first, second = active(shop)
    assert re.fullmatch("web-0-[a-z0-9]{5}", first)
    assert re.fullmatch("web-1-[a-z0-9]{5}", second)
    pod = shop.pods()[second]
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    assert pod["spec"]["hostname"] == "web-1"
    [variable] = pod["spec"]["containers"][0]["env"]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    shop.end(first, phase="Failed")
    shop.end(second)
    shop.settle()
    assert [name[:5] for name in active(shop)] == ["web-0", "web-2"]
    assert status(shop)["completedIndexes"] == "1"
    shop.end(active(shop)[1])
    shop.settle()
    shop.end(*active(shop))
    shop.settle()
    assert status(shop)["completedIndexes"] == "0-3"
    assert "Complete" in ended(shop)


def test_without_completions_one_success_is_enough_and_the_others_end(shop):
    shop.add(job(parallelism=2))
    shop.settle()
    first, second = active(shop)
    shop.end(first)
    shop.settle()
    assert active(shop) == [second]
    assert ended(shop) == {}
    shop.end(second)
    shop.settle()
    assert "Complete" in ended(shop)


def test_a_suspended_job_has_no_pods_until_it_is_resumed(shop):
    shop.add(job(suspend=True))
    shop.settle()
    assert shop.pods() == {}
    assert ended(shop) == {"Suspended": "JobSuspended"}
    shop.change("Job", api="batch/v1", suspend=False)
    shop.settle()
    assert len(active(shop)) == 1
    assert ended(shop) == {}
    shop.change("Job", api="batch/v1", suspend=True)
    shop.settle()
    assert active(shop) == []


def test_fewer_pods_at_a_time_are_fewer_pods(shop):
    shop.add(job(completions=5, parallelism=3))
    shop.settle()
    shop.change("Job", api="batch/v1", parallelism=1)
    shop.settle()
    assert len(active(shop)) == 1


def cron_job(**spec):
    template_of_job = {"metadata": {"labels": {"team": "a"}}, "spec": job()["spec"]}
    body = {"schedule": "0 3 * * *", "jobTemplate": template_of_job} | spec
    metadata = {"name": "nightly"}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": body}


def test_a_cron_job_makes_its_job_once_whatever_its_schedule(shop):
    shop.add(cron_job())
    shop.settle()
    [made] = shop.objects("jobs.batch")
    assert re.fullmatch(r"nightly-\d+", made["metadata"]["name"])
    assert made["metadata"]["labels"] == {"team": "a"}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    told = shop.status("CronJob", name="nightly", api="batch/v1")
    assert [item["name"] for item in told["active"]] == [made["metadata"]["name"]]
    shop.end(*active(shop))
    shop.settle()
    told = shop.status("CronJob", name="nightly", api="batch/v1")
    assert "active" not in told
    assert told["lastSuccessfulTime"]
    shop.delete("Job", made["metadata"]["name"], api="batch/v1")
    shop.settle()
    assert shop.objects("jobs.batch") == []


def test_a_suspended_cron_job_makes_none(shop):
    shop.add(cron_job(suspend=True))
    shop.settle()
    assert shop.objects("jobs.batch") == []


def test_a_job_and_its_pods_go_with_the_cron_job(shop):
    shop.add(cron_job())
    shop.settle()
    shop.delete("CronJob", "nightly", api="batch/v1")
    assert shop.objects("jobs.batch") == []
    assert shop.pods() == {}


def test_a_template_without_a_policy_to_end_is_refused(shop):
    with pytest.raises(Exception, match='restartPolicy: Required value: valid values: "OnFailure"'):
        shop.add(job() | {"spec": {"template": template()}})
