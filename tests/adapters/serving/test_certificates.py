import datetime as dt

import effort
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dra_driver import errors
from dra_driver.adapters.serving import certificates

NAMES = ("webhook.dra.svc", "webhook.dra.svc.cluster.local")
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY, HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)
LIFE = certificates.SERVING_LIFE / DAY


def renew(kept, days=0.0, names=NAMES):
    return certificates.renew(kept, names, START + days * DAY)


@pytest.fixture(scope="module")
def fresh():
    return renew({}).kept


def authorities(kept):
    return x509.load_pem_x509_certificates(kept["ca.crt"])


def serving(kept):
    return x509.load_pem_x509_certificate(kept["tls.crt"])


def keys(kept):
    return kept["ca.key"].count(b"BEGIN PRIVATE KEY")


def signer(kept):
    """Which of the authorities, from the newest on, signed what is served."""
    for number, one in enumerate(authorities(kept)):
        if one.subject == serving(kept).issuer:
            serving(kept).verify_directly_issued_by(one)
            return number
    return None


def test_the_first_certificate_is_signed_at_once():
    renewed = renew({})

    assert renewed.done == ("authority made", "serving certificate made")
    assert set(renewed.kept) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
    assert (len(authorities(renewed.kept)), keys(renewed.kept), signer(renewed.kept)) == (1, 1, 0)


def test_a_certificate_is_for_a_server_of_these_names(fresh):
    found = serving(fresh).extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)
    usage = found.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
    assert serving(fresh).not_valid_after_utc == START + certificates.SERVING_LIFE
    assert certificates.not_after(fresh["tls.crt"]) == START + certificates.SERVING_LIFE


def test_an_authority_signs_certificates_and_nothing_else(fresh):
    (authority,) = authorities(fresh)
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (constraints.value.ca, constraints.value.path_length, constraints.critical) == (
        True,
        0,
        True,
    )
    assert authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_what_is_good_stays_as_it_is(fresh):
    for days in (0, 1, LIFE / 3, LIFE * 2 / 3 - 0.1):
        renewed = renew(fresh, days)
        assert (renewed.done, renewed.kept) == ((), fresh)


def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left(fresh):
    renewed = renew(fresh, LIFE * 2 / 3 + 0.1)

    assert renewed.done == ("serving certificate made",)
    assert renewed.kept["ca.crt"] == fresh["ca.crt"]
    assert renewed.kept["tls.key"] != fresh["tls.key"]
    assert signer(renewed.kept) == 0


def test_a_certificate_for_other_names_is_replaced(fresh):
    renewed = renew(fresh, 1, names=("other.dra.svc",))
    assert renewed.done == ("serving certificate made",)


def test_a_new_authority_is_known_for_an_hour_before_it_signs(fresh):
    old = renew(fresh, 729).kept
    assert len(authorities(old)) == 1

    changed = renew(old, 731)
    assert "authority made" in changed.done
    assert (len(authorities(changed.kept)), keys(changed.kept), signer(changed.kept)) == (2, 2, 1)
    assert changed.kept["ca.crt"].endswith(fresh["ca.crt"])

    waiting = renew(changed.kept, 731 + 0.9 / 24)
    assert waiting.done == ()

    settled = renew(changed.kept, 731 + 1.1 / 24)
    assert settled.done == ("serving certificate made",)
    assert (len(authorities(settled.kept)), keys(settled.kept), signer(settled.kept)) == (2, 1, 0)


def test_an_authority_that_ran_out_is_forgotten_with_the_next_renewal(fresh):
    kept = renew(renew(fresh, 731).kept, 732).kept
    assert len(authorities(kept)) == 2
    assert len(authorities(renew(kept, 1100).kept)) == 1


def test_after_a_long_sleep_all_is_new(fresh):
    renewed = renew(fresh, 2000)
    assert renewed.done == ("authority made", "serving certificate made")
    assert (len(authorities(renewed.kept)), signer(renewed.kept)) == (1, 0)


@pytest.mark.parametrize("ahead", [20, 3000], ids=["20 minutes", "2 days"])
def test_what_a_replica_with_a_wrong_clock_made_is_replaced_by_one_with_a_good_clock(ahead):
    """The API server takes it for a certificate of the future, and authorities likewise."""
    minute = 1 / 24 / 60
    early = renew({}, ahead * minute).kept
    assert serving(early).not_valid_before_utc > START
    replaced = renew(early)
    assert replaced.done == ("authority made", "serving certificate made")
    kept = replaced.kept
    [signed_by] = [one for one in authorities(kept) if one.subject == serving(kept).issuer]
    assert max(serving(kept).not_valid_before_utc, signed_by.not_valid_before_utc) < START
    # What the other one serves for another moment stays known, and neither begins anew.
    assert authorities(early)[0] in authorities(kept)
    assert renew(kept, ahead * minute).done == renew(kept).done == ()


def test_a_clock_that_is_a_little_late_changes_nothing(fresh):
    assert renew(fresh, -4 / 24 / 60).done == ()


def other_key():
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"ca.crt": b"garbage"}, "ca.crt is no PEM certificate"),
        ({"ca.crt": b""}, "ca.crt is no PEM certificate"),
        ({"tls.crt": b"garbage"}, "tls.crt, tls.key or ca.key is no PEM"),
        ({"tls.key": b""}, "tls.crt, tls.key or ca.key is no PEM"),
        (
            {"ca.key": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"},
            "tls.crt, tls.key or ca.key is no PEM",
        ),
        ({"tls.key": other_key()}, "tls.key does not belong to tls.crt"),
    ],
)
def test_what_is_damaged_is_made_anew(fresh, damage, reason):
    renewed = renew({**fresh, **damage}, 1)
    assert renewed.done[0] == f"{reason}; made anew"
    assert signer(renewed.kept) == 0
    assert renew(renewed.kept, 1).done == ()


def test_an_authority_without_its_key_is_still_trusted(fresh):
    renewed = renew({**fresh, "ca.key": b""}, 1)
    assert renewed.done == ("authority made", "serving certificate made")
    assert renewed.kept["ca.crt"].endswith(fresh["ca.crt"])


def test_what_is_no_certificate_has_no_end():
    with pytest.raises(errors.Rejected, match="no PEM certificate"):
        certificates.not_after(b"x")


@settings(max_examples=effort.examples(40), deadline=None)
@example([650, 400])
@example([650, 444])
@given(st.lists(st.integers(1, 900), max_size=6))
def test_whenever_it_is_looked_at_what_is_served_is_good_and_was_known_before(fresh, pauses):
    """A client that heard of the authorities at the last look trusts what is served now."""
    kept, hours = fresh, 0
    for pause in pauses:
        for hour in (hours + pause * 24, hours + pause * 24 + 2):
            now = START + hour * HOUR
            before, kept = kept, certificates.renew(kept, NAMES, now).kept
            (used,) = [one for one in authorities(kept) if one.subject == serving(kept).issuer]
            assert used.not_valid_after_utc >= serving(kept).not_valid_after_utc > now
            expired = all(one.not_valid_after_utc <= now for one in authorities(before))
            assert used in authorities(before) or expired
        # However long nobody looked: an hour later all is as if somebody always had.
        assert serving(kept).not_valid_after_utc - now > 29 * DAY
        hours += pause * 24
