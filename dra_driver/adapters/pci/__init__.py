"""PCI functions and the kernel's drivers for them, as sysfs has them.

Which function is bound to which driver, and when, is decided in `apps.effects`.
"""
