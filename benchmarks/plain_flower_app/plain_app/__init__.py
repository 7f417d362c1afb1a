"""FedAvg with Flower alone."""
