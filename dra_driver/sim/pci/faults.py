"""Faults of the simulated kernel on demand: what a test writes into `<directory>/pci_faults.json`.

Every process that uses the directory meets them with its next write. What is wrong with the
machine, and not with what the kernel does, is in `changing`.
"""

import errno
import pathlib
from typing import Annotated, Literal

import pydantic

from dra_driver import errors
from dra_driver.sim import hardware_files

FILE = "pci_faults.json"
Action = Literal["override", "bind", "unbind", "load"]


class _Fault(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")


class Fault(_Fault):
    """What goes wrong with an action: of one function or any, with one driver or any.

    It fails with `error`, an errno; None: it hangs for as long as the fault lasts, and is done
    then. With `vanishes` the function is gone after it. `times` is how often it still happens;
    None is always. Of `load` the driver alone is looked at, dash and underscore alike.
    """

    action: Action
    address: str | None = None
    driver: str | None = None
    error: int | None = None
    vanishes: bool = False
    times: Annotated[int, pydantic.Field(ge=1)] | None = None

    def hits(self, action: Action, address: str | None, driver: str | None) -> bool:
        """Whether it is meant."""
        return (
            self.action == action
            and self.address in {None, address}
            and (self.driver is None or _plain(self.driver) == _plain(driver or ""))
        )


class Faults(_Fault):
    """What is wrong; of several that fit an action the first counts."""

    faults: list[Fault] = []


def open_file(directory: pathlib.Path) -> hardware_files.ModelFile[Faults]:
    """The faults of a directory."""
    return hardware_files.ModelFile(directory / FILE, Faults())


def fail(
    directory: pathlib.Path,
    action: Action,
    error: int,
    *,
    address: str | None = None,
    driver: str | None = None,
    times: int | None = None,
) -> None:
    """From now on an action fails, see `Fault`; earlier faults stay and come first.

    Raises:
        errors.Rejected: there is no such errno.
    """
    if error not in errno.errorcode:
        raise errors.Rejected(f"errno {error}: there is none; write errno.ENODEV, for example")
    fault = Fault(action=action, address=address, driver=driver, error=error, times=times)
    _add(directory, fault)


def hang(
    directory: pathlib.Path,
    action: Literal["bind", "unbind", "load"],
    *,
    address: str | None = None,
    driver: str | None = None,
) -> None:
    """From now on an action hangs, until `clear`; then it is done."""
    _add(directory, Fault(action=action, address=address, driver=driver))


def vanish(directory: pathlib.Path, action: Action, *, address: str | None = None) -> None:
    """The next function with which this is done is pulled out meanwhile."""
    _add(
        directory,
        Fault(action=action, address=address, error=errno.ENODEV, vanishes=True, times=1),
    )


def lack(directory: pathlib.Path, module: str) -> None:
    """From now on there is no such module; one that is loaded stays so."""
    _add(directory, Fault(action="load", driver=module, error=errno.ENOENT))


def clear(directory: pathlib.Path) -> None:
    """Everything works again, and what hung is done with the next look of the kernel."""
    open_file(directory).clear()


def take(
    directory: pathlib.Path, action: Action, address: str | None, driver: str | None
) -> Fault | None:
    """The fault that this meets, counted off; None if it meets none."""
    file = open_file(directory)
    hit = _first(file.read(), action, address, driver)
    if hit is None or hit.times is None:
        return hit
    with file.edit() as faults:
        hit = _first(faults, action, address, driver)
        if hit is not None and hit.times is not None:
            if hit.times == 1:
                faults.faults.remove(hit)
            else:
                hit.times -= 1
    return hit


def hangs(directory: pathlib.Path, action: Action, address: str, driver: str) -> bool:
    """Whether this would hang now."""
    hit = _first(open_file(directory).read(), action, address, driver)
    return hit is not None and hit.error is None


def _first(faults: Faults, action: Action, address: str | None, driver: str | None) -> Fault | None:
    return next((one for one in faults.faults if one.hits(action, address, driver)), None)


def _add(directory: pathlib.Path, fault: Fault) -> None:
    with open_file(directory).edit() as faults:
        faults.faults.append(fault)


def _plain(name: str) -> str:
    return name.replace("-", "_")
