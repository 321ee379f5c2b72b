"""The `extenders` of a configuration: what they may say, and what follows for the profiles."""

import base64
from datetime import timedelta

import pytest

from engine.framework.extender import Extender
from engine.policy.bundle import build_bundle
from engine.policy.config import decode_configuration
from engine.policy.errors import PolicyErrors
from engine.policy.extenders import in_order

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
URL = "urlPrefix: http://x"


def _extenders(text: str) -> tuple[Extender, ...]:
    return decode_configuration(HEAD + text, "c.yaml").extenders


def test_the_defaults_are_kube_schedulers() -> None:
    (got,) = _extenders(f"extenders: [{{{URL}}}]")
    assert got == Extender(url_prefix="http://x")
    assert got.timeout == timedelta(seconds=5)
    assert not got.tls.insecure


def test_every_field_is_read() -> None:
    secret = base64.b64encode(b"pem").decode()
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
  tlsConfig: {{serverName: n, certFile: c, keyFile: k, caFile: a, certData: {secret},
              keyData: {secret}, caData: {secret}}}
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
    assert tls.cert_data == tls.key_data == tls.ca_data == b"pem"
    assert not tls.insecure
    assert "pem" not in repr(tls).replace("cert_data=b'pem'", "").replace("ca_data=b'pem'", "")


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
def test_what_is_wrong_with_an_extender_is_said_with_its_path(text: str, want: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        _extenders(f"extenders: [{{{URL}, {text}}}]")
    assert want in str(caught.value)


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
