"""Small data for the sites of a deployment, and settings to go with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedloom.deploy.agreement import agree
from fedloom.deploy.given import NOTHING_GIVEN, Given
from fedloom.deploy.report import SiteReport
from fedloom.deploy.site.data import SiteData, Source, read_site
from fedloom.deploy.site.describe import Shared, report
from fedloom.deploy.terms import Agreement
from fedloom.settings.config import Config, load

HOSPITALS = Path(__file__).parents[2] / "docs" / "examples" / "hospitals"
NAMES = ("north", "south", "east", "west")


def hospitals() -> list[SiteData]:
    """Four sites with one CSV file each."""
    return [read_site(name, Source(HOSPITALS / f"{name}.csv")) for name in NAMES]


def table_config(**more: Any) -> Config:
    data = {"partition": "user", "clients": 0}
    sample = {"name": "uniform", "per_round": 2}
    raw = {"rounds": 2, "model": "mlp(width=8)", "data": data, "sample": sample, "train": {}}
    raw["train"] = {"lr": 0.1, "batch": 16}
    return load({**raw, **more})


def write_table(path: Path, columns: dict[str, Sequence[object]]) -> Path:
    rows = [
        ",".join(columns),
        *(",".join(map(str, r)) for r in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def site_of(
    folder: Path, name: str, columns: dict[str, Sequence[object]], **options: Any
) -> SiteData:
    """A site with one CSV file."""
    return read_site(name, Source(write_table(folder / f"{name}.csv", columns), "auto", options))


def patients(seed: int, rows: int = 20, **more: Sequence[object]) -> dict[str, Sequence[object]]:
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(20, 90, rows).tolist(),
        "smoker": [["no", "yes"][i % 2] for i in range(rows)],
        **more,
        "ill": [["no", "yes"][i % 2] for i in rng.permutation(rows)],
    }


def reports(sites: Sequence[SiteData], **shared: bool) -> list[SiteReport]:
    """The reports of sites as the server reads them from the wire."""
    said = [report(site, Shared(**shared)).to_json() for site in sites]
    return [SiteReport.from_json(site.site, facts) for site, facts in zip(sites, said, strict=True)]


def agreed(
    sites: Sequence[SiteData],
    config: Config | None = None,
    given: Given = NOTHING_GIVEN,
    **shared: bool,
) -> Agreement:
    """The agreement as a site reads it from the wire."""
    agreement = agree(config or table_config(), reports(sites, **shared), "first-run", given)
    again = Agreement.from_json(agreement.to_json())
    assert again == agreement and again.digest == agreement.digest
    return again
