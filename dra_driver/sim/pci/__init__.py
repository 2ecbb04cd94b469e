"""A simulated PCI bus: a `/sys` and `/dev/vfio` on disk, and a kernel that does what is written."""
