"""What hooks loop over, through the helpers that they call."""

from workbench.lint.cost import hook_cost


def test_helpers_are_visited_once_for_all_the_ways_to_them() -> None:
    """Twelve helpers that each called the next one four times took hours."""
    chain = [f"def f{n}(x):\n    return {' + '.join([f'f{n + 1}(x)'] * 4)}\n" for n in range(11)]
    last = "def f11(x):\n    return [c for c in x.containers]\n"
    hook = "def filter(pod, node):\n    return f0(pod)\n"
    found = hook_cost("p", {"x.star": "\n".join([*chain, last, hook])}, "x.star", "filter")
    assert found.loops == (("pod.containers",),)


def test_helpers_are_visited_for_each_value_that_they_are_given() -> None:
    text = "def each(x):\n    return [y for y in x]\n\n"
    text += "def filter(pod, node):\n    return each(pod.containers) + each(node.taints)\n"
    found = hook_cost("p", {"x.star": text}, "x.star", "filter")
    assert found.loops == (("node.taints",), ("pod.containers",))
