"""`fedloom deploy init`: what is in a deployment, who may read it, and what is not in the app."""

import os
import ssl
import stat
import tomllib
from pathlib import Path

import pytest

from fedloom.core.errors import UserError
from fedloom.deploy import provision as provisioning
from fedloom.deploy.app_files import read_settings
from fedloom.deploy.layout import Address, Kit, ServerFolder, check_private
from fedloom.deploy.provision import for_sites, provision
from fedloom.settings.config import Config, load

pytest.importorskip("cryptography")

SITES = ("north", "south")


def settings(**changes: object) -> Config:
    return for_sites(load({"method": "fedprox(mu=0.1)", "rounds": 3, **changes}))[0]


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    folder = tmp_path / "hospitals"
    provision(folder, settings(), SITES, Address("fl.example.org", 9092))
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.posix
def test_keys_and_folders_are_for_their_owner_only(deployment: Path) -> None:
    before = os.umask(0)
    try:
        provision(deployment.parent / "open", settings(), SITES, Address("127.0.0.1", 1))
    finally:
        os.umask(before)
    for folder in (deployment, deployment.parent / "open"):
        folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        assert {mode(path) for path in folders} == {0o700}
        keys = list(folder.rglob("*.key"))
        assert len(keys) == 4 and {mode(key) for key in keys} == {0o600}


def test_a_kit_holds_its_own_key_and_no_other(deployment: Path) -> None:
    kit = Kit.find(deployment / "kits" / "north")
    names = {path.name for path in kit.path.iterdir()}
    assert names == {"site.toml", "ca.crt", "node.key", "README.md"}
    assert (kit.name, str(kit.server)) == ("north", "fl.example.org:9092")
    assert "fedloom deploy node . --data PATH" in (kit.path / "README.md").read_text()
    others = Kit.find(deployment / "kits" / "south")
    assert kit.key.read_bytes() != others.key.read_bytes()
    assert kit.ca.read_bytes() == (deployment / "server" / "ca.crt").read_bytes()


def test_nothing_secret_is_in_the_app_or_in_the_text_files(deployment: Path) -> None:
    secrets = [line for key in deployment.rglob("*.key") for line in key.read_text().splitlines()]
    secrets = [line for line in secrets if "-----" not in line]
    app = deployment / "server" / "app"
    assert [path.name for path in app.rglob("*")] == ["pyproject.toml"]
    for path in (*app.rglob("*"), *deployment.rglob("*.toml"), *deployment.rglob("*.md")):
        text = path.read_text()
        assert not any(line in text for line in secrets), path
        assert "PRIVATE" not in text


def test_the_public_key_at_the_server_is_that_of_the_kit(deployment: Path) -> None:
    from cryptography.hazmat.primitives import serialization as s

    server = ServerFolder.find(deployment)
    for site in SITES:
        private = s.load_ssh_private_key(Kit(deployment / "kits" / site).key.read_bytes(), None)
        line = private.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
        assert server.public_key(site).read_bytes() == line + f" {site}\n".encode()
        assert line.startswith(b"ecdsa-sha2-nistp384 ")


def test_the_certificate_is_for_the_servers_names_and_signed_by_the_authority(
    deployment: Path,
) -> None:
    from cryptography import x509

    server = ServerFolder.find(deployment)
    certificate = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(server.ca.read_bytes())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)  # they belong together


def test_the_app_holds_all_settings_and_gives_them_back(deployment: Path) -> None:
    config = settings(
        train={"lr": 0.3, "clip": 2.0},
        data={"mean": [0.5], "std": [0.25], "augment": ["flip"]},
        sample="all",
    )
    folder = deployment.parent / "other"
    provision(folder, config, SITES, Address("127.0.0.1", 9092))
    text = (folder / "server" / "app" / "pyproject.toml").read_text()
    app = tomllib.loads(text)["tool"]["flwr"]["app"]
    assert app["components"] == {
        "serverapp": "fedloom.deploy.server_app:app",
        "clientapp": "fedloom.deploy.client_app:app",
    }
    assert tomllib.loads(text)["project"]["dependencies"] == []
    assert read_settings(flat(app["config"])) == config.model_copy(
        update={"data": config.data.model_copy(update={"name": "other"})}
    )


def flat(table: dict, path: str = "") -> dict:
    """As Flower hands the settings to an app."""
    result = {}
    for key, value in table.items():
        if isinstance(value, dict):
            result |= flat(value, f"{path}{key}.")
        else:
            assert isinstance(value, (str, int, float, bool)), key
            result[f"{path}{key}"] = value
    return result


def test_settings_of_a_simulation_become_those_of_sites() -> None:
    config, notes = for_sites(load({"data": {"clients": 20, "partition": "iid"}}))
    assert (config.data.partition.name, config.data.clients) == ("user", 0)
    assert notes[:2] == [
        "data.partition is set to 'user': sites hold the data",
        "data.clients is set to 0: sites hold the data",
    ]
    assert for_sites(config) == (config, [])


def test_an_existing_folder_is_left_alone(deployment: Path) -> None:
    key = (deployment / "ca.key").read_bytes()
    with pytest.raises(UserError, match="exists already; choose another folder"):
        provision(deployment, settings(), SITES, Address("127.0.0.1", 9092))
    assert (deployment / "ca.key").read_bytes() == key


def test_a_failure_leaves_no_half_of_a_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(provisioning, "_write_kit", fail)
    with pytest.raises(OSError, match="No space left"):
        provision(tmp_path / "new", settings(), SITES, Address("127.0.0.1", 9092))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("sites", "why"),
    [
        ((), "names no site"),
        (("a", "b", "A"), "site 'a' is named twice"),
        (("north", "../x"), "site '../x' cannot be the name of a folder"),
        (("1st",), "begin with a letter"),
        (("x" * 41,), "at most 40 characters"),
    ],
)
def test_names_of_sites_are_checked(tmp_path: Path, sites: tuple[str, ...], why: str) -> None:
    with pytest.raises(UserError, match=why):
        provision(tmp_path / "new", settings(), sites, Address("127.0.0.1", 9092))
    assert not (tmp_path / "new").exists()


def test_code_of_the_user_is_refused(tmp_path: Path) -> None:
    config = settings(model="my_model.py:build")
    with pytest.raises(UserError, match=r"my_model\.py:build', which sites do not have"):
        provision(tmp_path / "new", config, SITES, Address("127.0.0.1", 9092))


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":1", "host:0", "host:65536", "a:b:1", "h:x"]
)
def test_addresses_are_checked(text: str) -> None:
    with pytest.raises(UserError, match="is not of the form HOST:PORT"):
        Address.parse(text)


def test_an_ipv6_address_keeps_its_brackets() -> None:
    assert str(Address.parse("[fd00::1]:9092")) == "[fd00::1]:9092"
    assert Address.parse("[::1]:9092").is_loopback


@pytest.mark.posix
def test_a_key_that_others_can_read_is_refused(deployment: Path) -> None:
    key = Kit.find(deployment / "kits" / "north").key
    check_private(key)
    key.chmod(0o640)
    with pytest.raises(UserError, match=r"can be read by others \(mode 0640\); close it with"):
        check_private(key)
    key.unlink()
    with pytest.raises(UserError, match="does not exist; copy it again"):
        check_private(key)


def test_a_folder_that_is_no_deployment_or_no_kit_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a deployment: it has no server"):
        ServerFolder.find(tmp_path)
    with pytest.raises(UserError, match="is not a start kit: it has no site"):
        Kit.find(tmp_path)


def test_a_damaged_file_is_named(deployment: Path) -> None:
    facts = deployment / "server" / "deployment.toml"
    facts.write_text("name = ")
    with pytest.raises(UserError, match="is not TOML"):
        _ = ServerFolder.find(deployment).sites
    facts.write_text("name = 'x'")
    with pytest.raises(UserError, match="lacks address, sites; copy it again"):
        _ = ServerFolder.find(deployment).sites
