"""The structural schema of the status of parameter objects: what the controller tells."""

from typing import Any

Json = dict[str, Any]

MOST_EXPRESSIONS = 32
LONGEST_MESSAGE = 4096
"""Characters of a condition's message."""

_TEXT = {"type": "string"}

SCHEMA: Json = {
    "type": "object",
    "description": "what the controller made of the parameters",
    "properties": {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "the generation of the parameters that this is about",
        },
        "expressions": {
            "type": "array",
            "description": "the CEL that the template has, all of which has to hold of a device",
            "maxItems": MOST_EXPRESSIONS,
            "items": {**_TEXT, "maxLength": 10240},
        },
        "matching": {
            "type": "integer",
            "format": "int64",
            "minimum": 0,
            "description": "how many devices of the cluster match, whether they are free or not",
        },
        "conditions": {
            "type": "array",
            "description": "Ready: the template is there; Matching: there are enough devices",
            "maxItems": 8,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status", "reason", "message", "lastTransitionTime"],
                "properties": {
                    "type": {**_TEXT, "maxLength": 316},
                    "status": {**_TEXT, "enum": ["True", "False", "Unknown"]},
                    "reason": {**_TEXT, "minLength": 1, "maxLength": 1024},
                    "message": {**_TEXT, "maxLength": 32768},
                    "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                    "lastTransitionTime": {**_TEXT, "format": "date-time"},
                },
            },
        },
    },
}
