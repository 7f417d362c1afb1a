"""Flower: its FedAvg in its simulation with Ray, two CPUs, one per client.

Data and model are kept in Ray's workers.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.clock import Clock, contest
from benchmarks.peers.work import WORK, cached, model, train


class StrictFedAvg(FedAvg):
    """FedAvg that raises if a client fails, instead of continuing without it."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if failed := [reply.error.reason for reply in replies if reply.has_error()]:
            raise RuntimeError(failed[0])
        return super().aggregate_train(server_round, replies)


def client(name: str) -> ClientApp:
    app, work = ClientApp(), WORK[name]

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        net, x, y = cached(name)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        number = context.node_config["partition-id"]
        train(net, work, x[number], y[number])
        reply = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": work.samples}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app


def server(name: str, clock: Clock) -> ServerApp:
    app, work = ServerApp(), WORK[name]

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        fraction = work.per_round / work.clients
        strategy = StrictFedAvg(
            fraction, 0.0, min_train_nodes=work.per_round, min_available_nodes=work.clients
        )
        weights = ArrayRecord(model(name).state_dict())
        # Flower evaluates before the first round and after each.
        strategy.start(grid, weights, num_rounds=10**6, evaluate_fn=lambda *_: clock.tick())

    return app


def run(name: str, way: str, clock: Clock) -> None:
    resources = {"init_args": {"num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server(name, clock), client(name), WORK[name].clients, backend_config=resources)


if __name__ == "__main__":
    contest(run)
