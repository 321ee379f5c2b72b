"""The `extenders` of a configuration: what they may say, and what follows for the profiles."""

import base64
from datetime import timedelta
from pathlib import Path

import pytest

from engine.core.framework.extender import Extender
from engine.policy.bundle import build_bundle
from engine.policy.config import decode_configuration
from engine.policy.errors import PolicyErrors
from engine.policy.extenders import in_order
from tests.certificates import Authority

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
URL = "urlPrefix: http://x"


def _base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def _extenders(text: str) -> tuple[Extender, ...]:
    return decode_configuration(HEAD + text, "c.yaml").extenders


def test_the_defaults_are_kube_schedulers() -> None:
    (got,) = _extenders(f"extenders: [{{{URL}}}]")
    assert got == Extender(url_prefix="http://x")
    assert got.timeout == timedelta(seconds=5)
    assert not got.tls.insecure


def test_every_field_is_read(authority: Authority) -> None:
    certificate, key = (path.read_bytes() for path in authority.issue("scheduler@example.com"))
    ca = authority.file.read_bytes()
    (got,) = _extenders(
        f"""
extenders:
- urlPrefix: https://x:1/a/
  filterVerb: f
  preemptVerb: p
  prioritizeVerb: s
  bindVerb: b
  weight: 7
  enableHTTPS: true
  httpTimeout: 300ms
  nodeCacheCapable: true
  ignorable: true
  tlsConfig: {{serverName: n, certFile: c, keyFile: k, caFile: a,
              certData: {_base64(certificate)}, keyData: {_base64(key)}, caData: {_base64(ca)}}}
  managedResources: [{{name: x/y, ignoredByScheduler: true}}, {{name: x/z}}]
"""
    )
    assert (got.filter_verb, got.preempt_verb, got.prioritize_verb) == ("f", "p", "s")
    assert (got.bind_verb, got.weight) == ("b", 7)
    assert got.timeout == timedelta(milliseconds=300)
    assert got.node_cache_capable
    assert got.ignorable
    assert got.resources == {"x/y", "x/z"}
    assert got.ignored_resources == ("x/y",)
    tls = got.tls
    assert (tls.server_name, tls.cert_file, tls.key_file, tls.ca_file) == ("n", "c", "k", "a")
    assert (tls.cert_data, tls.key_data, tls.ca_data) == (certificate, key, ca)
    assert not tls.insecure
    assert "PRIVATE KEY" not in repr(tls)


@pytest.mark.parametrize(
    ("names", "want"),
    [
        pytest.param({"caData": "junk"}, "caData: want certificates as PEM", id="no PEM"),
        pytest.param({"caData": "key"}, "caData: want certificates as PEM", id="a key"),
        pytest.param({"caData": "half"}, "caData: want certificates as PEM", id="half of one"),
        pytest.param(
            {"certData": "junk", "keyData": "key"},
            "certData: want certificates as PEM",
            id="no certificate",
        ),
        pytest.param(
            {"certData": "crt", "keyData": "junk"}, "keyData: want a private key", id="no key"
        ),
        pytest.param(
            {"certData": "crt", "keyData": "encrypted"}, "without a passphrase", id="encrypted"
        ),
        pytest.param(
            {"certData": "crt", "keyData": "other"},
            "keyData: want the private key of the certificate, got that of another",
            id="of another",
        ),
    ],
)
def test_data_that_no_connection_can_be_made_with_is_refused(
    authority: Authority, names: dict[str, str], want: str
) -> None:
    """`check` said ok, and the scheduler that used it failed every pod, or did not start."""
    certificate, key = (path.read_bytes() for path in authority.issue("me@example.com"))
    given = {
        "junk": b"no PEM at all, and a secret all the same, which nobody is told",
        "crt": certificate,
        "key": key,
        "half": certificate[:200] + b"\n-----END CERTIFICATE-----\n",
        "other": authority.issue("you@example.com")[1].read_bytes(),
        "encrypted": authority.issue_encrypted("me@example.com")[1].read_bytes(),
    }
    tls = ", ".join(f"{field}: {_base64(given[name])}" for field, name in names.items())
    with pytest.raises(PolicyErrors) as caught:
        _extenders(f"extenders: [{{{URL}, tlsConfig: {{{tls}}}}}]")
    assert str(caught.value).startswith("c.yaml:3:")
    assert want in str(caught.value)
    for reported in (given[name] for name in names.values()):
        assert _base64(reported)[:20] not in str(caught.value)
        assert reported.decode()[30:50] not in str(caught.value)


def test_a_certificate_without_a_key_is_not_looked_at() -> None:
    """kube-scheduler does not use it either."""
    (got,) = _extenders(f"extenders: [{{{URL}, tlsConfig: {{certData: {_base64(b'x')}}}}}]")
    assert got.tls.cert_data == b"x"


def test_an_authority_may_have_remarks_in_any_language(authority: Authority) -> None:
    ca = "# Autorité de Zürich\n".encode() + authority.file.read_bytes()
    (got,) = _extenders(f"extenders: [{{{URL}, tlsConfig: {{caData: {_base64(ca)}}}}}]")
    assert got.tls.ca_data == ca


@pytest.mark.parametrize(
    ("tls", "want"),
    [
        pytest.param("enableHTTPS: true", True, id="https without an authority"),
        pytest.param("enableHTTPS: true, tlsConfig: {caFile: a}", False, id="with one"),
        pytest.param("tlsConfig: {insecure: true}", True, id="asked for"),
        pytest.param("tlsConfig: {serverName: a}", False, id="neither"),
    ],
)
def test_certificates_are_not_checked_where_kube_scheduler_does_not(tls: str, want: bool) -> None:
    (got,) = _extenders(f"extenders: [{{{URL}, {tls}}}]")
    assert got.tls.insecure is want


@pytest.mark.parametrize(
    ("timeout", "want"),
    [("0s", timedelta(seconds=5)), ("-1s", None), ("1m", timedelta(minutes=1))],
)
def test_a_timeout_of_zero_is_the_default_and_a_negative_one_is_none(
    timeout: str, want: timedelta | None
) -> None:
    (got,) = _extenders(f"extenders: [{{{URL}, httpTimeout: {timeout}}}]")
    assert got.timeout == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("prioritizeVerb: p", "extenders[0]: must have a positive weight applied to it"),
        (
            "prioritizeVerb: p, weight: -1",
            "extenders[0].weight: must have a positive weight applied to it",
        ),
        ("prioritizeVerb: p, weight: 99999999999999999999", "extenders[0].weight: want an int"),
        (
            "managedResources: [{name: cpu}]",
            'extenders[0].managedResources[0].name: "cpu" is an invalid extended resource name',
        ),
        (
            "managedResources: [{name: x.kubernetes.io/y}]",
            '"x.kubernetes.io/y" is an invalid extended resource name',
        ),
        (
            "managedResources: [{name: a/b}, {name: a/b}]",
            'managedResources[1].name: duplicate extender managed resource name "a/b"',
        ),
        (
            "tlsConfig: {insecure: true, caFile: a}",
            "extenders[0].tlsConfig.insecure: specifying a root certificates file with the "
            "insecure flag is not allowed",
        ),
        ("tlsConfig: {keyData: '***'}", "extenders[0].tlsConfig.keyData: want base64"),
        ("tlsConfig: {certfile: a}", "tlsConfig.certfile: unknown field"),
        ("nodeCacheCapable: 1", "extenders[0].nodeCacheCapable: want true or false, got 1"),
        ("httpTimeout: soon", "extenders[0].httpTimeout: want a duration"),
    ],
)
def test_what_is_wrong_with_an_extender_is_reported_with_its_path(text: str, want: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        _extenders(f"extenders: [{{{URL}, {text}}}]")
    (problem,) = caught.value.problems
    assert want in str(problem)


@pytest.mark.parametrize("prefix", ["x:80", "ftp://x", "http://", "http://x:y", "http://[::1"])
def test_a_prefix_that_is_no_url_is_refused(prefix: str) -> None:
    with pytest.raises(PolicyErrors, match="want a URL such as"):
        _extenders(f"extenders: [{{urlPrefix: '{prefix}'}}]")


def test_only_one_extender_may_bind() -> None:
    with pytest.raises(PolicyErrors) as caught:
        _extenders(f"extenders: [{{{URL}, bindVerb: b}}, {{{URL}, bindVerb: b}}]")
    want = "extenders: found 2 extenders implementing bind: only one extender can implement bind"
    assert want in str(caught.value)


def test_a_resource_has_one_manager() -> None:
    with pytest.raises(PolicyErrors, match="duplicate extender managed resource name"):
        _extenders(
            f"extenders: [{{{URL}, managedResources: [{{name: a/b}}]}}, "
            f"{{{URL}, managedResources: [{{name: a/b}}]}}]"
        )


def test_extenders_that_may_be_ignored_are_asked_last() -> None:
    found = _extenders(
        "extenders: [{urlPrefix: http://a, ignorable: true}, {urlPrefix: http://b}, "
        "{urlPrefix: http://c, ignorable: true}, {urlPrefix: http://d}]"
    )
    got = [extender.url_prefix for extender in in_order(found)]
    assert got == ["http://b", "http://d", "http://a", "http://c"]


def test_resources_that_an_extender_counts_are_ignored_in_every_profile() -> None:
    text = (
        HEAD
        + f"""
extenders: [{{{URL}, managedResources: [{{name: a/b, ignoredByScheduler: true}}, {{name: a/c}}]}}]
profiles:
- schedulerName: one
- schedulerName: two
  pluginConfig: [{{name: NodeResourcesFit, args: {{ignoredResources: [z/z]}}}}]
"""
    )
    bundle = build_bundle({"c.yaml": text})
    fits = [i for i in bundle.program.instances if i.policy == "NodeResourcesFit"]
    assert fits
    assert all(i.args["ignored_resources"] == ["a/b"] for i in fits)
    for profile in bundle.profiles:
        assert profile.arguments["NodeResourcesFit"]["ignored_resources"] == ["a/b"]
    assert [e.url_prefix for e in bundle.extenders] == ["http://x"]
