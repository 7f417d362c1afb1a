"""The published splits are reproduced exactly from the authors' seeds."""

from __future__ import annotations

import numpy as np
import pytest

from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.core.spec import Spec
from fedloom.data import longtail
from fedloom.data.partition import partition
from fedloom.data.partition.dirichlet import rounded_counts
from fedloom.data.statistics import class_counts

ANY_KEY = Key.root(99)


@pytest.mark.parametrize(("tag", "name"), [("a", "dirichlet"), ("b", "dirichlet"), ("h", "iid")])
def test_fedalign_split(golden, tag, name):
    g = golden("fedalign/g_partition_sampling")
    args = {"alpha": float(g[f"{tag}_alpha"])} if name == "dirichlet" else {}
    spec = Spec(name, {**args, "legacy_seed": int(g[f"{tag}_seed"])})
    parts = partition(spec, g[f"{tag}_y"], int(g[f"{tag}_n_clients"]), ANY_KEY)
    np.testing.assert_array_equal([len(rows) for rows in parts], g[f"{tag}_sizes"])
    np.testing.assert_array_equal(np.concatenate(parts), g[f"{tag}_index_concat"])


def test_fedmlb_split(golden):
    g = golden("fedmlb/partition")
    spec = Spec("dirichlet-balanced", {"alpha": float(g["alpha"]), "legacy_seed": 0})
    parts = partition(spec, g["labels"], int(g["n_clients"]), ANY_KEY)
    np.testing.assert_array_equal(class_counts(g["labels"], parts, 8), g["class_counts"])
    np.testing.assert_array_equal(np.stack(parts), g["indices"])


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize(("tag", "alpha"), [("a02", 0.2), ("a05", 0.5)])
def test_fedafa_long_tailed_split(golden, classes, tag, alpha):
    g = golden("fedafa/a2_dirichlet_partition")
    labels = np.repeat(np.arange(classes), 50_000 // classes)
    spec = Spec("dirichlet-rounded", {"alpha": alpha, "legacy_seed": 1234})
    parts = partition(spec, labels, 20, ANY_KEY, longtail=100)
    np.testing.assert_array_equal(
        class_counts(labels, parts, classes), g[f"cifar{classes}_{tag}_counts"]
    )
    np.testing.assert_array_equal([len(rows) for rows in parts], g[f"cifar{classes}_{tag}_nk"])
    kept = int(longtail.class_sizes(50_000 // classes, classes, 100).sum())
    assert kept - sum(map(len, parts)) == g[f"cifar{classes}_{tag}_unassigned"]


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize(("tag", "alpha"), [("a02", 0.2), ("a05", 0.5)])
def test_fedafa_split_by_its_name(golden, classes, tag, alpha):
    """For any key and any order of the samples."""
    labels = np.arange(50_000) % classes
    for key in (ANY_KEY, Key.root(1)):
        parts = partition(Spec("fedafa", {"alpha": alpha}), labels, 20, key, longtail=100)
        counts = class_counts(labels, parts, classes)
        np.testing.assert_array_equal(
            counts, golden("fedafa/a2_dirichlet_partition")[f"cifar{classes}_{tag}_counts"]
        )
    if (classes, alpha) == (10, 0.2):
        assert counts[9].tolist() == [
            8,
            933,
            0,
            0,
            0,
            9,
            6,
            0,
            0,
            0,
        ]  # as printed under figure 3(b)


@pytest.mark.parametrize(
    ("samples", "clients", "factor"), [(50_000, 10, 100), (50_000, 20, 50), (20_000, 20, 100)]
)
def test_fedafa_rejects_other_data_and_clients(samples, clients, factor):
    with pytest.raises(
        UserError,
        match=r"12,406 samples of CIFAR-10 or 10,847 of CIFAR-100 among 20 clients, .* "
        r"'dirichlet-rounded'",
    ):
        partition(Spec("fedafa"), np.arange(samples) % 10, clients, ANY_KEY, longtail=factor)


def test_fedafa_rule_without_randomness(golden):
    g = golden("fedafa/a2_dirichlet_partition")
    np.testing.assert_array_equal(
        rounded_counts(g["rule_class_counts"], g["rule_proportions"]), g["rule_counts"]
    )


@pytest.mark.parametrize(
    ("name", "n_max", "classes"), [("cifar10", 5000, 10), ("cifar100", 500, 100)]
)
@pytest.mark.parametrize("factor", [10, 50, 100])
def test_long_tail_counts(golden, name, n_max, classes, factor):
    g = golden("fedafa/a_longtail_counts")
    counts = longtail.class_sizes(n_max, classes, factor)
    np.testing.assert_array_equal(counts, g[f"{name}_if{factor}"])
    assert counts.sum() == g[f"{name}_if{factor}_total"]


def test_long_tail_subset_is_random_per_class_without_repeats():
    labels = np.arange(50_000) % 10
    rows = longtail.kept_rows(labels, 100, np.random.RandomState(0))
    assert len(rows) == 12_406 == len(np.unique(rows))
    np.testing.assert_array_equal(np.bincount(labels[rows]), longtail.class_sizes(5000, 10, 100))
    other = longtail.kept_rows(labels, 100, np.random.RandomState(1))
    assert set(rows) != set(other)


def test_long_tail_of_unequal_classes_keeps_at_most_the_available_samples():
    labels = np.repeat([0, 1, 2], [100, 5, 40])  # wanted: 100, int(31.6), 10
    rows = longtail.kept_rows(labels, 10, np.random.RandomState(0))
    np.testing.assert_array_equal(np.bincount(labels[rows]), [100, 5, 10])
