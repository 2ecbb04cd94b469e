"""A simulated PCI bus: a `/sys` and `/dev/vfio` on disk, and a kernel that does what is written.

`sim_kernel` is the kernel, `changing` what people and boots do, `faults` what goes wrong.
"""
