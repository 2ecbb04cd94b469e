"""What the README of a demo says in its overview, and what pods became, in its words."""

import re

from dra_driver.sim.demo import outcome

ROW = re.compile(r"^\| \[(.*?)\]\((.*?)\) \| .* \| `(\S+)` \| (.*?) \|$", re.MULTILINE)


def told(readme):
    """The node, as `--node` has it, and the pods with their ends, by manifest."""
    return {
        target: (
            node,
            {
                pod: state.strip()
                for state, pods in re.findall(r"([^:;]+): ([^;]+)", ends)
                for pod in re.findall(r"`(\S+?)`", pods)
            },
        )
        for name, target, node, ends in ROW.findall(readme)
        if name == target
    }


def became(pod):
    """The state of a pod of the command's JSON."""
    waited = pod["wasUnschedulable"] and pod["phase"] in outcome.RUNS
    return f"{pod['phase']} (was Unschedulable)" if waited else pod["phase"]
