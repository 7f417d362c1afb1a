"""A site's data: encoded as one reader with all files would, and described without their rows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from deploy.three_sites import HOSPITALS, agreed, hospitals, patients, site_of, table_config
from fedloom.core.errors import UserError
from fedloom.core.key import Key
from fedloom.data.partition import partition
from fedloom.data.sources import columns, read, read_unscaled
from fedloom.data.sources.column_plan import Scale
from fedloom.deploy.moments import merged, of_bytes, of_numbers
from fedloom.deploy.report import SiteReport
from fedloom.deploy.simulated import simulated
from fedloom.deploy.site.data import SiteData, Source, read_site
from fedloom.deploy.site.describe import Shared, client_checksum, report
from fedloom.deploy.site.encode import check_agreement, encoded
from fedloom.deploy.terms import Agreement


def with_constants_of_one_place(agreement: Agreement, sites: list[SiteData]) -> Agreement:
    """The agreement with the medians, means and deviations that one reader of all rows computes."""
    plans = []
    for plan in agreement.columns:
        rows = np.concatenate([site.frame[plan.name][site.train] for site in sites])
        if plan.levels is None:
            median = float(np.nanmedian(rows))
            filled = np.where(np.isnan(rows), median, rows)
            plan = replace(plan, scale=Scale(median, float(filled.mean()), float(filled.std())))
        plans.append(plan)
    return replace(agreement, columns=tuple(plans))


def test_tensors_are_those_of_one_reader_with_the_files_of_all_sites() -> None:
    """Four CSV files, as four sites and as one folder, with the same rows held out."""
    sites = hospitals()
    agreement = with_constants_of_one_place(agreed(sites), sites)
    ours = simulated(agreement, sites)
    together = read_unscaled(HOSPITALS)
    assert together.users is not None and isinstance(together.x, dict)
    held_out = np.zeros(len(together.y), bool)
    for site in sites:
        held_out[together.users == site.site] = site.samples.test
    train, test = (
        {name: column[rows] for name, column in together.x.items()}
        for rows in (~held_out, held_out)
    )
    expected = columns.feature_matrices(columns.encode(train, test, (), "all"))
    for split, rows, x in (
        (ours.train, ~held_out, expected[0]),
        (ours.test, held_out, expected[1]),
    ):
        assert split.users is not None
        users = np.array([name.partition("/")[0] for name in ours.users])[split.users.numpy()]
        for site in sites:
            theirs = together.users[rows] == site.site
            assert torch.equal(split.x[users == site.site], torch.from_numpy(x[theirs]))
            assert np.array_equal(split.labels[users == site.site], together.y[rows][theirs])


def test_federated_constants_differ_from_those_of_one_place_in_the_fill_only() -> None:
    sites = hospitals()
    ours = simulated(agreed(sites), sites)
    theirs = simulated(with_constants_of_one_place(agreed(sites), sites), sites)
    assert ours.shape == theirs.shape
    present = ours.train.x[:, 2] == 0  # the input that marks a missing pressure
    assert 0 < int(present.sum()) < len(present)
    assert torch.allclose(ours.train.x[present], theirs.train.x[present], atol=0.01)
    assert not torch.allclose(ours.train.x[~present], theirs.train.x[~present], atol=0.01)


def test_the_test_split_is_that_of_the_sites_own_reader() -> None:
    for site in hospitals():
        alone = read(HOSPITALS / f"{site.site}.csv")
        assert (len(alone.train), len(alone.test)) == (site.train.sum(), site.samples.test.sum())
        assert len(encoded(site, agreed(hospitals())).test) == len(alone.test)


def test_the_partition_by_user_gives_every_client_the_rows_of_its_site() -> None:
    sites = hospitals()
    agreement, whole = agreed(sites), simulated(agreed(sites), sites)
    assert whole.train.users is not None
    users = whole.train.users.numpy()
    spec = table_config().data.partition
    rows = partition(spec, whole.train.labels, 0, Key.root(0), users, 1.0)
    for site, own in zip(sites, rows, strict=True):
        assert torch.equal(whole.train.x[own], encoded(site, agreement).train.x)


def test_parquet_and_csv_give_the_same_tensors(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = patients(1)
    csv = site_of(tmp_path, "a", table)
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    same = read_site("a", Source(tmp_path / "a.parquet"))
    other = site_of(tmp_path, "b", patients(2))
    first, second = (encoded(site, agreed([site, other])) for site in (csv, same))
    assert torch.equal(first.train.x, second.train.x) and torch.equal(first.test.y, second.test.y)


def test_tables_in_archives_are_scaled_by_all_sites(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(5, 3, (60, 4)).astype(np.float32), np.arange(60) % 3
    for name, rows in {"a": slice(0, 20), "b": slice(20, 60)}.items():
        np.savez(tmp_path / f"{name}.npz", x=x[rows], y=y[rows])
    sites = [read_site(name, Source(tmp_path / f"{name}.npz")) for name in "ab"]
    train = np.concatenate([np.stack([*s.frame.values()], 1)[s.train] for s in sites])
    whole = simulated(agreed(sites), sites)
    expected = ((train - train.mean(0)) / train.std(0)).astype(np.float32)
    assert np.allclose(whole.train.x.numpy(), expected, atol=1e-6)
    assert whole.classes == ("0", "1", "2") and whole.users == ("a/a", "b/b")


def images(
    folder: Path, name: str, seed: int, classes: dict[str, int], channels: int = 1
) -> SiteData:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(seed)
    for label, count in classes.items():
        inner = folder / name / label
        inner.mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (6, 6, 3)[: 2 if channels == 1 else 3], dtype=np.uint8)
            image.fromarray(pixels).save(inner / f"{i}.png")
    return read_site(name, Source(folder / name))


def test_folders_of_images_agree_on_classes_and_constants(tmp_path: Path) -> None:
    sites = [images(tmp_path, "a", 1, {"cat": 10}), images(tmp_path, "b", 2, {"ant": 5, "dog": 6})]
    agreement = agreed(sites)
    whole = simulated(agreement, sites)
    assert agreement.classes == ("ant", "cat", "dog") and agreement.dtype == "uint8"
    pixels = whole.train.x.double().numpy() / 255
    assert agreement.mean == pytest.approx([pixels.mean()], rel=1e-14)
    assert agreement.std == pytest.approx([pixels.std()], rel=1e-14)
    assert set(whole.train.y[: len(encoded(sites[0], agreement).train)].tolist()) == {1}
    given = table_config(data={"partition": "user", "clients": 0, "mean": [0.4], "std": [0.2]})
    assert agreed(sites, given, statistics=False).mean == (0.4,)
    with pytest.raises(
        UserError, match="site 'a': it does not share the mean and std of its chann"
    ):
        agreed(sites, statistics=False)


def test_images_of_another_shape_are_refused(tmp_path: Path) -> None:
    grey, colour = images(tmp_path, "a", 1, {"x": 6, "y": 6}), None
    colour = images(tmp_path, "b", 2, {"x": 6, "y": 6}, channels=3)
    message = r"site 'b': the shape of its samples is \(3, 6, 6\), and \(1, 6, 6\) at site 'a'"
    with pytest.raises(UserError, match=message):
        agreed([grey, colour])


def test_users_of_an_archive_are_clients(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 5, 5), dtype=np.uint8)
    users = np.array(["w2", "w10", "w1", "w2"] * 10)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(40) % 2, users=users)
    site = read_site("a", Source(tmp_path / "a.npz"))
    assert site.clients == ("w1", "w10", "w2")
    sizes = {c.name: c.train + c.test for c in report(site).clients}
    assert sizes == {"w1": 10, "w10": 10, "w2": 20}


def test_users_with_test_samples_only_are_no_clients(tmp_path: Path) -> None:
    x = np.zeros((6, 5, 5), np.uint8)
    train = {"x_train": x, "y_train": np.arange(6) % 2, "users_train": np.array(["a"] * 6)}
    test = {"x_test": x, "y_test": np.arange(6) % 2, "users_test": np.array(["a", "b"] * 3)}
    np.savez(tmp_path / "s.npz", **train, **test)
    site = read_site("s", Source(tmp_path / "s.npz"))
    other = replace(site, site="t")
    assert site.clients == ("a",)
    assert len(encoded(site, agreed([site, other])).test) == 3


def test_a_category_that_only_test_rows_have_is_none_of_them(tmp_path: Path) -> None:
    a = site_of(tmp_path, "a", patients(1))
    held_out = int(np.flatnonzero(a.samples.test)[0])
    smoker = list(patients(1)["smoker"])
    smoker[held_out] = "rarely"
    a = site_of(tmp_path, "a", patients(1) | {"smoker": smoker})
    assert a.samples.test[held_out]
    agreement = agreed([a, site_of(tmp_path, "b", patients(2))])
    assert agreement.columns[1].levels == ("no", "yes")
    position = int(np.flatnonzero(np.flatnonzero(a.samples.test) == held_out)[0])
    assert encoded(a, agreement).test.x[position, 1:].tolist() == [0.0, 0.0]


def test_what_was_not_agreed_on_is_refused_at_the_site(tmp_path: Path) -> None:
    a, b = site_of(tmp_path, "a", patients(1)), site_of(tmp_path, "b", patients(2))
    agreement = agreed([a, b])
    fewer = replace(
        agreement,
        columns=(replace(agreement.columns[0]), replace(agreement.columns[1], levels=("no",))),
    )
    with pytest.raises(UserError, match="site 'a': column 'smoker' has the category 'yes', and"):
        encoded(a, fewer)
    with pytest.raises(UserError, match="site 'a': it has the class 'no', and the classes agreed"):
        encoded(a, replace(agreement, classes=("yes", "maybe")))
    with pytest.raises(
        UserError, match=r"float32 of shape \(3,\), and float32 of shape \(7,\) were"
    ):
        encoded(a, replace(agreement, shape=(7,)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": [1, *list(patients(1)["age"])[1:]]}, "their checksum is .* now, and was"),
        ({"ill": ["yes", *list(patients(1)["ill"])[1:]]}, "have changed since the agreement"),
    ],
)
def test_data_that_changed_since_the_agreement_are_refused(
    change: dict, message: str, tmp_path: Path
) -> None:
    a, b = site_of(tmp_path, "a", patients(1)), site_of(tmp_path, "b", patients(2))
    agreement = agreed([a, b])
    check_agreement(a, agreement)
    now = site_of(tmp_path, "a", patients(1) | change)
    with pytest.raises(UserError, match=f"site 'a': the data of client 'a' .*{message}"):
        check_agreement(now, agreement)


def test_more_rows_and_other_clients_are_named(tmp_path: Path) -> None:
    a, b = site_of(tmp_path, "a", patients(1)), site_of(tmp_path, "b", patients(2))
    agreement = agreed([a, b])
    more = site_of(tmp_path, "a", patients(1, 25))
    with pytest.raises(UserError, match="it has 21 training samples now, and had 16"):
        check_agreement(more, agreement)
    other = replace(a, users=np.array(["x"] * 20), clients=("x",))
    with pytest.raises(UserError, match="its clients are x, and a were agreed on"):
        check_agreement(other, agreement)


def test_checksums_see_every_cell_and_every_border(tmp_path: Path) -> None:
    base = patients(1, note=["ab", "c"] * 10, more=["d", "e"] * 10)
    moved = patients(1, note=["a", "c"] * 10, more=["bd", "e"] * 10)
    first, second = (site_of(tmp_path, "a", table) for table in (base, moved))
    assert client_checksum(first, "a") != client_checksum(second, "a")
    assert client_checksum(first, "a") == client_checksum(site_of(tmp_path, "a", base), "a")


def test_a_column_of_names_is_not_sent_as_categories(tmp_path: Path) -> None:
    names = [f"person {i}" for i in range(20)]
    site = site_of(tmp_path, "a", patients(1, name=names))
    with pytest.raises(UserError, match="site 'a', column 'name': found 16 different values in 16"):
        report(site)
    assert report(site, Shared(statistics=False)).columns[2].categories is None


def test_sums_of_a_few_values_are_not_sent(tmp_path: Path) -> None:
    """From a count, a sum and a sum of squares of two values one can compute both."""
    almost_empty = ["7", "8", "9", *[""] * 17]
    site = site_of(tmp_path, "a", patients(1, rare=almost_empty))
    with pytest.raises(UserError, match=r"column 'rare': found \d values in the training"):
        report(site)
    assert report(site, Shared(statistics=False)).columns[2].moments is None
    np.savez(tmp_path / "b.npz", x=np.zeros((6, 4, 4), np.uint8), y=np.arange(6) % 2)
    few = read_site("b", Source(tmp_path / "b.npz", "auto", {"test_share": 0.5}))
    with pytest.raises(UserError, match="site 'b': found 3 values in the training rows"):
        report(few)


def test_no_row_is_part_of_a_report() -> None:
    """No number of any row is in it, as text or as bytes; categories and classes are names."""
    rows = 0
    for site in hospitals():
        said = json.dumps(report(site, Shared(class_counts=True)).to_json())
        del site.frame["smoker"]
        for column in site.frame.values():
            for value in column[~np.isnan(column)].tolist():
                rows += 1
                assert f" {value}," not in said and f" {value}}}" not in said
        facts = SiteReport.from_json(site.site, json.loads(said))
        assert len(said) < 3000 and len(facts.columns) == 4
    assert rows > 500


@pytest.mark.parametrize("parts", [[1000], [1, 999], [300, 300, 400]])
def test_moments_of_parts_are_those_of_the_whole(parts: list[int]) -> None:
    values = 1.7e9 + np.random.default_rng(0).normal(size=1000)  # sums of squares would be useless
    cuts = np.split(values, np.cumsum(parts)[:-1])
    moments = merged([of_numbers(cut) for cut in cuts])
    assert moments.mean == pytest.approx(values.mean(), rel=1e-15)
    assert moments.std == pytest.approx(values.std(), rel=1e-6)


def test_moments_of_bytes_are_exact_and_constants_have_no_spread() -> None:
    values = np.random.default_rng(0).integers(0, 256, 10_000).astype(np.uint8)
    moments = of_bytes(values)
    assert moments.total == int(values.sum()) and moments.count == 10_000
    assert moments.std == pytest.approx(values.std(), rel=1e-14)
    same = merged([of_numbers(np.full(n, 0.1)) for n in (3, 7, 11)])
    assert same.std == 1.0 and same.mean == pytest.approx(0.1)
    assert merged([of_numbers(np.array([np.nan]))]).std == 1.0


def test_float_samples_are_described_channel_by_channel(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(3, 2, (30, 2, 16)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(30) % 2)
    site = read_site("a", Source(tmp_path / "a.npz", "auto", {"kind": "signal"}))
    channels = report(site).channels
    assert channels is not None and len(channels) == 2
    assert isinstance(site.samples.x, np.ndarray)
    mean = site.samples.x[site.train, 1].mean(dtype=np.float64)
    assert channels[1].mean == pytest.approx(mean, rel=1e-12)


def test_a_reader_that_standardises_by_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedloom.data import sources

    table = read(HOSPITALS)
    monkeypatch.setattr(sources.leaf, "read", lambda path: table)
    with pytest.raises(UserError, match="the reader of 'leaf' standardises tables by itself"):
        read_unscaled(HOSPITALS, "leaf")
