"""Settings that the demo hands to plugins: what they become, and what is refused."""

import pytest

from dra_driver import errors
from dra_driver.sim.demo import plugin_settings


def test_settings_become_flags_of_the_plugin_in_their_order():
    texts = [
        "shares=memory", "share-enforcement=None", "rescan-seconds=5", "shares=4",
        'gpus=[{"selector": "1 == 1", "shares": "2"}]',
    ]  # fmt: skip
    assert plugin_settings.flags(texts) == (
        "--shares=memory", "--share-enforcement=None", "--rescan-seconds=5", "--shares=4",
        '--gpus=[{"selector": "1 == 1", "shares": "2"}]',
    )  # fmt: skip
    assert plugin_settings.flags([]) == ()


@pytest.mark.parametrize("text", ["shares", "", "--shares"])
def test_a_setting_without_a_value_is_refused(text):
    with pytest.raises(errors.Rejected) as refused:
        plugin_settings.flags([text])
    assert str(refused.value) == (
        f"--plugin-setting {text!r}: write NAME=VALUE, for example shares=memory"
    )


@pytest.mark.parametrize("name", ["share", "--shares", "share_enforcement", "config", ""])
def test_an_unknown_name_is_refused_with_the_names_that_there_are(name):
    with pytest.raises(errors.Rejected) as refused:
        plugin_settings.flags([f"{name}=1"])
    text = str(refused.value)
    start = f"--plugin-setting '{name}=1': {name!r} is no setting of the kubelet plugin"
    assert text.startswith(f"{start}; write one of: adopt-foreign-mig, ")
    names = text.partition("write one of: ")[2].split(", ")
    assert {"shares", "share-enforcement", "mig-mode", "packing", "gpus"} < set(names)
    assert "node-name" not in names


@pytest.mark.parametrize("name", ["node-name", "kubelet-root", "state-dir", "simulate-gpus"])
def test_what_the_embedded_cluster_sets_itself_is_refused(name):
    with pytest.raises(errors.Rejected, match=f"{name} is set by the embedded cluster itself"):
        plugin_settings.flags([f"{name}=x"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("shares=many", "flag --shares: 'many': "),
        ("share-enforcement=x", "flag --share-enforcement: 'x': "),
        ("gpus=[", "flag --gpus: '[': "),
        ("adopt-foreign-mig=maybe", "flag --adopt-foreign-mig: 'maybe': "),
    ],
)
def test_a_value_that_the_plugin_would_refuse_is_refused_before_anything_starts(text, told):
    with pytest.raises(errors.Rejected) as refused:
        plugin_settings.flags([text])
    assert str(refused.value).startswith(f"--plugin-setting: {told}")
