"""Settings that the demo gives to the kubelet plugins of all its nodes."""

from collections.abc import Iterable

from dra_driver import errors, settings

OPTION = "--plugin-setting"
_SET_HERE = {
    *("kubeconfig", "node_name", "driver_name", "log_format"),
    *("kubelet_root", "registry_dir", "plugin_dir", "state_dir", "cdi_dir", "rolling_update_uid"),
    *("simulate_gpus", "simulation_dir"),
}
"""What the embedded cluster says itself: where things are, and which GPUs a node simulates."""


def flags(texts: Iterable[str]) -> tuple[str, ...]:
    """The plugin's flags for texts `NAME=VALUE`, whose names are those of its flags without `--`.

    Raises:
        errors.Rejected: one has no such form, no such name, or a value that the plugin refuses.
    """
    pairs = [_pair(text) for text in texts]
    try:
        settings.resolve(
            settings.KubeletPlugin, environment={}, flags={"node_name": "demo", **dict(pairs)}
        )
    except errors.Fatal as error:
        raise errors.Rejected(f"{OPTION}: {error}") from error
    return tuple(f"--{_flag(name)}={value}" for name, value in pairs)


def _pair(text: str) -> tuple[str, str]:
    flag, equals, value = text.partition("=")
    if not equals:
        raise errors.Rejected(f"{OPTION} {text!r}: write NAME=VALUE, for example shares=memory")
    allowed = {_flag(name): name for name in settings.KubeletPlugin.model_fields}
    if allowed.get(flag) in _SET_HERE:
        raise errors.Rejected(
            f"{OPTION} {text!r}: {flag} is set by the embedded cluster itself; leave it out. GPUs "
            "of a node are chosen with --node"
        )
    if flag not in allowed:
        names = sorted(each for each, name in allowed.items() if name not in _SET_HERE)
        raise errors.Rejected(
            f"{OPTION} {text!r}: {flag!r} is no setting of the kubelet plugin; "
            f"write one of: {', '.join(names)}"
        )
    return allowed[flag], value


def _flag(name: str) -> str:
    return name.replace("_", "-")
