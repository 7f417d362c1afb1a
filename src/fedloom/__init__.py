"""fedloom: federated learning on heterogeneous data.

    import fedloom as fl

    run = fl.Experiment(method="fedprox", data="fashion-mnist", rounds=10).run("runs/first")
    run.accuracy, run.history[-1].train_loss, run.model, run.client(7).model
    fl.compare(run, fl.open("runs/second")).plot()

Everything a user needs is here; the modules that define these names may move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedloom.core.lazy import lazy_exports

__version__ = "0.1.0"

_EXPORTS = {
    # run experiments and look at what they did
    "Experiment": "fedloom.api.experiment",
    "Run": "fedloom.api.run",
    "open": "fedloom.api.open_run:open_run",
    "compare": "fedloom.api.compare",
    "sweep": "fedloom.api.sweep",
    "tune": "fedloom.api.sweep",
    "method": "fedloom.methods.registry",
    "Callback": "fedloom.experiment.callbacks",
    "Progress": "fedloom.experiment.progress",
    # what a run reports
    "RoundRecord": "fedloom.metrics.records",
    "RunResult": "fedloom.metrics.records",
    "Comparison": "fedloom.reports.comparison",
    # write a method
    "Method": "fedloom.core.method",
    "Phase": "fedloom.core.method",
    "Stage": "fedloom.core.server",
    "Exchange": "fedloom.core.method",
    "Extra": "fedloom.core.method",
    "Step": "fedloom.core.step",
    "Job": "fedloom.core.job",
    "Cohort": "fedloom.core.server",
    "Param": "fedloom.core.spec",
    "Key": "fedloom.core.key",
    # write a model or bring data
    "Chain": "fedloom.core.chain",
    "cut": "fedloom.core.chain_from_module",
    # errors
    "UserError": "fedloom.core.errors",
    "RunError": "fedloom.core.errors",
    # modules
    "data": "fedloom.data:",
    "models": "fedloom.models:",
    "methods": "fedloom.methods:",
    "stages": "fedloom.stages:",
    "losses": "fedloom.losses:",
    "presets": "fedloom.settings.presets:",
    "trackers": "fedloom.trackers:",
}
__all__ = ["__version__", *_EXPORTS]
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)

if TYPE_CHECKING:
    from fedloom import data as data
    from fedloom import losses as losses
    from fedloom import methods as methods
    from fedloom import models as models
    from fedloom import stages as stages
    from fedloom import trackers as trackers
    from fedloom.api.compare import compare as compare
    from fedloom.api.experiment import Experiment as Experiment
    from fedloom.api.open_run import open_run as open  # noqa: F401 (ruff: open_run as open_run)
    from fedloom.api.run import Run as Run
    from fedloom.api.sweep import sweep as sweep
    from fedloom.api.sweep import tune as tune
    from fedloom.core.chain import Chain as Chain
    from fedloom.core.chain_from_module import cut as cut
    from fedloom.core.errors import RunError as RunError
    from fedloom.core.errors import UserError as UserError
    from fedloom.core.job import Job as Job
    from fedloom.core.key import Key as Key
    from fedloom.core.method import Exchange as Exchange
    from fedloom.core.method import Extra as Extra
    from fedloom.core.method import Method as Method
    from fedloom.core.method import Phase as Phase
    from fedloom.core.server import Cohort as Cohort
    from fedloom.core.server import Stage as Stage
    from fedloom.core.spec import Param as Param
    from fedloom.core.step import Step as Step
    from fedloom.experiment.callbacks import Callback as Callback
    from fedloom.experiment.progress import Progress as Progress
    from fedloom.methods.registry import method as method
    from fedloom.metrics.records import RoundRecord as RoundRecord
    from fedloom.metrics.records import RunResult as RunResult
    from fedloom.reports.comparison import Comparison as Comparison
    from fedloom.settings import presets as presets
