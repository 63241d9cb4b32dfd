# The command lines of the components. Sourced by ./cluster; needs $dir, $binaries, the ports and the options.

# know_components [NODE]: sets $control_components and $components, in start order; they stop in reverse order. $servers are the
# API servers. Those that an option adds are known by their recorded command lines.
know_components() {
  control_components=(etcd)
  [[ ! -e $dir/run/etcd-events.command ]] || control_components+=(etcd-events)
  control_components+=("${servers[@]}" kube-controller-manager)
  [[ -n $1 || ! -e $dir/run/kube-scheduler.command ]] || control_components+=(kube-scheduler)
  components=("${control_components[@]}")
  [[ -z $1 ]] || components+=("${node_components[@]}")
}

# command_line NAME COMMAND...: records the command line of NAME, with NUL between the arguments. A restart uses the same
# file.
command_line() {
  printf '%s\0' "${@:2}" >"$dir/run/$1.command"
}

# write_etcd NAME CLIENT_PORT PEER_PORT METRICS_PORT
write_etcd() {
  # Clients need a certificate: every user of the machine can connect to the socket, and the kubelet of the node runs
  # the contents of etcd as root. The metrics are plain HTTP and contain no secrets.
  local arguments=(
    --name="$1"
    --data-dir="$dir/$1"
    --listen-client-urls="https://127.0.0.1:$2"
    --advertise-client-urls="https://127.0.0.1:$2"
    --listen-peer-urls="http://127.0.0.1:$3"
    --initial-advertise-peer-urls="http://127.0.0.1:$3"
    --initial-cluster="$1=http://127.0.0.1:$3"
    --listen-metrics-urls="http://127.0.0.1:$4"
    --client-cert-auth
    --trusted-ca-file="$dir/pki/ca.crt"
    --cert-file="$dir/pki/etcd.crt"
    --key-file="$dir/pki/etcd.key"
    --quota-backend-bytes=4294967296
    --log-level=warn
  )
  # Tests need no durability, and the disks of test machines are slow. Measurements use real fsyncs.
  [[ $fsync == yes ]] || arguments+=(--unsafe-no-fsync)
  command_line "$1" "$binaries/etcd" "${arguments[@]}"
}

# write_apiserver COMPONENT ADDRESS [PREFIX...]: PREFIX is a command that runs the server.
write_apiserver() {
  local component=$1 address=$2
  shift 2
  # shellcheck disable=SC2054  # one flag with a comma
  local arguments=(
    --etcd-servers="https://127.0.0.1:$etcd_port"
    --etcd-cafile="$dir/pki/ca.crt"
    --etcd-certfile="$dir/pki/apiserver-etcd.crt"
    --etcd-keyfile="$dir/pki/apiserver-etcd.key"
    --bind-address="$address"
    --advertise-address="$address"
    --secure-port="$apiserver_port"
    --service-cluster-ip-range=10.96.0.0/16
    --authorization-mode=Node,RBAC
    --client-ca-file="$dir/pki/ca.crt"
    --tls-cert-file="$dir/pki/apiserver.crt"
    --tls-private-key-file="$dir/pki/apiserver.key"
    --service-account-issuer=https://kubernetes.default.svc
    --service-account-key-file="$dir/pki/service-account.key"
    --service-account-signing-key-file="$dir/pki/service-account.key"
    --enable-admission-plugins=NodeRestriction
    # A clean stop waits for requests in flight; there is no load balancer to drain.
    --shutdown-delay-duration=0
    # Without this flag a clean stop takes a minute: watches of controllers count as requests.
    --shutdown-watch-termination-grace-period=1s
  )
  if [[ $node == yes ]]; then
    arguments+=(
      --kubelet-certificate-authority="$dir/pki/ca.crt"
      --kubelet-client-certificate="$dir/pki/apiserver-kubelet.crt"
      --kubelet-client-key="$dir/pki/apiserver-kubelet.key"
      --kubelet-preferred-address-types=InternalIP
    )
  elif ((apiservers == 0)); then
    # The Service "kubernetes" is not used, and an endpoint must not be a loopback address: so no endpoints are
    # written.
    arguments+=(--endpoint-reconciler-type=none)
  fi
  [[ $events_etcd == no ]] || arguments+=(--etcd-servers-overrides="/events#https://127.0.0.1:$events_etcd_port")
  # Priority and fairness has its defaults: tests check whether it answers 429 while a webhook hangs.
  if [[ -n $audit_policy ]]; then
    cp "$audit_policy" "$dir/audit-policy.yaml"
    arguments+=(--audit-policy-file="$dir/audit-policy.yaml" --audit-log-path="$dir/logs/audit${component#kube-apiserver}.log")
    # By default a log of 100 MB is renamed and another one begun, so that a reader misses what it waits for.
    arguments+=(--audit-log-maxsize=100000)
  fi
  # Last, so that they override the flags above.
  command_line "$component" "$@" "$binaries/kube-apiserver" "${arguments[@]}" "${apiserver_flags[@]}"
}

write_controller_manager() {
  command_line kube-controller-manager "$binaries/kube-controller-manager" \
    --kubeconfig="$dir/controller-manager.kubeconfig" \
    --service-account-private-key-file="$dir/pki/service-account.key" \
    --root-ca-file="$dir/pki/ca.crt" \
    --use-service-account-credentials \
    --leader-elect=false \
    --secure-port=0 \
    --concurrent-namespace-syncs=20 \
    --kube-api-qps=2000 \
    --kube-api-burst=4000
}

# write_scheduler [PREFIX...]: PREFIX is a command that runs it.
write_scheduler() {
  certificate kube-scheduler /CN=system:kube-scheduler
  kubeconfig kube-scheduler "$dir/kube-scheduler.kubeconfig" "$(<"$dir/run/server")"
  command_line kube-scheduler "$@" "$binaries/kube-scheduler" --kubeconfig="$dir/kube-scheduler.kubeconfig" \
    --leader-elect=false --secure-port=0
}
