"""Certificates of the server and keys of the sites.

The server proves itself with a certificate that the deployment's own authority (CA) signed; sites
trust this authority alone. A site proves itself with a key on the curve P-384, whose public half
lies at the server. Flower reads node keys in OpenSSH's format, as `ssh-keygen -t ecdsa -b 384`
writes them, so a site may also make its own and send only the public half.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedloom.core.errors import UserError
from fedloom.deploy.flower_extra import check_importable
from fedloom.runs.durable_files import PRIVATE_FILE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

DAYS_VALID = 3 * 365


def write_authority_and_server(folder: Path, ca_key: Path, host: str) -> None:
    """Write ca.crt, server.crt and server.key into a folder, and the authority's key elsewhere."""
    check_importable("cryptography")
    authority_key, server_key = _new_key(), _new_key()
    authority = _authority(authority_key)
    server = _server(server_key, host, authority, authority_key)
    write_private(ca_key, _pem(authority_key))
    write_private(folder / "server.key", _pem(server_key))
    (folder / "ca.crt").write_bytes(_certificate_pem(authority))
    (folder / "server.crt").write_bytes(_certificate_pem(server))


def write_node_key(private: Path, public: Path, site: str) -> None:
    """Write a site's new key: the private half into its kit, the public half to the server."""
    from cryptography.hazmat.primitives import serialization as s

    key = _new_key()
    ssh, none = s.PrivateFormat.OpenSSH, s.NoEncryption()
    write_private(private, key.private_bytes(s.Encoding.PEM, ssh, none))
    shown = key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)
    public.write_bytes(shown + f" {site}\n".encode())


def check_in_date(certificate: Path) -> None:
    """Raise if a certificate has expired."""
    from cryptography import x509

    ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    if ends < datetime.datetime.now(datetime.UTC):
        raise UserError(
            f"'{certificate}' expired on {ends:%Y-%m-%d}; make a new deployment with: "
            "fedloom deploy init"
        )


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only its owner may read, from its first byte on."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb") as file:
        file.write(data)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def _authority(key: EllipticCurvePrivateKey) -> Certificate:
    """A self-signed certificate that may sign others, but no further authorities."""
    from cryptography import x509

    builder = _begun("fedloom deployment", "fedloom deployment", key)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = _usage(signs_certificates=True)
    return _signed(builder.add_extension(usage, critical=True), key)


def _server(
    key: EllipticCurvePrivateKey,
    host: str,
    authority: Certificate,
    authority_key: EllipticCurvePrivateKey,
) -> Certificate:
    """The server's certificate: for the address of the sites, and for its own loopback."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    names = [_alternative(name) for name in dict.fromkeys((host, "localhost", "127.0.0.1"))]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _begun("fedloom server", "fedloom deployment", key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(issuer, critical=False)
    )
    return _signed(builder, authority_key)


def _begun(subject: str, issuer: str, key: EllipticCurvePrivateKey) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of sites differ
        .not_valid_after(now + datetime.timedelta(days=DAYS_VALID))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _signed(builder: Any, key: EllipticCurvePrivateKey) -> Certificate:
    from cryptography.hazmat.primitives import hashes

    certificate: Certificate = builder.sign(key, hashes.SHA384())
    return certificate


def _pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())


def _certificate_pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return certificate.public_bytes(s.Encoding.PEM)
