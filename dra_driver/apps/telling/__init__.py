"""Who is told how claims and devices are: the API, the kubelet, metrics, probes."""
