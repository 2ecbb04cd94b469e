"""NVML, and `nvidia-smi` where NVML has no answer: what the GPUs are asked, and told."""
