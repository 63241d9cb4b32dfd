# Several API servers on one etcd, for a cluster with --apiservers (root). Sourced by ./cluster; needs $dir, say, fail and
# the other parts.
#
# Each server has an address of its own on a bridge, which it publishes as an endpoint of the Service "kubernetes", and a
# user id of its own, by which rules of iptables match its packets: `cluster path` changes its way to a webhook alone.
# Several such clusters run at the same time: the number in the name of the bridge is also in the addresses and user ids.

readonly servers_bridge=squelch-api- # and the number of the cluster
readonly first_user=200000           # no user of a machine
readonly servers_lock=/run/squelch-apiservers.lock
readonly most_servers=5

# name_servers: sets $servers to the components of $apiservers API servers; the first has the name that it has alone.
name_servers() {
  local index
  servers=(kube-apiserver)
  for ((index = 2; index <= apiservers; index++)); do servers+=("kube-apiserver-$index"); done
}

# know_servers: sets $servers to those of the folder.
know_servers() {
  local index
  servers=(kube-apiserver)
  for ((index = 2; index <= most_servers; index++)); do
    [[ ! -e $dir/run/kube-apiserver-$index.command ]] || servers+=("kube-apiserver-$index")
  done
}

require_servers() {
  [[ $(id -u) == 0 ]] || fail "--apiservers needs root: it adds a bridge and rules of iptables"
  [[ $node == no ]] || fail "--apiservers and --node cannot be combined"
  "$here/../../hack/tools" apiservers
}

# claim_bridge: adds the bridge with the first free number.
claim_bridge() {
  local number
  exec 7>"$servers_lock"
  flock 7
  for ((number = 0; number < 250; number++)); do
    [[ -e /sys/class/net/$servers_bridge$number ]] || break
  done
  ip link add "$servers_bridge$number" type bridge || fail "cannot add a bridge for the API servers"
  # Says whose it is, for `cluster sweep`.
  ip link set "$servers_bridge$number" alias "$dir" up
  exec 7<&-
  printf '%s' "$number" >"$dir/run/number"
}

# prepare_servers: adds the addresses, and for each server a chain in the tables filter and nat that all its packets pass.
prepare_servers() {
  local index number address
  claim_bridge
  number=$(<"$dir/run/number")
  for address in $(server_addresses); do ip address add "$address/32" dev "$servers_bridge$number"; done
  {
    local table
    for table in filter nat; do
      echo "*$table"
      for ((index = 1; index <= apiservers; index++)); do
        echo ":$(server_chain "$number" "$index") - [0:0]"
        echo "-A OUTPUT -m owner --uid-owner $(server_user "$number" "$index") -j $(server_chain "$number" "$index")"
      done
      echo COMMIT
    done
  } | iptables-restore --wait --noflush
}

# server_addresses: one per line.
server_addresses() {
  local index
  for ((index = 1; index <= apiservers; index++)); do echo "10.246.$(<"$dir/run/number").$index"; done
}

# server_index COMPONENT: 1 for kube-apiserver, 2 for kube-apiserver-2.
server_index() {
  local index=${1#kube-apiserver}
  index=${index#-}
  echo "${index:-1}"
}

server_url() { cut -d ' ' -f "$(server_index "$1")" "$dir/run/servers"; }

server_user() { echo $((first_user + 10 * $1 + $2)); }
server_chain() { echo "SQUELCH-$1-$2"; }

# as_server_user INDEX: sets $prefix to a command that runs another one as the user of a server. It may read all files,
# as root may: the keys are in a folder of root.
as_server_user() {
  prefix=(setpriv "--reuid=$(server_user "$(<"$dir/run/number")" "$1")" --regid=0 --clear-groups
    --inh-caps=+dac_override --ambient-caps=+dac_override --)
}

# servers_are_listed: whether the Service "kubernetes" has an endpoint for each server.
servers_are_listed() {
  fetch /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes |
    jq --exit-status --arg servers "$(tr ' ' '\n' <"$dir/run/servers" | sed 's|https://||; s|:.*||' | sort)" \
      '([.endpoints[].addresses[]] | sort) == ($servers | split("\n"))' >/dev/null
}

# path COMPONENT drop|refuse|heal [PORT] or redirect PORT TO: the way of one server to a port, e.g. of a webhook.
change_path() {
  local number chain fault=$2 port=${3:-} to=${4:-}
  [[ -e $dir/run/number ]] || fail "the cluster in $dir was not started with --apiservers"
  known "$1"
  number=$(<"$dir/run/number")
  chain=$(server_chain "$number" "$(server_index "$1")")
  [[ $fault == heal || $port =~ ^[0-9]+$ ]] || fail "path $fault takes a port"
  local match="-A $chain -p tcp --dport $port" filter='' nat=''
  case $fault in
    drop) filter="$match -j DROP" ;;
    refuse) filter="$match -j REJECT --reject-with tcp-reset" ;;
    redirect)
      [[ $to =~ ^[0-9]+$ ]] || fail "path redirect takes two ports"
      nat="$match -j REDIRECT --to-ports $to"
      # Redirected packets no longer have this port: these belong to older connections, which must not go on.
      filter="$match -j REJECT --reject-with tcp-reset"
      ;;
    heal) ;;
    *) fail "a path can be made to drop, refuse, redirect or heal, not to $fault" ;;
  esac
  # Both tables of a chain are emptied first; iptables-restore changes a table at once.
  printf '%s\n' '*nat' "-F $chain" "$nat" COMMIT '*filter' "-F $chain" "$filter" COMMIT |
    iptables-restore --wait --noflush
}

# clear_servers DIR: removes what prepare_servers has added for the cluster in DIR, the bridge last.
clear_servers() {
  local bridge
  for bridge in /sys/class/net/"$servers_bridge"*; do
    [[ ! -e $bridge || $(<"$bridge/ifalias") != "$1" ]] || clear_bridge "${bridge##*/}"
  done
}

clear_bridge() {
  clear_rules iptables "SQUELCH-${1#"$servers_bridge"}-"
  ip link delete "$1"
}

# sweep_servers: removes the bridges of clusters whose folder is gone.
sweep_servers() {
  local bridge folder
  [[ -w $servers_lock ]] || return 0
  exec 7>"$servers_lock"
  flock 7
  for bridge in /sys/class/net/"$servers_bridge"*; do
    [[ -e $bridge ]] || continue
    folder=$(<"$bridge/ifalias")
    [[ -z $folder || ! -e $folder/$marker ]] || continue
    say "removing the bridge ${bridge##*/} of a cluster that does not exist"
    clear_bridge "${bridge##*/}"
  done
  exec 7<&-
}
