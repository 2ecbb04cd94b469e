"""Simulated GPUs: a stand-in for pynvml, `nvidia-smi`, MPS and sysfs, with their state on disk."""
