# %% [markdown]
# # fedloom in five minutes
#
# A custom loss term, a plain torch model, arrays as data: train, compare, plot, reopen.
# The same session as a script is [quickstart.py](../examples/quickstart.py).

# %%
from torch import nn

import fedloom as fl

# %% [markdown]
# Data can be arrays. Here they come from the packaged part of Fashion-MNIST.

# %%
images, labels = fl.data.load("fashion-mnist").train.arrays()

# %% [markdown]
# A method is what differs from FedAvg. This one adds the proximal term of FedProx and a confidence
# penalty of our own.


# %%
def confidence_penalty(step: fl.Step):  # a term of the loss: minus the entropy of the predictions
    logs = step.logits.log_softmax(1)
    return 0.1 * (logs.exp() * logs).sum(1).mean()


mine = fl.method("fedprox", mu=0.1) + fl.Method("penalty", fl.Phase(terms=confidence_penalty))

# %% [markdown]
# Forty clients, each with a few classes (`alpha=0.1` is a strong label skew), five of them per
# round.


# %%
class Net(nn.Sequential):  # built with torch seeded from the run's seed
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, classes))


exp = fl.Experiment(
    mine,
    Net,
    (images, labels),
    partition="dirichlet(alpha=0.1)",
    clients=40,
    per_round=5,
    rounds=10,
    seed=1,
    lr=0.05,
)
run = exp.run("runs/penalty")  # resumable; exp.run() stays in memory
run

# %%
run.accuracy, run.history[-1].train_loss, run.predict(images[:5]), run.client(7).accuracy

# %% [markdown]
# FedAvg on the same clients, rounds and batches.

# %%
base = exp.replace(method="fedavg").run("runs/fedavg")
comparison = fl.compare(run, base)
print(comparison)
comparison.plot()

# %% [markdown]
# A run can be reopened, and resumed if it was interrupted.

# %%
fl.open("runs/penalty").resume()
