"""Every kind of method on image data of three sites, on a dictionary instead of a network.

`python -m benchmarks.deploy_methods` does the same over Flower.
"""

import pytest
from benchmarks.site_images import METHODS, settings, write_images

from deploy.test_site import Sites

PERSONAL = ("ditto", "fedrep", "fedbn", "fedafa")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    folder = tmp_path_factory.mktemp("images")
    write_images(folder)
    return Sites(folder / "sites", data=folder, suffix=".npz")


@pytest.mark.parametrize("method", METHODS)
def test_sites_give_the_bits_of_a_simulation(method: str, sites: Sites) -> None:
    config = settings(method)
    deployed, simulated = sites.run(config).result, sites.simulate(config).result
    assert deployed.weights_sha256 == simulated.weights_sha256
    assert deployed.global_model == simulated.global_model
    assert (deployed.personal_models is not None) is (method in PERSONAL)
    assert deployed.personal_models == simulated.personal_models
    assert not deployed.rejected
