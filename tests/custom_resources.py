"""A kind of somebody's own, whose definition says something about each thing that one can say."""

from typing import Any

Json = dict[str, Any]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ORDERS = "/apis/shop.example/v1/namespaces/default/orders"

SPEC: Json = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]*$", "maxLength": 5, "minLength": 3},
        "price": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
        "gift": {"type": "boolean"},
        "due": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True},
        "tags": {
            "type": "array",
            "maxItems": 3,
            "minItems": 1,
            "items": {"type": "string"},
            "x-kubernetes-list-type": "set",
        },
        "lines": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "count": {"type": "integer", "default": 1},
                },
                "x-kubernetes-validations": [
                    {"rule": "self.count >= oldSelf.count", "message": "a line only grows"}
                ],
            },
        },
        "labels": {
            "type": "object",
            "maxProperties": 2,
            "additionalProperties": {"type": "string"},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "box": {
            "type": "object",
            "properties": {
                "depth": {"type": "integer"},
                "width": {"type": "integer"},
                "x-ray": {"type": "boolean", "default": False},
            },
            "oneOf": [{"required": ["depth"]}, {"required": ["width"]}],
        },
    },
    "not": {"required": ["gift", "price"]},
    "x-kubernetes-validations": [
        {"rule": "self.size < 10 || self.colour == 'green'", "message": "large ones are green"},
        {
            "rule": "!has(self.box) || !self.box.x__dash__ray || self.size > 1",
            "messageExpression": "'a box of ' + string(self.size) + ' is too small for that'",
            "fieldPath": ".box",
            "reason": "FieldValueForbidden",
        },
    ],
}

COLUMNS: list[Json] = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Ready", "type": "string",
     "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Gift", "type": "boolean", "jsonPath": ".spec.gift", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]  # fmt: skip


def definition(spec: Json = SPEC, *, status: Json | None = None, **version: Any) -> Json:
    """The definition of orders with this schema of their `spec`; `version`: more of its fields."""
    states: Json = status or {
        "type": "object",
        "properties": {
            "conditions": {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            }
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "status": states}}
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    one |= {"subresources": {"status": {}}, "additionalPrinterColumns": COLUMNS}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "orders.shop.example"},
        "spec": {
            "group": "shop.example",
            "scope": "Namespaced",
            "names": {"plural": "orders", "kind": "Order", "shortNames": ["or"]},
            "versions": [one | version],
        },
    }


def order(name: str = "a", **spec: Any) -> Json:
    return {"metadata": {"name": name}, "spec": {"size": 3} | spec}
