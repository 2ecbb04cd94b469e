"""The operating system: waiting, locks between processes, processes, mounts, sysfs, short runs.

What belongs to NVIDIA's driver is in `driver`, files that are kept are in `disk`.
"""
