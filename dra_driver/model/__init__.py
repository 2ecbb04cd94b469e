"""What is: frozen data that Kubernetes and NVIDIA have nouns for, parsed and formatted. No I/O."""
