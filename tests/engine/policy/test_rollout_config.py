"""The `rollout` of a PolicyRuntime: what is understood, and what is refused with its place."""

from datetime import timedelta

import pytest

from engine.core.model.objects import LabelSelector, LabelSelectorRequirement
from engine.policy.bundle import build_bundle
from engine.policy.config import decode_documents
from engine.policy.errors import PolicyErrors
from engine.policy.rollout_config import CanaryStage, CanaryStep, Gates, RolloutConfig, ShadowStage
from tests.policies.doc_tables import DOCS

HEAD = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"
SECOND = timedelta(seconds=1)


def _read(text: str) -> tuple[RolloutConfig, list[str]]:
    documents = decode_documents({"x.yaml": f"{HEAD}rollout: {text}"})
    shown = [str(p).removeprefix("x.yaml:") for p in documents.problems]
    return documents.runtime.rollout, [text.partition(": ")[2] for text in shown]


@pytest.mark.parametrize("text", ["", "{}", "null", "{gates: {}}"])
def test_without_stages_nothing_is_staged(text: str) -> None:
    assert _read(text) == (RolloutConfig(), [])
    assert not RolloutConfig().is_staged


def test_an_empty_stage_has_the_defaults() -> None:
    got, problems = _read("{shadow: {}, canary: {}}")
    assert problems == []
    assert got == RolloutConfig(ShadowStage(), CanaryStage())
    assert got.is_staged
    assert [step.share for step in CanaryStage().steps] == [0.01, 0.05]


def test_every_field_is_read() -> None:
    got, problems = _read(
        """
  shadow: {duration: 90s, compared: 7, cores: 20%}
  canary:
    steps:
    - {share: 2.5%, duration: 1s, decisions: 3}
    - {share: 0.5}
    namespaceSelector:
      matchLabels: {team: a}
      matchExpressions: [{key: tier, operator: NotIn, values: [prod]}]
    profile: p
  gates: {maxMoved: 10%, maxNewlyPending: 1, maxEvictions: 2, errorRate: 5%, latency: 3,
          timeToBind: 1.5}
"""
    )
    assert problems == []
    assert got == RolloutConfig(
        ShadowStage(90 * SECOND, 7, 0.2),
        CanaryStage(
            (CanaryStep(0.025, SECOND, 3), CanaryStep(0.5)),
            LabelSelector({"team": "a"}, (LabelSelectorRequirement("tier", "NotIn", ("prod",)),)),
            "p",
        ),
        Gates(0.1, 1, 2, 0.05, 3.0, 1.5, max_moved_of_class=0.1),
    )


STEP = "canary.steps[0].share: want a share above 0% and at most 50%"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("{steps: [{share: 0}]}", f"{STEP}, got 0", id="none"),
        pytest.param("{steps: [{share: 0%}]}", f'{STEP}, got "0%"', id="none in percent"),
        pytest.param(
            "{steps: [{share: 51%}]}",
            f'{STEP} (the control sample is as large), got "51%"',
            id="more than half",
        ),
        pytest.param(
            "{steps: [{share: 5}]}",
            f"{STEP} (the control sample is as large), got 5\nhint: did you mean `5%`?",
            id="no percent sign",
        ),
        pytest.param(
            "{steps: [{share: -1%}]}",
            'canary.steps[0].share: want a share such as `1%` or 0.01, got "-1%"',
            id="negative",
        ),
        pytest.param(
            "{steps: [{share: a few}]}",
            'canary.steps[0].share: want a share such as `1%` or 0.01, got "a few"',
            id="words",
        ),
        pytest.param(
            "{steps: [{share: .nan}]}",
            "canary.steps[0].share: want a number, got .nan",
            id="not a number",
        ),
        pytest.param(
            "{steps: [{share: 5%}, {share: 5%}]}",
            "canary.steps[1].share: want a share above 5% and at most 50% (steps must grow), "
            'got "5%"',
            id="no growth",
        ),
        pytest.param("{steps: [{}]}", "canary.steps[0]: share: required value", id="no share"),
        pytest.param("{steps: []}", "canary.steps: want at least one step", id="no steps"),
        pytest.param(
            "{steps: [{share: 1%, duration: -1m}]}",
            'canary.steps[0].duration: want a duration above 0 and at most 168h, got "-1m"',
            id="negative duration",
        ),
        pytest.param(
            "{steps: [{share: 1%, decisions: 0}]}",
            "canary.steps[0].decisions: want an int in 1..1000000, got 0",
            id="no decisions",
        ),
        pytest.param(
            "{steps: [{share: 1%, during: 1m}]}",
            "canary.steps[0].during: unknown field\nhint: did you mean `duration`?",
            id="unknown",
        ),
        pytest.param(
            "{namespaceSelector: {matchLabels: {a: -x}}}",
            "canary.namespaceSelector.matchLabels.a: `a`: `-x` is not a label value",
            id="label value",
        ),
        pytest.param(
            "{namespaceSelector: {matchExpressions: [{key: a, operator: Is}]}}",
            "canary.namespaceSelector.matchExpressions[0]: `a`: unknown operator `Is`",
            id="operator",
        ),
        pytest.param(
            "null",
            "canary: want an object: `{}` for the defaults, or no such field for no stage, "
            "got null",
            id="neither there nor absent",
        ),
    ],
)
def test_what_is_wrong_in_a_canary(text: str, want: str) -> None:
    assert _read(f"{{canary: {text}}}")[1] == [f"rollout.{want}"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "shadow: {duration: 0s}",
            'shadow.duration: want a duration above 0 and at most 168h, got "0s"',
        ),
        ("shadow: {compared: 0}", "shadow.compared: want an int in 1..1000000, got 0"),
        ("shadow: {cores: 0}", "shadow.cores: want a share in 0.1%..100%, got 0"),
        (
            "shadow: {cores: 5}",
            "shadow.cores: want a share in 0.1%..100%, got 5\nhint: did you mean `5%`?",
        ),
        (
            "gates: {maxMoved: 101%}",
            'gates.maxMoved: want a share in 0%..100%, got "101%"',
        ),
        ("gates: {errorRate: 1.5}", None),
        ("gates: {latency: 0.5}", "gates.latency: want a multiple of at least 1, got 0.5"),
        ("gates: {timeToBind: 0}", "gates.timeToBind: want a multiple of at least 1, got 0"),
        (
            "gates: {maxNewlyPending: -1}",
            "gates.maxNewlyPending: want an int of at least 0, got -1",
        ),
        (
            "gates: {maxEvictions: 0.5}",
            "gates.maxEvictions: want an int of at least 0, got 0.5",
        ),
        (
            "gates: {errorRate: 20%}",
            "gates.errorRate: want at most `fallback.errorRate` (10%): an edit that passes would "
            'be rolled back at once, got "20%"',
        ),
        (
            "gates: {maxPending: 0}",
            "gates.maxPending: unknown field\nhint: did you mean `maxNewlyPending`?",
        ),
        ("shadows: {}", "shadows: unknown field\nhint: did you mean `shadow`?"),
    ],
)
def test_what_is_wrong_in_a_shadow_and_in_gates(text: str, want: str | None) -> None:
    shadow = "" if text.startswith("shadow:") else ", shadow: {}"
    want = want or (
        "gates.errorRate: want a share in 0%..100%, got 1.5\nhint: did you mean `1.5%`?"
    )
    assert _read(f"{{{text}{shadow}, canary: {{}}}}")[1] == [f"rollout.{want}"]


def test_all_problems_are_reported_together() -> None:
    _, problems = _read(
        "{shadow: {compared: 0, cores: 0}, canary: {steps: []}, gates: {latency: 0}}"
    )
    assert len(problems) == 4


@pytest.mark.parametrize(
    ("stage", "gate", "want"),
    [
        ("", "maxMoved: 1%", "`rollout.shadow`"),
        ("", "latency: 2", "`rollout.shadow` or `rollout.canary`"),
        ("canary: {}, ", "maxMoved: 1%", "`rollout.shadow`"),
        ("shadow: {}, ", "timeToBind: 2", "`rollout.canary`"),
    ],
)
def test_a_gate_that_no_stage_measures_is_a_warning(stage: str, gate: str, want: str) -> None:
    text = f"{HEAD}rollout: {{{stage}gates: {{{gate}}}}}"
    (problem,) = decode_documents({"x.yaml": text}).problems
    assert problem.severity == "warning"
    name = gate.partition(":")[0]
    assert problem.message == f"rollout.gates.{name}: no stage measures it: want {want}"
    assert build_bundle({"x.yaml": text}).warnings == (problem,)


CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: batch}, {schedulerName: web}]
"""


def test_the_profile_of_a_canary_must_be_there() -> None:
    files = {"a.yaml": CONFIGURATION, "x.yaml": f"{HEAD}rollout: {{canary: {{profile: wed}}}}\n"}
    with pytest.raises(PolicyErrors) as raised:
        build_bundle(files)
    assert str(raised.value) == (
        "x.yaml:3:29: rollout.canary.profile: want the schedulerName of a profile (`batch`, "
        '`web`), got "wed"\nhint: did you mean `web`?'
    )
    files["x.yaml"] = files["x.yaml"].replace("wed", "web")
    canary = build_bundle(files).runtime.rollout.canary
    assert canary is not None
    assert canary.profile == "web"


def test_without_a_configuration_there_is_one_profile() -> None:
    text = f"{HEAD}rollout: {{canary: {{profile: default-scheduler}}}}"
    assert build_bundle({"x.yaml": text}).warnings == ()


def test_other_gates_are_another_revision() -> None:
    """They are the gates of the next edit, so changing them is an edit too."""
    revisions = {
        build_bundle({"x.yaml": f"{HEAD}rollout: {{shadow: {{compared: {n}}}}}"}).revision
        for n in (1, 2)
    }
    assert len(revisions) == 2


def test_the_stages_that_are_documented_are_the_defaults() -> None:
    text = (DOCS / "rollout.md").read_text().partition("\nrollout:")[2].partition("```")[0]
    assert "compared: 500" in text
    got, problems = _read(text)
    assert problems == []
    assert got == RolloutConfig(ShadowStage(), CanaryStage())
    for name in Gates.__slots__:
        head, *rest = name.split("_")
        assert f"{head}{''.join(map(str.capitalize, rest))}:" in text
