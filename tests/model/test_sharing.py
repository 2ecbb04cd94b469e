import pytest

from dra_driver.model import sharing


def test_each_type_of_device_has_a_kind_of_config():
    assert {str(kind): str(kind.device_type) for kind in sharing.Kind} == {
        "GpuConfig": "gpu",
        "MigDeviceConfig": "mig",
        "VfioDeviceConfig": "vfio",
    }
    for kind in sharing.Kind:
        assert sharing.Kind.of(kind.device_type) is kind


def test_intervals_are_numbers_to_nvidia_smi():
    assert {str(interval): interval.number for interval in sharing.Interval} == {
        "Default": 0,
        "Short": 1,
        "Medium": 2,
        "Long": 3,
    }


@pytest.mark.parametrize(
    ("promised", "clients", "each"), [(10240, 1, 10240), (10240, 3, 3413), (48, 48, 1), (95, 48, 1)]
)
def test_clients_get_even_parts_in_whole_mebibytes(promised, clients, each):
    mps = sharing.Mps(max_clients=clients)
    assert mps.client_limit(promised * 2**20) == each * 2**20
