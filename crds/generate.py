"""Write the JSON schema of each kind of config beside this file: `make crds`."""  # noqa: INP001

import json
import pathlib

from dra_driver.model import configs, sharing

HERE = pathlib.Path(__file__).parent


def texts() -> dict[str, str]:
    """What each file must hold, by its name."""
    return {
        f"{kind.value.lower()}.schema.json": json.dumps(configs.schema(kind), indent=2) + "\n"
        for kind in sharing.Kind
    }


if __name__ == "__main__":
    for name, text in texts().items():
        (HERE / name).write_text(text)
