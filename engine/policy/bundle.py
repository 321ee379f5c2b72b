"""The policy files in force, checked: an immutable bundle with a revision.

Owns the making of a bundle from texts: the user's files together with the shipped ones, the
configuration, the profiles. Every problem that shows without running Starlark is found here, and
all are reported together. Whether the policies decide well is for tests and trials to say.
"""

import contextlib
import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from engine.core.framework.extender import Extender
from engine.core.framework.profile import Profile
from engine.core.model.clock_facts import CLOCK_FACTS
from engine.core.model.event_kinds import NODE
from engine.language import tree_hooks
from engine.language.effects import ALL
from engine.language.summaries import COUNT
from engine.language.syntax import loads_of, parse, with_loaded
from engine.policy.analysis import Analyses, Reads, analyse
from engine.policy.arguments import ATTRIBUTES, declaration, with_arguments
from engine.policy.check import check_files, check_sizes
from engine.policy.config import KubeSchedulerConfiguration, PolicyRuntime, decode_documents
from engine.policy.errors import PolicyErrors, Problem
from engine.policy.evaluator import Files, Program
from engine.policy.extenders import ignored_resources, in_order
from engine.policy.fact_config import FactsConfig
from engine.policy.file_names import DOCUMENT_SUFFIXES, STARLARK_SUFFIX, TEST_SUFFIX, is_document
from engine.policy.hook_signatures import hook_signatures, shipped_signatures
from engine.policy.profiles import DEFAULT_PLUGINS, OPTIONAL_PLUGINS, Profiles, build_profiles
from engine.policy.queue_tree import QueueTreePolicy, resolve_queue_tree
from engine.policy.queue_tree_config import QueueTreeConfig
from engine.policy.rollout_config import profile_problems
from engine.policy.shipped import KUBERNETES, pack_modules, shipped_files, snake_case
from engine.policy.view_events import ANYTHING, fields_of, resources_behind
from engine.policy.views import FACT_FIELDS, VIEWS

T = TypeVar("T")

_RESOURCES_POLICY: Final = "NodeResourcesFit"
_IGNORED: Final = "ignored_resources"


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy file.

    Attributes:
        name: How a configuration names it: the plugin (`NodeName`), or the file's stem.
        module: Its path among the files.
        hooks: What each hook reads, by hook.
        parameters: The names of its parameters, by hook.
        defaults: The arguments that it declares. A default that is computed is
            `arguments.UNKNOWN`.
        is_builtin: True if it ships with the runtime and the user has not replaced it.
    """

    name: str
    module: str
    hooks: Mapping[str, Reads]
    parameters: Mapping[str, tuple[str, ...]]
    defaults: Mapping[str, Any]
    is_builtin: bool

    @property
    def is_node_blind(self) -> bool:
        """True if no other node would change that it rejects a pod: it looks at none."""
        rejecting = [self.hooks[hook] for hook in ("pre_filter", "filter") if hook in self.hooks]
        counters = self.hooks.get("counters", Reads()).counters
        counts_nodes = not counters.isdisjoint({"count_nodes", ALL})
        return bool(rejecting) and not any(
            _looks_at_nodes(reads, counts_nodes) for reads in rejecting
        )


def _looks_at_nodes(reads: Reads, counts_nodes: bool) -> bool:
    """True if a further node can change what is read; *counts_nodes*: or counted may be nodes."""
    behind = resources_behind("cluster", fields_of("cluster", reads.cluster))
    counts = (COUNT.get(name) for name in reads.counts)
    of_nodes = any(count is None or count.is_of_nodes or counts_nodes for count in counts)
    return bool(reads.node) or of_nodes or not behind.isdisjoint({NODE, ANYTHING})


@dataclass(frozen=True)
class Bundle:
    """Everything that decides, as one value.

    Attributes:
        revision: 12 hexadecimal digits that are the same exactly for the same texts.
        files: Module path to text: the user's files and tests, and the shipped files.
        policies: By name, the shipped ones first in kube-scheduler's order.
        profiles: One per `schedulerName`.
        program: What an evaluator runs.
        runtime: Limits and failure policy.
        extenders: The configured ones, in the order in which they are asked.
        tests: The user's test files.
        warnings: What was noticed and is not an error.
        configuration: What the profiles and extenders were read from; None if no file has one.
        queue_tree: The queues and the policy that governs them; None if no file has a QueueTree.
    """

    revision: str
    files: Files
    policies: Mapping[str, Policy]
    profiles: tuple[Profile, ...]
    program: Program
    runtime: PolicyRuntime
    extenders: tuple[Extender, ...] = ()
    tests: tuple[str, ...] = ()
    warnings: tuple[Problem, ...] = ()
    configuration: KubeSchedulerConfiguration | None = None
    queue_tree: QueueTreePolicy | None = None

    @property
    def enabled(self) -> list[Policy]:
        """The policies that a profile enables, by name; that of the queues is one of them."""
        return _enabled(self.profiles, self.policies, self.queue_tree)

    @functools.cached_property
    def kinds_read(self) -> frozenset[str]:
        """The kinds of objects whose changes can change what enabled policies read.

        `ANYTHING` is among them if they may read anything.
        """
        return frozenset(
            kind
            for policy in self.enabled
            for reads in policy.hooks.values()
            for view in VIEWS
            for kind in resources_behind(view, fields_of(view, reads.of(view)))
        )


def build_bundle(
    user_files: Mapping[str, str], config: KubeSchedulerConfiguration | None = None
) -> Bundle:
    """The bundle of *user_files*: `*.star`, `*_test.star` and YAML documents by file name.

    *config* is a configuration from elsewhere (the command line), used if the files hold none.
    Raises `PolicyErrors` with everything that is wrong.
    """
    problems = check_sizes(user_files) or _unreadable_names(user_files)
    if problems:
        raise PolicyErrors(problems)
    # Some editors begin a text with a byte order mark, which no editor shows.
    texts = {file: text.removeprefix("\ufeff") for file, text in user_files.items()}
    try:
        return _build(texts, config)
    finally:
        # Syntax trees are a hundred times their text, and the next bundle has other texts.
        parse.cache_clear()


def _build(user_files: Mapping[str, str], config: KubeSchedulerConfiguration | None) -> Bundle:
    problems: list[Problem] = []
    # 1. What the texts say, each file by itself and with what it loads.
    documents = decode_documents({f: t for f, t in user_files.items() if is_document(f)})
    problems += documents.problems
    problems += _file_names(user_files)
    files = _files(user_files)
    with contextlib.closing(Analyses(files)) as analyses:
        problems += check_files(user_files, analyses)
        policies = _policies(files, user_files, analyses)
    configuration = documents.configuration
    if configuration is not None and config is not None:
        message = "a configuration is given on the command line too: want one of them"
        problems.append(Problem(configuration.file, 1, 1, message))
    configuration = configuration or config
    runtime = documents.runtime
    if config is not None:
        # The file of the command line may hold this document, too.
        given = decode_documents({config.file: config.text}).runtime
        if PolicyRuntime() not in (runtime, given):
            message = "a `PolicyRuntime` is among the policies too: want one of them"
            problems.append(Problem(config.file, 1, 1, message))
        runtime = given if runtime == PolicyRuntime() else runtime
    # 2. What they say together: policies by name, and the profiles that enable them.
    governing = documents.queue_tree.policy if documents.queue_tree is not None else ""
    resolved = build_profiles(configuration, policies, {governing})
    queue_tree, found = _queue_tree(documents.queue_tree, policies, files, resolved)
    problems += found
    if queue_tree is not None:
        policies |= _with_arguments(queue_tree, policies, files, resolved)
    extenders = in_order(configuration.extenders) if configuration is not None else ()
    _ignore_resources(resolved, ignored_resources(extenders), policies)
    problems += resolved.problems
    problems += profile_problems(runtime.rollout, (p.scheduler_name for p in resolved.profiles))
    problems += [_unloaded(policy) for policy in _idle(files, policies)]
    if configuration is not None or runtime.facts.sources:
        file = "" if configuration is None else configuration.file
        read_facts = {n: p for n, p in policies.items() if _may_read_facts(files, p.module)}
        problems += _facts_of_no_source(resolved, read_facts, runtime.facts, file)
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise PolicyErrors(errors)
    return Bundle(
        revision=_revision(files, user_files, config),
        files=MappingProxyType(files),
        policies=MappingProxyType(policies),
        profiles=tuple(resolved.profiles),
        program=Program(MappingProxyType(files), tuple(resolved.instances), runtime.limits),
        runtime=runtime,
        extenders=extenders,
        tests=tuple(sorted(f for f in user_files if f.endswith(TEST_SUFFIX))),
        warnings=tuple(sorted(p for p in set(problems) if p.severity != "error")),
        configuration=configuration,
        queue_tree=queue_tree,
    )


def _queue_tree(
    config: QueueTreeConfig | None,
    policies: Mapping[str, Policy],
    files: Files,
    resolved: Profiles,
) -> tuple[QueueTreePolicy | None, list[Problem]]:
    """The tree of queues, and what is wrong with it that shows with its policy alone."""
    if config is None:
        return None, []
    report = config.place.report
    before = len(report.problems)
    made = resolve_queue_tree(
        config,
        policies,
        lambda name: declaration(files[policies[name].module], ATTRIBUTES).defaults,
        files,
        resolved.instances,
    )
    return made, report.problems[before:]


def _with_arguments(
    tree: QueueTreePolicy, policies: Mapping[str, Policy], files: Files, resolved: Profiles
) -> dict[str, Policy]:
    """The policy of *tree*, which reads of pods what its arguments say: one label, not all.

    Pods that are alike but for their other labels are one question, and the zone of their node,
    which the API server writes into their labels when they are bound, is none.
    """
    policy = policies[tree.policy]
    if not policy.parameters.keys() <= {hook.name for hook in tree_hooks.ENTRIES}:
        return {}  # profiles may enable it, with other arguments each
    given = {**policy.defaults, **resolved.instances[tree.instance].args}
    text = with_arguments(files[policy.module], given)
    if text == files[policy.module]:
        return {}
    reads = analyse({**files, policy.module: text}, policy.module)
    return {policy.name: replace(policy, hooks=reads)}


def _files(user_files: Mapping[str, str]) -> dict[str, str]:
    files = {f: t for f, t in shipped_files().items() if not f.endswith(TEST_SUFFIX)}
    files |= {f: t for f, t in sorted(user_files.items()) if f.endswith(STARLARK_SUFFIX)}
    return files


def _unreadable_names(files: Iterable[str]) -> list[Problem]:
    """The names of files that are not valid text, and so cannot be shown as they are."""
    shown = [(file, file.encode(errors="replace").decode()) for file in files]
    message = "want a name that is UTF-8 text, got other bytes"
    return [Problem(name, 0, 0, message) for file, name in sorted(shown) if name != file]


def _file_names(user_files: Mapping[str, str]) -> list[Problem]:
    """Names that mean nothing, or that mean the same policy twice."""
    want = f"want `*{STARLARK_SUFFIX}` or one of {', '.join(f'`*{s}`' for s in DOCUMENT_SUFFIXES)}"
    problems: list[Problem] = []
    first: dict[str, str] = {}
    for file in sorted(user_files):
        if file.startswith("@") or "/" in file:
            problems.append(Problem(file, 0, 0, "want a plain file name, without `/` or `@`"))
        elif file.endswith(STARLARK_SUFFIX) and not file.endswith(TEST_SUFFIX):
            name = policy_name(file)
            if name in first:
                message = f"a second file for the policy `{name}`; the first is `{first[name]}`"
                problems.append(Problem(file, 0, 0, message))
            first.setdefault(name, file)
        elif not file.endswith((STARLARK_SUFFIX, *DOCUMENT_SUFFIXES)):
            message = f"not a policy file: {want}"
            problems.append(Problem(file, 0, 0, message, severity="warning"))
    return problems


# --- policies --------------------------------------------------------------------------------


def shipped_policies() -> dict[str, Policy]:
    """The policies that come with the runtime, by name."""
    found: dict[str, Policy] = {}
    for module in shipped_files():
        if module.startswith(KUBERNETES) and not module.endswith(TEST_SUFFIX):
            name = _PLUGIN_OF_STEM[module.removeprefix(KUBERNETES).removesuffix(STARLARK_SUFFIX)]
            found[name] = _builtin_policy(name, module)
    for name, module in pack_modules().items():
        found[name] = _builtin_policy(name, module)
    return found


def _policies(files: Files, user_files: Mapping[str, str], analyses: Analyses) -> dict[str, Policy]:
    """Every policy by name; a user's file takes the place of the shipped one of its name."""
    found = shipped_policies()
    for module in sorted(user_files):
        if module.endswith(STARLARK_SUFFIX) and not module.endswith(TEST_SUFFIX):
            name = policy_name(module)
            reads = analyses.of(module).reads
            found[name] = _policy(name, module, files[module], reads)
    order = {name: place for place, name in enumerate(DEFAULT_PLUGINS)}
    ordered = sorted(found, key=lambda name: (order.get(name, len(order)), name))
    return {name: found[name] for name in ordered}


_PLUGIN_OF_STEM: Final = {snake_case(name): name for name in (*DEFAULT_PLUGINS, *OPTIONAL_PLUGINS)}


def policy_name(file: str) -> str:
    """The policy that a file of the user is: the plugin of that name, or the stem."""
    stem = file.removesuffix(STARLARK_SUFFIX)
    return _PLUGIN_OF_STEM.get(stem, stem)


@functools.cache
def _builtin_policy(name: str, module: str) -> Policy:
    # Shipped files load shipped files only, so nothing that a user writes can change this.
    text = shipped_files()[module]
    signatures = shipped_signatures(text)
    return Policy(
        name=name,
        module=module,
        hooks=_OfShipped(lambda: analyse(shipped_files(), module), tuple(signatures)),
        parameters={hook: one.params for hook, one in signatures.items()},
        defaults=_OfShipped(lambda: declaration(text).defaults),
        is_builtin=True,
    )


class _OfShipped(Mapping[str, T]):
    """What *make* finds in a shipped file, when it is first asked for more than the known *names*.

    A file is checked on each save; the check asks most of the shipped ones for nothing else.
    """

    def __init__(
        self, make: Callable[[], Mapping[str, T]], names: Collection[str] | None = None
    ) -> None:
        self._make: Final = make
        self._known: Final = names

    @functools.cached_property
    def _made(self) -> Mapping[str, T]:
        return self._make()

    @property
    def _names(self) -> Collection[str]:
        return self._made if self._known is None else self._known

    def __getitem__(self, name: str) -> T:
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _policy(name: str, module: str, text: str, reads: Mapping[str, Reads]) -> Policy:
    return Policy(
        name=name,
        module=module,
        hooks=MappingProxyType(reads),
        parameters={hook: one.params for hook, one in hook_signatures(text).items()},
        defaults=MappingProxyType(dict(declaration(text).defaults)),
        is_builtin=False,
    )


def _idle(files: Files, policies: Mapping[str, Policy]) -> list[Policy]:
    """Files of the user without hooks that no other file loads."""
    loaded = {
        load.module
        for file, text in files.items()
        if not file.startswith("@") and (tree := parse(text)) is not None
        for load in loads_of(tree)
    }
    return [
        policy
        for policy in policies.values()
        if not policy.is_builtin and not policy.hooks and policy.module not in loaded
    ]


def _unloaded(policy: Policy) -> Problem:
    return Problem(
        policy.module,
        0,
        0,
        "defines no hook, and no file loads it",
        "hooks are top-level functions such as `def filter(pod, node)`",
        severity="warning",
    )


def _may_read_facts(files: Files, module: str) -> bool:
    """False if no text that *module* is made of names a field of facts."""
    texts = [files[file] for file in with_loaded(files, [module])]
    return any(field in text for text in texts for field in FACT_FIELDS)


def _enabled(
    profiles: Iterable[Profile],
    policies: Mapping[str, Policy],
    queue_tree: QueueTreePolicy | None,
) -> list[Policy]:
    """Those of *policies* that a profile enables, or that governs the queues, by name."""
    used = set() if queue_tree is None else {queue_tree.policy}
    used |= {
        enabled.policy
        for profile in profiles
        for point in profile.points.values()
        for enabled in point
    }
    return [policies[name] for name in sorted(used & policies.keys())]


def _facts_of_no_source(
    resolved: Profiles, policies: Mapping[str, Policy], facts: FactsConfig, configured_in: str
) -> Iterator[Problem]:
    """Policies in use that read facts of which no source can give any.

    Not reported for a policy that has a source for one of its facts: the others may be optional.
    """
    for policy in _enabled(resolved.profiles, policies, None):
        paths = {
            (v, path) for reads in policy.hooks.values() for v in VIEWS for path in reads.of(v)
        }
        paths -= {("cluster", f"facts[{name}]") for name in CLOCK_FACTS}
        parts = [path.removesuffix("]").partition("[") for _, path in paths]
        names = sorted({fact for field, _, fact in parts if field in FACT_FIELDS and fact})
        if not names or any(map(facts.may_give, names)):
            continue
        file = configured_in if policy.is_builtin else policy.module
        listed = ", ".join(f"`{name}`" for name in names)
        message = f"`{policy.name}` reads facts that no source gives: {listed}"
        hint = "`facts.sources` of a `PolicyRuntime` says where they come from"
        yield Problem(file, 0, 0, message, hint, severity="warning")


# --- extenders -------------------------------------------------------------------------------


def _ignore_resources(
    resolved: Profiles, names: Sequence[str], policies: Mapping[str, Policy]
) -> None:
    """Have NodeResourcesFit ignore the resources that an extender counts, and only those.

    As for kube-scheduler, the extenders' list takes the place of an `ignoredResources` argument.
    """
    policy = policies.get(_RESOURCES_POLICY)
    if not names or policy is None or _IGNORED not in policy.defaults:
        return
    ignored = {_IGNORED: list(names)}
    resolved.instances[:] = [
        replace(instance, args={**instance.args, **ignored})
        if instance.policy == _RESOURCES_POLICY
        else instance
        for instance in resolved.instances
    ]
    resolved.profiles[:] = [
        replace(profile, arguments=_with(profile.arguments, ignored))
        for profile in resolved.profiles
    ]


def _with(
    arguments: Mapping[str, Mapping[str, Any]], more: Mapping[str, Any]
) -> Mapping[str, Mapping[str, Any]]:
    if _RESOURCES_POLICY not in arguments:
        return arguments
    return {**arguments, _RESOURCES_POLICY: {**arguments[_RESOURCES_POLICY], **more}}


# --- revision --------------------------------------------------------------------------------


def _revision(
    files: Files, user_files: Mapping[str, str], config: KubeSchedulerConfiguration | None
) -> str:
    sha = hashlib.sha256()
    texts = {**files, **{f"user:{file}": text for file, text in user_files.items()}}
    if config is not None:
        texts["config:"] = config.text
    for name in sorted(texts):
        for part in (name, texts[name]):
            raw = part.encode(errors="surrogatepass")
            sha.update(len(raw).to_bytes(8, "big"))
            sha.update(raw)
    return sha.hexdigest()[:12]
