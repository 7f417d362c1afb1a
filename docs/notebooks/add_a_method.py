# %% [markdown]
# # Add a method
#
# A method says what it does differently from FedAvg. Here is a loss term, then the checks that
# find most mistakes, then a comparison. The tutorial
# [Your own method](../tutorials/own-method.md) goes on with memories and server rules.

# %%
from types import SimpleNamespace

import torch

import fedloom as fl

# %% [markdown]
# ## The term
#
# Clients with few classes become overconfident. The confidence penalty of Pereyra et al. (2017)
# subtracts the entropy of the predictions from the loss. A term is a function of a step: one
# mini-batch, with the model's output, its weights and the client.


# %%
def modest(beta=0.1):
    def confidence_penalty(step):
        logs = step.logits.log_softmax(dim=1)
        return beta * (logs.exp() * logs).sum(dim=1).mean()

    return fl.Method("modest", fl.Phase(terms=confidence_penalty))


# %% [markdown]
# ## The experiment
#
# Twenty clients, each with a few classes, five of them per round.

# %%
exp = fl.Experiment(
    "fedavg",
    "mlp(width=64)",
    "fashion-mnist",
    partition="dirichlet(alpha=0.1)",
    clients=20,
    per_round=5,
    rounds=8,
    seed=1,
)
base = exp.run("runs/fedavg")
base

# %% [markdown]
# ## Turned off, it must be FedAvg
#
# Bit for bit: the weights have the same checksum.

# %%
off = exp.replace(method=modest(beta=0)).run()
print(off.result.weights_sha256 == base.result.weights_sha256)

# %% [markdown]
# ## By hand
#
# Two equal logits have the entropy log 2, a certain prediction has none.

# %%
(term,) = modest(beta=1).phases[0].terms
step = SimpleNamespace(logits=torch.tensor([[3.0, 3.0], [80.0, 0.0]]))
term(step).item(), -torch.tensor(2.0).log().item() / 2

# %% [markdown]
# ## Does it do what it is for?
#
# The mean confidence of the trained models on the test images should fall as beta rises.

# %%
images, labels = fl.data.load("fashion-mnist").test.arrays()
runs = {beta: exp.replace(method=modest(beta)).run(f"runs/modest-{beta}") for beta in (0.1, 1.0)}
for beta, run in {0.0: base, **runs}.items():
    with torch.no_grad():
        confidence = run.model(run.normalise(images)).softmax(dim=1).amax(dim=1).mean()
    print(f"beta {beta}: confidence {confidence:.3f}, accuracy {run.accuracy:.3f}")

# %% [markdown]
# ## Compare
#
# With beta = 1, on the same clients, rounds and batches. One seed and eight rounds are a
# test of the code, not of the method: see
# [Compare methods fairly](../guides/fair-comparison.md).

# %%
comparison = fl.compare(base, runs[1.0])
print(comparison)
comparison.plot()

# %% [markdown]
# ## Combine it
#
# It adds up with the terms of other methods, and with any server rule.

# %%
both = exp.replace(method=modest() + fl.method("fedavgm"), rounds=2).run()
both
