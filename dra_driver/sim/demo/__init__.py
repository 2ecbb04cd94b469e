"""`dra-driver demo`: pods with GPUs in the embedded cluster, and what became of them."""
