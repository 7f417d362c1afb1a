"""fedloom: federated learning on heterogeneous data, every method proved, one seed one result."""

__version__ = "0.1.0"
