"""The cluster that cases run on: embedded ones of this machine, or that of E2E_KUBECONFIG."""

import os
import pathlib

import e2e_installing
import e2e_machine
import e2e_report
import e2e_site
import pytest

KUBECONFIG = "E2E_KUBECONFIG"
"""The variable that names a cluster's kubeconfig; the others are named after `Options`."""


def options():
    """Of the cluster that the environment names."""
    given = {
        field: os.environ[variable]
        for field in ("label", "namespace", "image", "pod_image")
        if (variable := f"E2E_{field.upper()}") in os.environ
    }
    seconds = float(os.environ.get("E2E_SECONDS", "180"))
    return e2e_site.Options(pathlib.Path(os.environ[KUBECONFIG]), seconds=seconds, **given)


def pytest_collection_modifyitems(config, items):
    """Each case runs on the one cluster, or on the other."""
    unwanted = "embedded" if KUBECONFIG in os.environ else "cluster"
    dropped = [
        item
        for item in items
        if getattr(item, "callspec", None) and item.callspec.params.get("where") == unwanted
    ]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    names = [name for marker in item.iter_markers("covers") for name in marker.args]
    report.user_properties.extend(("covers", name) for name in names if report.when == "call")
    return report


def pytest_terminal_summary(terminalreporter, config):
    if KUBECONFIG in os.environ:
        e2e_report.show(terminalreporter, config.stash.get(e2e_report.COUNTS, None))


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("cluster", marks=pytest.mark.cluster)]
)
def where(request):
    return request.param


@pytest.fixture(scope="session")
def machine(where):
    """What may be done to the hosts of the embedded cluster; None of another."""
    if where != "embedded":
        yield None
        return
    made = e2e_machine.Machine()
    yield made
    made.close()


@pytest.fixture(scope="session")
def site(where, machine):
    wanted = (
        options()
        if machine is None
        else e2e_site.Options(machine.kubeconfig, label=e2e_machine.LABEL, seconds=60.0)
    )
    made = e2e_site.Site(wanted)
    assert made.nodes, (
        f"no node has the label {wanted.label}: kubectl label node NAME {wanted.label}=true"
    )
    yield made
    made.close()


@pytest.fixture(scope="session")
def driver(site, machine, request, record_testsuite_property):
    """The driver, installed for all cases."""
    counts = e2e_report.Counts(site)
    request.config.stash[e2e_report.COUNTS] = counts
    made = e2e_installing.Installation(site, killer=machine.kill if machine else None)
    try:
        made.apply()
        counts.start()
        yield made
        counts.stop()
        for name, value in counts.facts.items():
            record_testsuite_property(name, value)
    finally:
        # Also what did not come to be ready: it is somebody's cluster.
        made.remove()


@pytest.fixture
def labels():
    """Of the namespace of a case."""
    return {}


@pytest.fixture
def scratch(site, driver, machine, labels, request):
    """A namespace of the case, after which nothing is left, and the same is published as before."""
    before = site.devices().keys()
    name = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:40]
    with site.scratch(name.rstrip("-"), labels) as made:
        yield made
    if machine is not None:
        site.wait(lambda: not machine.leftovers(), lambda: f"nothing left: {machine.leftovers()}")
    site.wait(
        lambda: site.devices().keys() == before,
        lambda: f"the same devices; other are {site.devices().keys() ^ before}",
    )
