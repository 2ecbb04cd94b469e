"""Flags, variables and descriptions of settings belong together."""

import argparse
import re
import typing

import pytest

from dra_driver import settings

Plugin = settings.KubeletPlugin
NODE = {"NODE_NAME": "node-1"}


def resolve(*, file=None, environment=NODE, **flags):
    return settings.resolve(Plugin, file=file, environment=environment, flags=flags)


@pytest.fixture
def parser():
    made = argparse.ArgumentParser(prog="x", allow_abbrev=False)
    settings.add_flags(made, Plugin)
    return made


def test_every_setting_has_a_flag_that_reaches_it(parser):
    words = [f"--{name.replace('_', '-')}={name}-value" for name in Plugin.model_fields]
    given_flags = vars(parser.parse_args(words))
    assert given_flags == {"config": None} | {name: f"{name}-value" for name in Plugin.model_fields}


def test_a_flag_that_is_not_given_is_none(parser):
    assert set(vars(parser.parse_args([])).values()) == {None}


def test_every_setting_has_a_description_that_is_a_sentence():
    for name, field in Plugin.model_fields.items():
        assert field.description, name
        assert field.description[0].isupper() or field.description.startswith("nvidia-cdi"), name
        assert field.description.endswith((".", "served")), name


def test_help_shows_every_flag_with_variable_and_default(parser):
    text = " ".join(parser.format_help().split())
    for name, field in Plugin.model_fields.items():
        variable = f"DRA_DRIVER_{name.upper()}"
        shown = re.search(rf"--{name.replace('_', '-')} (\S+) (.*?)\[env: {variable}[\],]", text)
        assert shown, name
        assert " ".join(field.description.split()) in shown[2]
        if not field.is_required() and field.default:
            assert f"Default: {field.default}." in shown[2]
    assert "[env: DRA_DRIVER_NODE_NAME, or else NODE_NAME]" in text
    assert "[env: DRA_DRIVER_KUBECONFIG, or else KUBECONFIG]" in text
    assert "[env: DRA_DRIVER_CONFIG]" in text


def test_what_follows_a_flag_says_what_it_is(parser):
    shown = dict(re.findall(r"\[--(\S+)\s+(\[?\S+?\]?)\]", parser.format_usage()))
    assert shown == {
        "config": "FILE", "kubeconfig": "FILE", "log-level": "debug|info|warning|error",
        "log-format": "auto|console|json", "node-name": "NAME", "driver-name": "NAME",
        "kubelet-root": "DIR", "registry-dir": "DIR", "plugin-dir": "DIR", "state-dir": "DIR",
        "cdi-dir": "DIR", "driver-root": "DIR", "driver-root-seen": "DIR",
        "library-dirs": "DIRS", "cdi-hook": "FILE", "sysfs-root": "DIR", "proc-root": "DIR",
        "boot-id-file": "FILE",
        "rolling-update-uid": "UID", "mig-mode": "dynamic|static|off", "gpus": "JSON",
        "scheduler-defects": "avoid|ignore",
        "packing": "pack|spread|adaptive", "repacking-seconds": "SECONDS",
        "shares": "off|memory|N", "share-enforcement": "MPS|None", "vfio": "off|on|only",
        "host-root": "DIR", "fabric-manager": "MANAGER", "mps-shm-size": "SIZE",
        "mps-launcher": "process|pod", "mps-cpu": "CPU", "mps-memory": "MEMORY",
        "mps-image": "IMAGE", "mps-image-pull-policy": "Always|IfNotPresent|Never",
        "mps-image-pull-secrets": "SECRETS",
        "mps-service-account": "ACCOUNT", "mps-priority-class": "CLASS",
        "pod-namespace": "NAMESPACE",
        "adopt-foreign-mig": "[true|false]", "device-metadata": "[true|false]",
        "rescan-seconds": "SECONDS",
        "health-effects": "EFFECTS", "health-evict": "EVICT",
        "health-hold-seconds": "SECONDS", "recovery": "off|reset",
        "reboot-condition": "CONDITION",
        "metrics-address": "HOST:PORT", "health-address": "HOST:PORT",
        "simulate-gpus": "SPEC", "simulation-dir": "DIR",
    }  # fmt: skip


def test_every_setting_has_a_variable_and_a_key_that_reach_it():
    samples = {
        "node_name": "n2", "driver_name": "d.example.com", "log_level": "debug",
        "log_format": "json", "rolling_update_uid": "u", "rescan_seconds": "7",
        "metrics_address": ":9090", "health_address": ":51516", "simulate_gpus": "t4:1",
        "library_dirs": "/a", "fabric_manager": "127.0.0.1:6666",
        "mig_mode": "static", "gpus": '[{"selector": "true", "migMode": "off"}]',
        "scheduler_defects": "ignore",
        "packing": "pack", "repacking_seconds": "7", "adopt_foreign_mig": "true",
        "device_metadata": "false",
        "shares": "memory", "share_enforcement": "None", "vfio": "on", "mps_shm_size": "64Mi",
        "mps_launcher": "pod", "mps_cpu": "1", "mps_memory": "1Gi", "mps_image": "i:1",
        "mps_image_pull_policy": "Never", "mps_image_pull_secrets": "one,two",
        "health_effects": "thermal:NoSchedule,xid=94:NoSchedule", "health_evict": "gpu-lost,xid=79",
        "health_hold_seconds": "7", "recovery": "reset", "reboot_condition": "GPUNeedsReboot",
        "mps_service_account": "mps", "mps_priority_class": "high", "pod_namespace": "gpu-system",
    }  # fmt: skip
    keys = typing.cast("dict[str, str]", {n: f.alias for n, f in Plugin.model_fields.items()})
    for name in Plugin.model_fields:
        text = samples.get(name, f"/{name}")
        by_variable = resolve(environment=NODE | {f"DRA_DRIVER_{name.upper()}": text})
        by_key = settings.resolve(
            Plugin, file={"nodeName": "node-1"} | {keys[name]: text}, environment={}, flags={}
        )
        assert by_variable == by_key
        assert getattr(by_variable, name) != getattr(resolve(), name)
