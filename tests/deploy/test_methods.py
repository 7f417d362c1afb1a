"""Every kind of method on image data of three sites, on a dictionary instead of a network.

`python -m benchmarks.deploy_methods` does the same over Flower.
"""

from pathlib import Path

import pytest
from benchmarks.site_images import METHODS, settings, write_images

from deploy.test_site import Sites
from fedloom.deploy.site.site import Site

PERSONAL = ("ditto", "fedrep", "fedbn", "fedafa")


class ImageSites(Sites):
    """Sites with an archive of images each."""

    def __init__(self, folder: Path) -> None:
        self.files = write_images(folder)
        super().__init__(folder / "sites")

    def restart(self, name: str, path: Path | None = None) -> Site:
        return super().restart(name, path or self.files[name])


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> ImageSites:
    return ImageSites(tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("method", METHODS)
def test_sites_give_the_bits_of_a_simulation(method: str, sites: ImageSites) -> None:
    config = settings(method)
    deployed, simulated = sites.run(config).result, sites.simulate(config).result
    assert deployed.weights_sha256 == simulated.weights_sha256
    assert deployed.global_model == simulated.global_model
    assert (deployed.personal_models is not None) is (method in PERSONAL)
    assert deployed.personal_models == simulated.personal_models
    assert not deployed.rejected
