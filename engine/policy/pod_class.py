"""Which pods are equal to policies but for their names: the rows of the queue, the log's groups."""

import hashlib
from typing import Final

import msgspec

from engine.core.model.pod import Pod
from engine.policy.pod_views import spec_text

#: Labels that differ between the pods of one workload, and mean nothing else.
_OF_ONE_POD: Final = frozenset(
    (
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    )
)


def class_of(pod: Pod, *, with_requests: bool = True) -> bytes:
    """A digest of what pods have in common that are equal to policies, apart from their names.

    Without *with_requests*, also of pods that differ in what they request.
    """
    labels = sorted(label for label in pod.labels.items() if label[0] not in _OF_ONE_POD)
    text = msgspec.json.encode((pod.namespace, labels)) + spec_text(pod, with_requests)
    return hashlib.blake2b(text, digest_size=16).digest()
