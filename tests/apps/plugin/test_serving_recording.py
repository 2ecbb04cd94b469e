"""What a real kubelet said to a plugin, said to ours: claims, names, UIDs and order as recorded."""

import concurrent.futures
import json
import pathlib

import api_cluster
import pytest

from dra_driver.model import claims

RECORDING = pathlib.Path(__file__).parents[4] / "shared" / "recordings" / "kubelet-1.36.jsonl"
NEVER_ANSWERED_WELL = ("gpu-6", ["r"])
"""What claims have that the recorded plugin never prepared: a device that is free then."""


@pytest.fixture(scope="module")
def plugin(new_plugin):
    return new_plugin(gpus="h100-80gb-hbm3:8").start()


@pytest.fixture
def recording():
    if not RECORDING.exists():
        pytest.skip(f"no recording {RECORDING}")
    return [json.loads(line) for line in RECORDING.read_text().splitlines()]


def is_call(line):
    return line.get("method", "").endswith(("NodePrepareResources", "NodeUnprepareResources"))


def answers_in(line):
    return line.get("response", {}).get("claims", {})


def recorded_devices(recording):
    """By claim UID: devices and their requests, as the recorded plugin answered."""
    found = {}
    for line in recording:
        if is_call(line) and line["event"] == "response":
            for uid, answer in answers_in(line).items():
                if answer.get("devices"):
                    found[uid] = [
                        (device["device_name"].replace("dev-", "gpu-"), device["request_names"])
                        for device in answer["devices"]
                    ]
    return found


def failed(recording):
    """The calls in which the recorded plugin answered with an error, as (pid, call)."""
    return {
        (line["pid"], line["call"])
        for line in recording
        if is_call(line)
        and (
            line["event"] == "closed"
            or line.get("status", "OK") != "OK"
            or any(answer.get("error") for answer in answers_in(line).values())
        )
    }


class Replay:
    """Says it again: a call begins after all those that had ended before it did."""

    def __init__(self, kubelet, cluster, pool, devices):
        self._kubelet = kubelet
        self._cluster = cluster
        self._pool = pool
        self._devices = devices
        self._running = {}
        self.calls = []

    def follow(self, line):
        if line.get("api") == "ResourceClaim":
            self._claim(line)
        elif is_call(line):
            key = (line["pid"], line["call"])
            if line["event"] == "request":
                self._running[key] = self._pool.submit(self._call, key, line)
            elif key in self._running:
                self._running.pop(key).result(api_cluster.DEADLINE)

    def _claim(self, line):
        if line["type"] == "ADDED":
            devices = self._devices.get(line["uid"], [NEVER_ANSWERED_WELL])
            results = [
                {"device": name, "request": request}
                for name, requests in devices
                for request in requests
            ]
            ref = self._cluster.claim(*results, name=line["name"])
            self._cluster.give_uid(ref, line["uid"])
        elif line["type"] == "DELETED":
            self._cluster.delete_claim(claims.ClaimRef("default", line["name"], line["uid"]))

    def _call(self, key, line):
        refs = [
            claims.ClaimRef(claim["namespace"], claim["name"], claim["uid"])
            for claim in line["request"]["claims"]
        ]
        if "Unprepare" in line["method"]:
            answers = self._kubelet.ask_unprepare(*refs)
        else:
            version = line["method"].split(".apis.dra.")[1].partition("/")[0]
            answers = self._kubelet.ask_prepare(*refs, version=version)
        self.calls.append((key, line["method"].rpartition("/")[2], refs, answers))


def test_every_call_of_the_recording_is_answered_by_the_rules(recording, kubelet, cluster, machine):
    devices = recorded_devices(recording)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        replay = Replay(kubelet, cluster, pool, devices)
        for line in recording:
            replay.follow(line)
    requests = [line for line in recording if is_call(line) and line["event"] == "request"]
    assert len(replay.calls) == len(requests) > 100
    excused = failed(recording)
    for key, method, refs, answers in replay.calls:
        assert sorted(answers) == sorted(ref.uid for ref in refs)
        for uid, answer in answers.items():
            assert not answer.error or key in excused, (method, refs, answer)
            if method == "NodePrepareResources" and not answer.error:
                expected = devices.get(uid, [NEVER_ANSWERED_WELL])
                assert [(d.device, list(d.requests)) for d in answer.devices] == expected
    assert [name for name in machine.files() if name.endswith(".json")] == []
