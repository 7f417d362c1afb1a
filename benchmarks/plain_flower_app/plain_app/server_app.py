"""The ServerApp: Flower's FedAvg with all three nodes in every round."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from plain_app.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds; every round ends with an evaluation at the nodes."""
    settings = context.run_config
    strategy = FedAvg(
        fraction_train=1.0,
        fraction_evaluate=1.0,
        min_train_nodes=3,
        min_evaluate_nodes=3,
        min_available_nodes=3,
    )

    def note_round(server_round: int, arrays: ArrayRecord) -> None:
        if server_round > 0:
            with Path(str(settings["rounds-file"])).open("a") as file:
                file.write(f"{server_round}\n")

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": float(settings["learning-rate"])}),
        num_rounds=int(settings["num-server-rounds"]),
        evaluate_fn=note_round,
    )
