"""What was asked of NVML about a GPU, and what was not answered."""

from collections.abc import Callable
from typing import Any

from dra_driver.adapters.nvml import nvml_codes
from dra_driver.model import devices


class Questions:
    """Stands for `library`, `pynvml` or an object with its functions; raises what that raises."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._answers: dict[str, devices.NoAnswer | None] = {}

    @property
    def answers(self) -> devices.Answers:
        """The functions that were called, with the numbers that they were given."""
        return dict(self._answers)

    def __getattr__(self, name: str) -> Any:
        """What the library has under the name; a function of NVML is listened to."""
        found = getattr(self._library, name)
        return self._heard(name, found) if name.startswith("nvml") and callable(found) else found

    def _heard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*arguments: Any) -> Any:
            numbers = ", ".join(str(one) for one in arguments if isinstance(one, int))
            question = f"{name}({numbers})"
            self._answers.setdefault(question, None)
            try:
                return function(*arguments)
            except self._library.NVMLError as error:
                odd = error.value not in nvml_codes.NO_SUCH_FACT
                self._answers[question] = devices.NoAnswer(nvml_codes.describe(error), odd)
                raise

        return ask
