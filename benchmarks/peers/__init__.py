"""Other libraries on our workloads: a file and a list of pins for each, run in an environment of its own (`make bench-peers`)."""
