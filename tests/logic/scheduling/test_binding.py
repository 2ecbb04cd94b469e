from dra_driver.logic.scheduling import binding


def claim(*conditions, device="d", needs=("up", "warm"), fails=("broken",)):
    result = {"driver": "x", "pool": "p", "device": "d", "shareID": "some"}
    result |= {"bindingConditions": list(needs), "bindingFailureConditions": list(fails)}
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    reported = [{"driver": "x", "pool": "p", "device": device, "conditions": listed}]
    return {"status": {"allocation": {"devices": {"results": [result]}}, "devices": reported}}


def test_all_conditions_must_be_true():
    found = claim(("up", "True"), ("warm", "False"))
    assert binding.pending(found) == ("condition warm of device x/p/d",)
    assert binding.pending(claim(("up", "True"), ("warm", "True"))) == ()


def test_conditions_of_another_device_do_not_count():
    found = claim(("up", "True"), ("warm", "True"), ("broken", "True"), device="e")
    assert len(binding.pending(found)) == 2
    assert binding.failed(found) == ()


def test_a_failure_is_a_condition_that_is_true():
    assert binding.failed(claim(("broken", "True"))) == ("condition broken of device x/p/d",)
    assert binding.failed(claim(("broken", "Unknown"), ("up", "True"))) == ()


def test_devices_without_conditions_are_ready():
    assert binding.pending(claim(needs=(), fails=())) == ()
    assert binding.pending({"status": {}}) == ()
    assert binding.pending({}) == ()
