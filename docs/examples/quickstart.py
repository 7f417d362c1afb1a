"""A custom loss term, a plain torch model, arrays as data: train, compare, plot, reopen.

python docs/examples/quickstart.py
"""

from torch import nn

import fedloom as fl


def confidence_penalty(step: fl.Step):  # a term of the loss: minus the entropy of the predictions
    logs = step.logits.log_softmax(1)
    return 0.1 * (logs.exp() * logs).sum(1).mean()


class Net(nn.Sequential):  # built with torch seeded from the run's seed
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, classes))


images, labels = fl.data.load("fashion-mnist").train.arrays()
mine = fl.method("fedprox", mu=0.1) + fl.Method("penalty", fl.Phase(terms=confidence_penalty))
exp = fl.Experiment(mine, Net, (images, labels), partition="dirichlet(alpha=0.1)", clients=40,
                    per_round=5, rounds=10, seed=1, lr=0.05)  # fmt: skip
run = exp.run("runs/penalty")  # resumable; exp.run() stays in memory
print(run.accuracy, run.history[-1].train_loss, run.predict(images[:5]), run.client(7).accuracy)
base = exp.replace(method="fedavg").run("runs/fedavg")
comparison = fl.compare(run, base)
comparison.plot("runs/comparison.png")
print(comparison, fl.open("runs/penalty").resume(), sep="\n")
