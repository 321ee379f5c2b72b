"""YAML as the API server reads it, in which times are text."""

import yaml


class DatelessLoader(yaml.CSafeLoader):
    """YAML without its dates: the times of Kubernetes are text."""


DatelessLoader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for letter, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
