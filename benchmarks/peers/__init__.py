"""Other libraries on our workloads, each with its pinned versions (`make bench-peers`)."""
