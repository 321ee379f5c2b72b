"""The form of a hook's entry in the table of hooks.

Owns the form alone. The entries are in `hooks`, for pods and nodes, and in `tree_hooks`, for
queues.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.language.verdicts import NOTHING, Form


@dataclass(frozen=True, slots=True)
class HookParameter:
    """A parameter of hooks.

    Attributes:
        type: Its type text; `view:pod` is a whole view.
        doc: What it is, for the documents.
    """

    type: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook: everything that is known of it.

    Attributes:
        name: Its name.
        parameters: The parameters that it may name, in order.
        required: How many of them it must name: the first ones.
        is_per_node: It is asked once per node; others once per pod, score, or set of nodes.
        forms: What it may return.
        raw_forms: What it may return instead in a policy that has `normalize`.
        hints: What helps with a value of another type, by Starlark's name of the type; `[]` for an
            empty list. `{v}` stands for the value.
        lint_hints: The same where the value is not known yet, by kind; `""` for any kind.
        none_means: What a missing answer means, where that is easily overlooked.
        plugin_set: The field of KubeSchedulerConfiguration's `plugins` that switches it on; empty:
            the policy's other hooks do.
        counted_as: The extension point that metrics show for it, if it is not named like
            *plugin_set*.
        given: What a parameter is where that is not as in `PARAMETERS`.
        called: When it is called, for the documents.
        returns: What it returns and what that means, for the documents.
    """

    name: str
    parameters: tuple[str, ...]
    required: int
    is_per_node: bool = False
    forms: tuple[Form, ...]
    raw_forms: tuple[Form, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)
    lint_hints: Mapping[str, str] = field(default_factory=dict)
    none_means: str = ""
    plugin_set: str = ""
    counted_as: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    called: str
    returns: str

    def forms_for(self, *, is_normalized: bool) -> tuple[Form, ...]:
        """What it may return in a policy that has `normalize`, or has not."""
        return self.raw_forms or self.forms if is_normalized else self.forms

    @property
    def extension_point(self) -> str:
        """The extension point that metrics show for it, by kube-scheduler's name."""
        return self.counted_as or self.plugin_set[:1].upper() + self.plugin_set[1:]

    @property
    def shown_parameters(self) -> list[str]:
        """Its parameters as the documents show them: `state?` may be left out."""
        required = self.parameters[: self.required]
        return [*required, *(f"{name}?" for name in self.parameters[self.required :])]

    @property
    def may_reject(self) -> bool:
        """True if one of its verdicts keeps the pod from being placed."""
        return self.may_return("reject()") or any("a reason" in form.said for form in self.forms)

    def may_return(self, kind: str) -> bool:
        """True if one of its forms is of this kind, such as `list` or `state()`."""
        return any(kind in form.kinds for form in self.forms)

    @property
    def may_return_none(self) -> bool:
        """True if None is a verdict."""
        return NOTHING in self.forms
