"""The ClientApp: trains and evaluates the model on the node's own data."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from plain_app.task import Net, load_data
from plain_app.task import test as test_fn
from plain_app.task import train as train_fn

torch.set_num_threads(1)
app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the model that was received."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    batch_size = int(context.run_config["batch-size"])
    loader = load_data(str(context.node_config["data"]), "train", batch_size)
    epochs = int(context.run_config["local-epochs"])
    loss = train_fn(net, loader, epochs, float(msg.content["config"]["lr"]))
    metrics = {"train_loss": loss, "num-examples": len(loader.dataset)}
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(content=RecordDict(content), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model that was received."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    loader = load_data(str(context.node_config["data"]), "test", 100)
    loss, accuracy = test_fn(net, loader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)}
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
