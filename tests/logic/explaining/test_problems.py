"""Errors that stop a pod on every node: with their place, and what to write instead."""

import pytest
from explain_scene import A, C, claim, device_class, explain, gpu, node, pool, request

from dra_driver.logic.explaining import explaining

NAME_ONE = "create it, or name one that does: gpu.example.com, mig.example.com"


class TestWithErrors:
    def test_an_attribute_that_some_devices_lack_is_told_with_the_guarded_expression(self):
        text = f'{A}.numaNode == "x"'
        scene = pool("a", gpu("x"), gpu("y", numaNode=0))
        about = explain("claim/mine", scene, claim("mine", request(text)))
        assert about.verdict == explaining.DOES_NOT_FIT
        assert about.problem.expression == text
        assert about.problem.guarded == f'"numaNode" in {A} && {text}'
        assert about.problem.elsewhere == ()
        assert "device gpu.example.com/a/x" in about.problem.message
        assert (about.problem.line, about.problem.column) == (1, text.index("numaNode") + 1)

    def test_an_attribute_that_no_device_has_is_not_to_be_asked_for_first(self):
        about = explain(
            "claim/mine", pool("a", gpu("x", productName="T4")), claim("mine", request(f"{A}.nope"))
        )
        assert about.problem.guarded == ""
        assert about.problem.message.endswith(
            "no such key: nope. No device of driver gpu.example.com has it"
        )

    def test_what_devices_of_another_driver_have_is_no_help(self):
        nic = pool("b", gpu("x", model="cx7"), driver="nic.example.com")
        scene = [pool("a", gpu("x", productName="T4")), nic, node("a"), node("b"), device_class()]
        about = explain("claim/mine", *scene, claim("mine", request(f"{A}.model")))
        assert about.problem.elsewhere == (f"{A}.productName",)

    @pytest.mark.parametrize(
        ("read", "path"),
        [
            (f"{A}.memory == 1", f"{C}.memory"),
            ('device.attributes["else.example.com"].model == "x"', f"{A}.model"),
            (f'{A}.MODEL == "x"', f"{A}.model"),
            (f'{A}.modle == "x"', f"{A}.model"),
            (f'{A}.root == "x"', 'device.attributes["pci.example.com"].root'),
        ],
    )
    def test_what_devices_have_elsewhere_is_told(self, read, path):
        device = gpu("x", memory="8Gi", model="h100", pci__root="r")
        device["attributes"]["pci.example.com/root"] = device["attributes"].pop("pci/root")
        about = explain("claim/mine", pool("a", device), claim("mine", request(read)))
        assert about.problem.elsewhere == (path,)

    def test_what_no_device_has_is_nowhere(self):
        about = explain(
            "claim/mine", pool("a", gpu("x", model="h")), claim("mine", request(f"{A}.zz"))
        )
        assert about.problem.elsewhere == ()

    def test_a_syntax_error_is_told_with_its_place(self):
        about = explain(
            "claim/mine", pool("a", gpu("x")), claim("mine", request("device.driver ==\n  &&"))
        )
        assert (about.problem.line, about.problem.column) == (2, 3)
        assert not about.problem.guarded

    @pytest.mark.parametrize(
        ("written", "remedy"),
        [
            ("nope", NAME_ONE),
            ("gpu.example.con", "if gpu.example.com was meant, write that; else create it"),
            ("gpus.example.com", "if gpu.example.com was meant, write that; else create it"),
            (
                "mps.example.com",
                "create it, or name one that does: gpu.example.com, mig.example.com",
            ),
        ],
    )
    def test_a_class_that_does_not_exist_is_told_with_those_that_do(self, written, remedy):
        classes = [device_class(name=f"{kind}.example.com") for kind in ("gpu", "mig")]
        about = explain("claim/mine", *classes, claim("mine", request(of_class=written)))
        assert about.problem.message == (
            f'claim default/mine, request "gpu": device class {written} does not exist: {remedy}'
        )
