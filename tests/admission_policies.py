"""What an API server answers where a policy of the chart is in force, by CEL's own runtime."""

from collections.abc import Callable, Mapping
from typing import Any

import chart
import pytest

Json = dict[str, Any]

ACCOUNT = f"system:serviceaccount:{chart.NAMESPACE}:dra-driver-kubelet-plugin"
NODE_NAME = "authentication.kubernetes.io/node-name"
_NAMES = ("object", "oldObject", "request", "variables")


class Policy:
    """One ValidatingAdmissionPolicy of the chart, found by the end of its name."""

    def __init__(self, suffix: str, values: Mapping[str, Any] | None = None) -> None:
        cel = pytest.importorskip("cel_expr_python.cel", reason="no wheel of CEL's own runtime")
        config = cel.NewEnvConfigFromYaml("name: policy\nextensions:\n- name: optional\n")
        self.spec: Json = chart.the(chart.objects(values), "ValidatingAdmissionPolicy", suffix)[
            "spec"
        ]
        self._environment = cel.NewEnv(config=config, variables=dict.fromkeys(_NAMES, cel.Type.DYN))
        self._error = cel.Type.ERROR
        self._compiled: dict[str, Callable[..., Any]] = {}

    def verdict(
        self,
        operation: str,
        *,
        new: Json | None = None,
        old: Json | None = None,
        user: str = ACCOUNT,
        node: str | None = None,
        extra: Mapping[str, list[str]] | None = None,
    ) -> str | None:
        """The reason why a request is refused, or None. `node` is the one in the user's token."""
        info: Json = {"username": user}
        if node is not None:
            extra = {NODE_NAME: [node], "authentication.kubernetes.io/pod-name": ["x"]}
        if extra is not None:
            info["extra"] = extra
        data: Json = {"object": new, "oldObject": old, "variables": {}}
        data["request"] = {"operation": operation, "userInfo": info}
        if not all(self._value(one["expression"], data) for one in self.spec["matchConditions"]):
            return None
        for variable in self.spec["variables"]:
            value = self._value(variable["expression"], data)
            data["variables"] = data["variables"] | {variable["name"]: value}
        for validation in self.spec["validations"]:
            if not self._value(validation["expression"], data):
                message = validation.get("messageExpression")
                return self._value(message, data) if message else validation["message"]
        return None

    def _value(self, expression: str, data: Json) -> Any:
        if expression not in self._compiled:
            self._compiled[expression] = self._environment.compile(expression).eval
        outcome = self._compiled[expression](data=data)
        assert outcome.type() != self._error, (expression, outcome.value())
        return outcome.plain_value()
