"""Trackers: callbacks that write a run to TensorBoard, MLflow or Weights & Biases.

Each is an extra (`pip install "fedloom[mlflow]"`) and is imported when it is first used. What is
written is the same for all: metrics of every round, the settings, and where the tracker keeps files
also those of the run and its final weights. Nothing leaves this machine unless the user has
configured the tracker's own library to send it.

    exp.run("runs/first", callbacks=[fl.trackers.TensorBoard()])
"""

from __future__ import annotations

from fedloom.core.lazy import lazy_exports

_EXPORTS = {
    "TensorBoard": "fedloom.trackers.tensorboard",
    "MLflow": "fedloom.trackers.mlflow",
    "WandB": "fedloom.trackers.wandb",
    "Tracker": "fedloom.trackers.tracker",
    "build": "fedloom.trackers.registry",
    "names": "fedloom.trackers.registry",
}
__all__ = list(_EXPORTS)
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
