# %% [markdown]
# # Personal models on long-tailed data
#
# Some classes are rare everywhere, and rarer still at a single client. Four ways to give each
# client a model after the same training: the global model as it is, fine-tuned, and two that
# balance the classes, cRT and FedAFA. The tutorial
# [Personal models on long-tailed data](../tutorials/long-tail.md) does it on the command line.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt

import fedloom as fl
from fedloom.reports.colours import styles

# %% [markdown]
# ## The data
#
# The first class keeps 50 times as many samples as the last, and what is left is split among ten
# clients.

# %%
exp = fl.Experiment(
    "fedavg",
    "mlp(width=64)",
    {"name": "fashion-mnist", "longtail": 50},
    partition="dirichlet-rounded(alpha=0.5, min_size=10)",
    clients=10,
    per_round=5,
    rounds=8,
    epochs=2,
    lr=0.1,
    seed=1,
)

# %% [markdown]
# ## Four endings of one training
#
# Learning rate and batch are those of [our runs of FedAFA's table](../results/fedafa.md). Nothing
# was tuned here.

# %%
endings = {
    "fedavg": "fedavg",
    "finetune": "finetune(lr=0.02, batch=16)",
    "crt": "crt(lr=0.02, batch=16)",
    "fedafa": "fedafa(lr=0.02, batch=16)",
}
runs = {name: exp.replace(method=method).run() for name, method in endings.items()}
scores = {name: run.result.client_scores for name, run in runs.items()}

# %% [markdown]
# The global model is the same in all four. What differs is each client's own:

# %%
len({run.result.weights_sha256 for run in runs.values()})

# %% [markdown]
# ## Two scores, two orders
#
# *Recall* averages over the classes that a client has, so that a rare class counts as much as a
# frequent one. *Weighted* is the accuracy on data like the client's own.

# %%
print(f"{'':10}{'recall':>8}{'worst tenth':>13}{'weighted':>10}")
for name, score in scores.items():
    recall, weighted = score.mean_class_recall, score.label_weighted_accuracy
    print(f"{name:10}{recall.mean:8.3f}{recall.worst_tenth:13.3f}{weighted.mean:10.3f}")

# %% [markdown]
# Fine-tuning is best by the weighted accuracy, the balancing methods by recall. Which score
# matters is a question about your users, not about the methods.

# %% [markdown]
# ## Class by class
#
# The most frequent class is on the left. Fashion-MNIST's classes are not equally hard, so look at
# the differences between methods, not between classes.

# %%
figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
classes = runs["fedavg"].classes
for number, (style, (name, score)) in enumerate(
    zip(styles(list(scores)), scores.items(), strict=True)
):
    places = [position + 0.2 * number for position in range(len(classes))]
    axis.bar(places, score.class_recall, width=0.2, label=name, color=style.light)
axis.set_xticks([position + 0.3 for position in range(len(classes))], classes, rotation=30)
axis.set_ylabel("recall")
axis.set_title("Recall by class, over the clients that have it (one seed)")
figure.legend(loc="outside lower center", ncols=4)
plt.show()

# %% [markdown]
# ## What this shows
#
# Balancing helps the rare classes and costs some of the frequent ones. Whether FedAFA is better
# than cRT cannot be seen from one seed of a small model; the tutorial looks at three.
