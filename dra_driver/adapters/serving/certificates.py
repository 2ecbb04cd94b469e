"""Certificates of a server, made and renewed by ourselves: an authority and what it signed, as PEM.

What is kept is the content of a Secret: `ca.crt` has every authority that may have signed what is
served, the newest first, `ca.key` the keys of those that still sign, `tls.crt` and `tls.key` what
is served. Everything follows from that and from the time, so that replicas with the same Secret do
the same.
"""

import dataclasses
import datetime as dt
import ipaddress
import re
from collections.abc import Mapping, Sequence

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from dra_driver import errors

AUTHORITIES, AUTHORITY_KEYS, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"

AUTHORITY_LIFE = dt.timedelta(days=3 * 365)
SERVING_LIFE = dt.timedelta(days=90)
SETTLING = dt.timedelta(hours=1)
"""How long a new authority is only known, before it signs: clients have heard of it by then."""
_BACKDATED = dt.timedelta(minutes=5)
"""Clocks differ."""
_KEY_BLOCK = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n?", re.DOTALL)

Pem = Mapping[str, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Renewed:
    """What is to be kept from now on, and what was done, in words; nothing if all is well."""

    kept: Pem
    done: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None = None

    def begun(self, now: dt.datetime) -> bool:
        return now >= self.certificate.not_valid_before_utc

    def settled(self, now: dt.datetime) -> bool:
        return now >= self.certificate.not_valid_before_utc + _BACKDATED + SETTLING


@dataclasses.dataclass(frozen=True, slots=True)
class _Serving:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def renew(kept: Pem, names: Sequence[str], now: dt.datetime) -> Renewed:
    """Make what is missing, damaged or has a third of its life left.

    `names` are names of DNS, or addresses.
    """
    authorities, serving, damage = _read(kept)
    done = [f"{damage}; made anew"] if damage else []
    authorities = [one for one in authorities if one.certificate.not_valid_after_utc > now]
    # One of the future was made by a replica whose clock is wrong: the API server refuses it.
    signing = [one for one in authorities if one.key is not None and one.begun(now)]
    if not signing or _due(signing[0].certificate, now):
        authorities.insert(0, _new_authority(now))
        signing.insert(0, authorities[0])
        done.append("authority made")
    signer = next((one for one in signing if one.settled(now)), signing[-1])
    if serving is None or _unfit(serving.certificate, signer, names, now):
        serving = _new_serving(signer, names, now)
        done.append("serving certificate made")
    if not done:
        return Renewed(kept)
    needed = signing[: signing.index(signer) + 1]
    return Renewed(
        {
            AUTHORITIES: b"".join(_pem(one.certificate) for one in authorities),
            AUTHORITY_KEYS: b"".join(_key_pem(one.key) for one in needed if one.key),
            CERTIFICATE: _pem(serving.certificate),
            KEY: _key_pem(serving.key),
        },
        tuple(done),
    )


def not_after(chain: bytes) -> dt.datetime:
    """When the first certificate of a PEM chain runs out.

    Raises:
        errors.Rejected: it is no certificate.
    """
    try:
        return x509.load_pem_x509_certificates(chain)[0].not_valid_after_utc
    except ValueError as error:
        raise errors.Rejected(f"the certificate is no PEM certificate: {error}") from error


def _read(kept: Pem) -> tuple[list[_Authority], _Serving | None, str]:
    """What is kept, and what is wrong with it: then it is not used, but for authorities."""
    if not any(kept.get(name) for name in (AUTHORITIES, AUTHORITY_KEYS, CERTIFICATE, KEY)):
        return [], None, ""
    try:
        found = x509.load_pem_x509_certificates(kept.get(AUTHORITIES, b""))
    except ValueError:
        return [], None, f"{AUTHORITIES} is no PEM certificate"
    authorities = [_Authority(one) for one in found]
    try:
        keys = [_load_key(block) for block in _KEY_BLOCK.findall(kept.get(AUTHORITY_KEYS, b""))]
        key = _load_key(kept.get(KEY, b""))
        certificate = x509.load_pem_x509_certificate(kept.get(CERTIFICATE, b""))
    except (ValueError, TypeError):
        return authorities, None, f"{CERTIFICATE}, {KEY} or {AUTHORITY_KEYS} is no PEM"
    by_public = {_public(key): key for key in keys}
    authorities = [
        _Authority(one, by_public.get(one.public_key().public_bytes(*_SPKI))) for one in found
    ]
    authorities.sort(key=lambda one: one.certificate.not_valid_before_utc, reverse=True)
    if certificate.public_key().public_bytes(*_SPKI) != _public(key):
        return authorities, None, f"{KEY} does not belong to {CERTIFICATE}"
    return authorities, _Serving(certificate, key), ""


def _due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= end - (end - start) / 3


def _unfit(
    certificate: x509.Certificate, signer: _Authority, names: Sequence[str], now: dt.datetime
) -> bool:
    try:
        certificate.verify_directly_issued_by(signer.certificate)
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (ValueError, TypeError, exceptions.InvalidSignature, x509.ExtensionNotFound):
        return True
    early = now < certificate.not_valid_before_utc
    return early or _due(certificate, now) or set(extension.value) != set(map(_general, names))


def _new_authority(now: dt.datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # Each has a name of its own: clients look an issuer up by it.
    name = _name(f"dra-driver webhook authority {serial:040x}"[:64])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(name, name, key, serial, now, now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _Authority(builder.sign(key, hashes.SHA256()), key)


def _new_serving(signer: _Authority, names: Sequence[str], now: dt.datetime) -> _Serving:
    if signer.key is None:
        raise errors.Rejected("the authority has no key to sign with")
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = signer.certificate
    alternatives = x509.SubjectAlternativeName(map(_general, names))
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(
            _name("dra-driver webhook"),
            issuer.subject,
            key,
            x509.random_serial_number(),
            now,
            # Nobody trusts a certificate longer than who signed it.
            min(now + SERVING_LIFE, issuer.not_valid_after_utc),
        )
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
    )
    return _Serving(builder.sign(signer.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    serial: int,
    now: dt.datetime,
    end: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common)])


_SPKI = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _public(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(*_SPKI)


def _load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("not a key on an elliptic curve")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
