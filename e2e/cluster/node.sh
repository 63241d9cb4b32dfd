# The node: this machine with a kubelet, for a cluster with --node. Sourced by ./cluster; needs $dir, $here,
# $binaries, say, fail and the other parts.
#
# Pods change a machine in many places, and everything must be restored when the cluster is stopped, even after kills.
# Therefore all processes of the node are in their own mount namespace and cgroup (./inside): mounts and network
# namespaces of pods end with the last process, every process is in the cgroup, and /run, /var/lib and /var/log are in
# DIR/node. All other changes have unique names.

# In start order.
node_components=(namespace containerd kubelet kube-proxy kube-scheduler)

readonly node_name=node1
# Services are 10.96.0.0/16 with and without a node.
readonly node_address=10.245.0.1 pods=10.244.0.0/24 services=10.96.0.0/16
readonly node_bridge=squelch-node pods_bridge=squelch-pods
readonly node_cgroup=squelch-node # also in ./inside

# One node at a time on a machine: the DIR of its cluster, and the machine's previous settings.
readonly claim=/run/squelch-node
readonly claimed_within=1800 # seconds; the maximum time of a test run

# --- who has the machine ---------------------------------------------------------------------------------------

claimant() { cat "$claim/holder" 2>/dev/null || true; }

# abandoned DIR: whether the cluster of the node is abandoned: its folder or its owner is gone, or none of its
# processes runs and no script uses it.
abandoned() {
  local file pid
  [[ -e $1/$marker ]] || return 0
  if [[ -e $1/owner ]]; then
    recorded "$1/owner" && return 1
    return 0
  fi
  for file in "$1"/run/*.pid; do
    ! recorded "$file" || return 1
  done
  flock --nonblock "$1" true
}

# claim_machine: waits until no other cluster has a node here, and removes the remains of a killed one.
claim_machine() {
  local holder announced='' deadline=$((SECONDS + claimed_within))
  mkdir -p "$claim"
  exec 7>"$claim/lock"
  while :; do
    flock 7
    holder=$(claimant)
    [[ -n $holder && $holder != "$dir" ]] || break
    if abandoned "$holder"; then
      say "removing the node that the cluster in $holder has left"
      if [[ -e $holder/$marker ]]; then "$here/cluster" down "$holder" 7<&- 8<&-; else clear_node "$holder"; fi
      continue
    fi
    if [[ -z $announced ]]; then
      say "this machine is the node of the cluster in $holder$(owner_of "$holder"); waiting for its end"
      announced=yes
    fi
    ((SECONDS < deadline)) || fail "the cluster in $holder still has the node after $claimed_within s"
    flock --unlock 7
    sleep 1
  done
  [[ -n $holder ]] || require_unused_machine
  printf '%s' "$dir" >"$claim/holder.new"
  mv "$claim/holder.new" "$claim/holder"
  exec 7<&-
}

# sweep_machine: removes a node whose cluster's folder is gone.
sweep_machine() {
  local holder
  [[ -e $claim/holder && -w $claim ]] || return 0
  exec 7>"$claim/lock"
  flock 7
  holder=$(claimant)
  if [[ -n $holder && ! -e $holder/$marker ]]; then
    say "removing the node of the cluster in $holder, which does not exist"
    clear_node "$holder"
  fi
  exec 7<&-
}

owner_of() {
  local pid
  [[ ! -e $1/owner ]] || ! recorded "$1/owner" || printf ' (of process %s: %s)' "$pid" "$(tr '\0' ' ' <"/proc/$pid/cmdline")"
}

# require_unused_machine: another Kubernetes here would lose its rules to this one's cleaning up, and the other way round.
require_unused_machine() {
  local bridge range
  for bridge in "$node_bridge" "$pods_bridge"; do
    [[ ! -e /sys/class/net/$bridge ]] || fail "this machine has a bridge $bridge, but no cluster that created it"
  done
  [[ $(iptables-save 2>/dev/null) != *:KUBE-* ]] || fail "this machine already has rules of a kube-proxy: it is a node of another cluster"
  for range in "$node_address/32" "$pods" "$services"; do
    [[ -z $(ip -4 route show root "$range") ]] || fail "this machine already has a route to $range"
  done
}

# --- what the node is given ----------------------------------------------------------------------------------

# require_node: checks the requirements before any change.
require_node() {
  [[ $(id -u) == 0 ]] || fail "--node needs root: it runs containers and changes the machine's network"
  [[ $dir != /run/* && $dir != /var/* ]] || fail "a cluster with a node cannot be in $dir: the node has its own /run and /var"
  "$here/../../hack/tools" node
  pod_image=$("$here/pod/build")
}

# Settings that the node's programs change, to be restored.
node_sysctls=(
  kernel.keys.root_maxbytes kernel.keys.root_maxkeys kernel.panic kernel.panic_on_oops net.ipv4.conf.all.route_localnet
  net.ipv4.ip_forward vm.overcommit_memory vm.panic_on_oom
)

prepare_machine() {
  local name file
  if [[ ! -e $claim/sysctls ]]; then
    for name in "${node_sysctls[@]}"; do
      file=/proc/sys/${name//.//}
      [[ ! -e $file ]] || printf '%s %s\n' "$file" "$(<"$file")"
    done >"$claim/sysctls.new"
    mv "$claim/sysctls.new" "$claim/sysctls"
  fi
  ip link add "$node_bridge" type bridge
  ip address add "$node_address/32" dev "$node_bridge"
  ip link set "$node_bridge" up
  # Unknown Service addresses must not leave the machine, and pods need no route to the outside.
  ip route add "$services" dev "$node_bridge" src "$node_address"
}

prepare_node() {
  mkdir -p "$dir"/node/{cni,run,lib,log}
  : >"$dir/node/resolv.conf"
  certificate kubelet "/O=system:nodes/CN=system:node:$node_name" "IP:$node_address,DNS:$node_name"
  certificate kube-proxy /CN=system:kube-proxy
  certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client
  local name
  for name in kubelet kube-proxy; do
    kubeconfig "$name" "$dir/$name.kubeconfig" "$(<"$dir/run/server")"
  done
  inside_command_line namespace
  write_containerd
  write_kubelet
  write_kube_proxy
  write_scheduler "$here/inside" "$dir"
}

# inside_command_line NAME COMMAND...: records that NAME runs in the node's namespace and cgroup; without a command,
# NAME is the process that creates them.
inside_command_line() {
  command_line "$1" "$here/inside" "$dir" "${@:2}"
}

write_containerd() {
  local snapshotter=overlayfs
  # A container's own file system cannot be stacked again.
  [[ $(stat --file-system --format=%T "$dir") != overlayfs ]] || snapshotter=native
  printf '%s' "$snapshotter" >"$dir/node/snapshotter"
  cat >"$dir/node/containerd.toml" <<TOML
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "squelch.dev/test-pod:1"
stream_server_address = "127.0.0.1"
# In a container, lowering it may be forbidden, and runc then dies without a message.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "$snapshotter"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$dir/node/cni"
TOML
  cat >"$dir/node/cni/pods.conflist" <<JSON
{
  "cniVersion": "1.0.0",
  "name": "squelch-pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "$pods_bridge",
      "isGateway": true,
      "ipMasq": true,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "$pods"}]],
        "routes": [{"dst": "0.0.0.0/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
JSON
  inside_command_line containerd containerd --config "$dir/node/containerd.toml"
}

write_kubelet() {
  # The cgroups are managed without systemd, as on a machine without it. Kubernetes 1.30 does not have this field.
  local cgroup_v1='failCgroupV1: false'
  [[ ${binaries##*/} != kube-1.30.* ]] || cgroup_v1=''
  cat >"$dir/node/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $node_address
healthzPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $dir/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $dir/pki/kubelet.crt
tlsPrivateKeyFile: $dir/pki/kubelet.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$node_cgroup
$cgroup_v1
failSwapOn: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
volumePluginDir: /var/lib/kubelet/volume-plugins
# No server is there; without an address each pod would get a Warning Event.
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: $dir/node/resolv.conf
# The disk belongs to the machine: pods must not be evicted for its usage.
evictionHard: {memory.available: 1%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
imageGCHighThresholdPercent: 100
YAML
  inside_command_line kubelet "$binaries/kubelet" \
    --config="$dir/node/kubelet.yaml" --kubeconfig="$dir/kubelet.kubeconfig" \
    --hostname-override="$node_name" --node-ip="$node_address"
}

write_kube_proxy() {
  local arguments=(
    --kubeconfig="$dir/kube-proxy.kubeconfig"
    --hostname-override="$node_name"
    --proxy-mode=iptables
    --cluster-cidr="$pods"
    --bind-address="$node_address"
    --metrics-bind-address="$node_address:10249"
    --healthz-bind-address="$node_address:10256"
    # Node ports are not for the network of this machine.
    --nodeport-addresses="$node_address/32"
    --iptables-localhost-nodeports=false
    # The machine's own limits stay.
    --conntrack-max-per-core=0
    --conntrack-tcp-timeout-established=0
    --conntrack-tcp-timeout-close-wait=0
    --oom-score-adj=0
  )
  inside_command_line kube-proxy "$binaries/kube-proxy" "${arguments[@]}"
}

# --- up and down -----------------------------------------------------------------------------------------------

# start_node: starts the components in order, because containerd needs the mounts, and the kubelet exits without
# containerd. Fails with $culprit as until_ready does.
start_node() {
  start namespace
  until_running namespace test -e "$dir/node/run/ready" || return 1
  start containerd
  until_running containerd containerd_client version || return 1
  load "$pod_image" || return 1
  start kubelet
  start kube-proxy
  start kube-scheduler
}

containerd_client() { ctr --address "$dir/node/run/containerd/containerd.sock" --namespace k8s.io "$@"; }

# load ARCHIVE: loads an OCI archive into the node.
load() {
  containerd_client images import --snapshotter "$(<"$dir/node/snapshotter")" "$1" >>"$dir/logs/images.log" 2>&1 ||
    { blame images && return 1; }
}

node_is_ready() {
  fetch "/api/v1/nodes/$node_name" | jq --exit-status \
    '(.status.conditions | any(.type == "Ready" and .status == "True")) and (.spec.taints // [] == [])' >/dev/null &&
    curl --silent --fail --max-time 5 "http://$node_address:10256/healthz" >/dev/null
}

# clear_node DIR: removes that cluster's node, running, incomplete or killed; the claim last. Pods are not terminated
# gracefully.
clear_node() {
  local bridge file value
  [[ $(claimant) == "$1" ]] || return 0
  end_cgroup
  for bridge in "$pods_bridge" "$node_bridge"; do
    [[ ! -e /sys/class/net/$bridge ]] || ip link delete "$bridge"
  done
  clear_rules iptables '(KUBE|CNI)-'
  clear_rules ip6tables '(KUBE|CNI)-'
  # The next cluster has the same addresses.
  for value in "$pods" "$services"; do
    conntrack --delete --orig-dst "$value" >/dev/null 2>&1 || true
    conntrack --delete --orig-src "$value" >/dev/null 2>&1 || true
  done
  if [[ -e $claim/sysctls ]]; then
    while read -r file value; do
      [[ $(<"$file") == "$value" ]] || printf '%s' "$value" >"$file"
    done <"$claim/sysctls"
  fi
  rm -f "$claim/sysctls" "$claim/holder"
}

cgroup_mounts() { awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts; }

# end_cgroup: kills all processes in the node's cgroups, and removes the cgroups.
end_cgroup() {
  local mount folder pids deadline=$((SECONDS + 60))
  while :; do
    pids=$(for mount in $(cgroup_mounts); do
      [[ ! -d $mount/$node_cgroup ]] || find "$mount/$node_cgroup" -name cgroup.procs -exec cat {} + 2>/dev/null
    done | sort -un) || true
    [[ -n $pids ]] || break
    ((SECONDS < deadline)) || fail "processes of the node do not end: ${pids//$'\n'/ }"
    # shellcheck disable=SC2086  # one word each
    kill -s KILL $pids 2>/dev/null || true
    sleep 0.05
  done
  for mount in $(cgroup_mounts); do
    [[ -d $mount/$node_cgroup ]] || continue
    # From the leaves; a killed process may stay in it for a moment.
    until find "$mount/$node_cgroup" -depth -type d -exec rmdir {} + 2>/dev/null; do
      ((SECONDS < deadline)) || break
      sleep 0.05
      [[ -d $mount/$node_cgroup ]] || break
    done
    [[ ! -d $mount/$node_cgroup ]] || fail "the cgroup $mount/$node_cgroup cannot be removed"
  done
}

# clear_rules iptables|ip6tables PREFIX: removes the chains whose names begin with PREFIX, such as those of kube-proxy and
# of the CNI plugins, and the jumps to them.
clear_rules() {
  command -v "$1-save" >/dev/null || return 0
  # shellcheck disable=SC2016  # awk's
  "$1-save" 2>/dev/null | awk -v prefix="$2" '
    /^\*/ { jumps = chains = ""; print }
    $0 ~ "^:" prefix { print $1 " - [0:0]"; chains = chains "-X " substr($1, 2) "\n" }
    $0 ~ "^-A " prefix { next }
    $0 ~ "^-A .* -[jg] " prefix { sub(/^-A/, "-D"); jumps = jumps $0 "\n" }
    /^COMMIT/ { printf "%s%s%s\n", jumps, chains, $0 }
  ' | "$1-restore" --noflush
}
