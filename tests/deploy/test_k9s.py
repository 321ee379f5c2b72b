"""The plugins for k9s name commands and flags that exist."""

import shlex
from pathlib import Path

import click
import yaml

from workbench.cli.kubectl_plugin import main

PLUGINS = Path(__file__).parents[2] / "deploy" / "k9s" / "plugins.yaml"


def test_each_plugin_runs_a_command_that_exists() -> None:
    plugins = yaml.safe_load(PLUGINS.read_text())["plugins"]
    assert plugins
    for name, plugin in plugins.items():
        assert plugin.keys() >= {"shortCut", "description", "scopes", "command", "args"}, name
        flag, script, *values = plugin["args"]
        assert (plugin["command"], flag) == ("sh", "-c")
        kubectl, starsched, command, *words = shlex.split(script.partition("|")[0])
        assert (kubectl, starsched) == ("kubectl", "starsched")
        found = main.commands[command]
        known = {
            flag
            for parameter in found.params
            if isinstance(parameter, click.Option)
            for flag in parameter.opts
        }
        assert {word for word in words if word.startswith("-")} <= known
        # What k9s fills in comes as an argument: a name must not become a part of the script.
        assert {word for word in words if word.startswith("$")} == {
            f"${number}" for number in range(len(values))
        }
    assert len({plugin["shortCut"] for plugin in plugins.values()}) == len(plugins)
