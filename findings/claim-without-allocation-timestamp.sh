#!/usr/bin/env bash
# Packages:  k8s.io/kubernetes v1.37.2 (kube-apiserver, kube-scheduler) and go.etcd.io/etcd/server/v3,
#            built from their published Go modules, pinned by controlplane/1.37/go.mod.
# Behaviour: A ResourceClaim whose allocation has no `allocationTimestamp` cannot be used by any pod.
#            The field is optional and the API server takes the status without it, as a driver's
#            controller, a restored backup or a scheduler of an earlier version writes it. For a pod
#            that names the claim, kube-scheduler has only to add the pod to `status.reservedFor`; it
#            sets the missing timestamp as well, the API server refuses that because an allocation
#            is immutable, and the pod is tried again for ever.
# Why a good guess fails: the claim is valid and allocated, its node fits, and a reservation is an
#            allowed update. One expects the pod to be bound (as it is if the allocation has the
#            timestamp, which is the control below), or the status without it to be refused.
# Output seen:
#   with timestamp:    bound to n1
#   without timestamp: SchedulerError running PreBind plugin "DynamicResources": add reservation to
#     claim default/without: ResourceClaim.resource.k8s.io "without" is invalid: status.allocation:
#     Invalid value: null: field cannot be modified once set
#   as described
# Needs go 1.26, openssl and curl. KUBE_BIN=DIR takes the three binaries from there.
# Exits with 0 if it is as described, with 1 if not, with 2 if it could not be tried.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=()
finish() {
    # Nothing of it is kept, and a server that ends in order waits for its clients.
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
cannot() {
    echo "could not be tried: $1" >&2
    exit 2
}

bin=${KUBE_BIN:-$work/bin}
if [ -z "${KUBE_BIN:-}" ]; then
    mkdir -p "$work/src" "$bin"
    cp "$here"/../controlplane/1.37/go.mod "$here"/../controlplane/1.37/go.sum "$work/src"
    (
        cd "$work/src"
        export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false"
        go build -o "$bin/etcd" go.etcd.io/etcd/server/v3
        go build -o "$bin/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
        go build -o "$bin/kube-scheduler" k8s.io/kubernetes/cmd/kube-scheduler
    ) || cannot "the programs do not build"
fi

read -r etcd peer api < <(
    python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[one.bind(("127.0.0.1", 0)) for one in s]
print(*[one.getsockname()[1] for one in s])'
)
token=$(openssl rand -hex 16)
openssl genrsa -out "$work/key" 2048 2>/dev/null
echo "$token,admin,admin,system:masters" >"$work/tokens.csv"

"$bin/etcd" --data-dir="$work/etcd" --unsafe-no-fsync --log-level=error \
    --listen-client-urls="http://127.0.0.1:$etcd" --advertise-client-urls="http://127.0.0.1:$etcd" \
    --listen-peer-urls="http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls="http://127.0.0.1:$peer" \
    --initial-cluster="default=http://127.0.0.1:$peer" >"$work/etcd.log" 2>&1 &
pids+=($!)
"$bin/kube-apiserver" --etcd-servers="http://127.0.0.1:$etcd" --bind-address=127.0.0.1 \
    --secure-port="$api" --advertise-address=192.0.2.1 --endpoint-reconciler-type=none \
    --cert-dir="$work/certificates" --token-auth-file="$work/tokens.csv" --authorization-mode=RBAC \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$work/key" --service-account-signing-key-file="$work/key" \
    --service-cluster-ip-range=10.0.0.0/24 \
    --disable-admission-plugins=ServiceAccount,TaintNodesByCondition \
    >"$work/apiserver.log" 2>&1 &
pids+=($!)

call() { # METHOD PATH [BODY]
    curl -sSk --max-time 20 -X "$1" -H "Authorization: Bearer $token" \
        -H "Content-Type: application/json" ${3+--data "$3"} "https://127.0.0.1:$api$2"
}
get() { # EXPRESSION, of the JSON document `d` on stdin
    python3 -c "import json, sys; d = json.load(sys.stdin); print($1)"
}
for _ in $(seq 240); do
    [ "$(call GET /readyz 2>/dev/null)" = ok ] && break
    sleep 0.5
done
[ "$(call GET /readyz)" = ok ] || cannot "the API server does not get ready"

cat >"$work/kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:$api", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: "$token"}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
EOF

devices=/apis/resource.k8s.io/v1
claims=$devices/namespaces/default/resourceclaims
pods=/api/v1/namespaces/default/pods
for _ in $(seq 60); do
    call GET /api/v1/namespaces/default | grep -q '"Active"' && break
    sleep 0.5
done
amounts='{"cpu": "4", "memory": "8Gi", "pods": "10"}'
call POST /api/v1/nodes '{"metadata": {"name": "n1"}}' >/dev/null
node=$(call GET /api/v1/nodes/n1 | get "json.dumps({**d, 'status': {'capacity': $amounts, 'allocatable': $amounts}})")
call PUT /api/v1/nodes/n1/status "$node" >/dev/null
call POST $devices/deviceclasses '{"metadata": {"name": "d"}, "spec": {}}' >/dev/null
call POST $devices/resourceslices '{"metadata": {"name": "n1"}, "spec": {"driver": "d.example.com",
    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n1",
    "devices": [{"name": "a"}, {"name": "b"}]}}' >/dev/null

claim() { # NAME DEVICE TIMESTAMP: an allocated claim, and a pod that names it
    call POST $claims '{"metadata": {"name": "'"$1"'",
        "finalizers": ["resource.kubernetes.io/delete-protection"]}, "spec": {"devices":
        {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}}' >/dev/null
    made=$(call GET "$claims/$1" | get "json.dumps({**d, 'status': {'allocation': {**$3,
        'devices': {'results': [{'request': 'r', 'driver': 'd.example.com', 'pool': 'n1',
        'device': '$2'}]}}}})")
    call PUT "$claims/$1/status" "$made" | get "d['status']['allocation']" >/dev/null ||
        cannot "the API server refuses the status of claim $1"
    call POST $pods '{"metadata": {"name": "'"$1"'"}, "spec": {"containers": [{"name": "c",
        "image": "x", "resources": {"claims": [{"name": "r"}]}}],
        "resourceClaims": [{"name": "r", "resourceClaimName": "'"$1"'"}]}}' >/dev/null
}
claim with a "{'allocationTimestamp': '2026-01-01T00:00:00Z'}"
claim without b "{}"

"$bin/kube-scheduler" --kubeconfig="$work/kubeconfig" --leader-elect=false --secure-port=0 \
    --authentication-skip-lookup=true >"$work/scheduler.log" 2>&1 &
pids+=($!)

fate() { # POD: the node, or the reason and message of its condition
    call GET "$pods/$1" | get "'bound to ' + d['spec']['nodeName'] if d['spec'].get('nodeName') else
        ' '.join(c.get('reason', '') + ' ' + c.get('message', '')
        for c in d.get('status', {}).get('conditions', []) if c['type'] == 'PodScheduled')" |
        tr '\n' ' '
}
for _ in $(seq 60); do
    with=$(fate with) without=$(fate without)
    case "$with|$without" in "bound to n1 |bound to n1 " | "bound to n1 |SchedulerError"*) break ;; esac
    sleep 1
done
echo "with timestamp:    $with"
echo "without timestamp: $without"
case "$with|$without" in
"bound to n1 |SchedulerError"*"add reservation to claim default/without"*"field cannot be modified once set"*)
    # It is tried again, and never bound.
    sleep 15
    case "$(fate without)" in
    SchedulerError*) echo "as described" && exit 0 ;;
    esac
    ;;
"bound to n1 |"*) ;;
*) cannot "the pod whose claim has a timestamp is not bound" ;;
esac
echo "not as described"
exit 1
