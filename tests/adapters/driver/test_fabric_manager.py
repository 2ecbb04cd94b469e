"""Fabric Manager is asked through a C library that is compiled here: no real one was at hand."""

import fabric_library as stand_in
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.adapters.driver import driver_root, fabric_library, fabric_manager
from dra_driver.model import fabric

TCP = "127.0.0.1:6666"
EIGHT = ((0, tuple(range(1, 9))), (1, (1, 2, 3, 4)), (2, (5, 6, 7, 8)), (7, (1,)))


@pytest.fixture
def asked(tmp_path):
    """What asks a library that is made as told; `seconds` is how long it may take."""

    def ask(listens=TCP, *, host=None, seconds=60.0, name="libnvfm.so.1", **facts):
        stand_in.Library(**facts).compile(tmp_path / "driver/usr/lib64" / name)
        layout = driver_root.Layout(driver_root.Root("/", tmp_path / "driver"))
        where = fabric.parse_address(listens)
        return fabric_manager.FabricManager(
            layout, where, host=host or tmp_path, seconds=seconds
        ).partitions()

    return ask


def ids(found):
    return tuple((one.id, tuple(gpu.physical_id for gpu in one.members)) for one in found)


def test_the_partitions_are_those_that_the_library_tells(asked):
    facts = {"uuid": "GPU-%u", "bus_id": "00000000:%02X:00.0"}
    found = asked(partitions=EIGHT, **facts)
    assert ids(found) == EIGHT
    assert found[0].members[7] == fabric.Member(8, "GPU-8", "00000000:08:00.0")


def test_a_library_of_either_form_of_the_parameters_is_spoken_to(asked):
    assert ids(asked(knows=1, partitions=EIGHT)) == EIGHT
    assert ids(asked(knows=2, partitions=EIGHT, name="libnvfm.so")) == EIGHT


def test_a_socket_is_found_below_the_root_of_the_host(asked, tmp_path):
    host = tmp_path / "host"
    (host / "run/fm").mkdir(parents=True)
    (host / "var").mkdir()
    (host / "var/run").symlink_to("/run")
    found = asked(
        "unix:/var/run/fm/socket",
        host=host,
        address=f"{host}/run/fm/socket",
        is_socket=True,
        partitions=EIGHT,
    )
    assert ids(found) == EIGHT


def test_as_many_partitions_and_gpus_as_there_is_room_for_are_read(asked):
    full = tuple((number, tuple(range(1, 17))) for number in range(64))
    assert ids(asked(partitions=full)) == full


def test_none_is_an_answer(asked):
    assert asked() == ()


def test_more_than_there_is_room_for_is_no_answer(asked):
    with pytest.raises(errors.Retryable, match="65 partitions, and its structure has room for 64"):
        asked(count=65)


def test_one_that_refuses_is_told_with_its_reason(asked):
    with pytest.raises(errors.Retryable) as caught:
        asked(refuses=-3)
    assert str(caught.value) == (
        "Fabric Manager: fmGetSupportedFabricPartitions answers -3 (FM_ST_NOT_SUPPORTED: it runs "
        "with FABRIC_MODE=0, or this machine has no partitions)"
    )


def test_a_number_that_nobody_knows_is_told_as_such(asked):
    with pytest.raises(errors.Retryable, match=r"answers -99 \(an error that is not known here\)"):
        asked(refuses=-99)


def test_where_nobody_listens_it_is_said_where(asked):
    with pytest.raises(errors.Retryable, match=r"fmConnect to 127\.0\.0\.2:6666 answers -9"):
        asked("127.0.0.2:6666")


def test_a_library_of_another_version_is_told_as_such(asked):
    with pytest.raises(errors.Retryable, match=r"fmConnect .*FM_ST_VERSION_MISMATCH"):
        asked(knows=3)
    with pytest.raises(errors.Retryable, match=r"fmGetSupported.*FM_ST_VERSION_MISMATCH"):
        asked(list_version=2)


def test_one_that_hangs_is_given_up(asked):
    with pytest.raises(errors.Retryable, match=r"does not answer within 2 s: systemctl status"):
        asked(hangs=True, seconds=2.0)


def test_without_the_library_it_is_said_which_package_has_it(tmp_path):
    layout = driver_root.Layout(driver_root.Root("/", tmp_path))
    manager = fabric_manager.FabricManager(layout, fabric.parse_address(TCP), host=tmp_path)
    with pytest.raises(errors.Retryable, match=r"no libnvfm\.so\.1 or libnvfm\.so in /usr/local"):
        manager.partitions()


def test_another_library_by_that_name_is_told(tmp_path):
    path = tmp_path / "driver/usr/lib64/libnvfm.so.1"
    path.parent.mkdir(parents=True)
    path.write_text("nothing")
    layout = driver_root.Layout(driver_root.Root("/", tmp_path / "driver"))
    manager = fabric_manager.FabricManager(layout, fabric.parse_address(TCP), host=tmp_path)
    with pytest.raises(errors.Retryable, match=r"libnvfm\.so\.1 cannot be used: .*too short"):
        manager.partitions()


def test_a_process_that_ends_without_a_word_is_told(tmp_path):
    (tmp_path / "libnvfm.so").touch()
    layout = driver_root.Layout(driver_root.Root("/", tmp_path), ["/"])
    address = fabric.parse_address(TCP)
    for command, told in {
        "kill -SEGV $$": "ended with -11: no reason",
        "echo '[{}]'": "is no list of partitions",
    }.items():
        manager = fabric_manager.FabricManager(
            layout, address, host=tmp_path, command=("sh", "-c", command, "sh")
        )
        with pytest.raises(errors.DriverError, match=told):
            manager.partitions()


def test_structures_are_as_large_as_the_c_compiler_has_them(tmp_path):
    kinds = {
        "Connect1": (fabric_library.ConnectParamsV1, 1),
        "Connect2": (fabric_library.ConnectParamsV2, 2),
        "Gpu": (fabric_library.GpuInfo, 0),
        "Partition": (fabric_library.PartitionInfo, 0),
        "List": (fabric_library.PartitionListV2, 1),
    }
    ours = {
        name: (fabric_library.version(kind, 0), fabric_library.version(kind, number))
        for name, (kind, number) in kinds.items()
    }
    assert stand_in.sizes(tmp_path) == ours
    # As in NVIDIA/go-nvfm, whose structures are those of NVIDIA's headers.
    assert {name: size for name, (size, _) in ours.items()} == {
        "Connect1": 268, "Connect2": 272, "Gpu": 128, "Partition": 2060, "List": 131852
    }  # fmt: skip


TEXTS = st.text(st.characters(min_codepoint=0, max_codepoint=0xD7FF), max_size=80)
PARTITIONS = st.builds(
    fabric.Partition,
    st.integers(0, 2**32 - 1),
    st.lists(st.builds(fabric.Member, st.integers(0, 2**32 - 1), TEXTS, TEXTS)).map(tuple),
)


@given(st.lists(PARTITIONS))
def test_what_the_process_writes_is_read_back(partitions):
    assert fabric_manager.parsed(fabric_manager.written(partitions)) == tuple(partitions)
