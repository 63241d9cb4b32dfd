# Daemons that outlive the script that starts them, and are identified reliably. Sourced by ./cluster; needs $dir, say
# and fail.

# A process is identified by its pid and its start time, because pids are reused. Fields of /proc/PID/stat are counted
# after the last ")": a process may have any name. A zombie counts as ended, unless it still has threads: its first
# thread has exited, and the last one, which frees the memory, holds its ports for another 100 ms.
start_time() {
  local stat fields
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  read -ra fields <<<"${stat##*) }"
  [[ ${fields[0]} != Z || ${fields[17]} -gt 1 ]] || return 1
  printf '%s' "${fields[19]}"
}

# recorded FILE: sets $pid if the process in the file still runs.
recorded() {
  local started now
  pid=''
  [[ -s $1 ]] && read -r pid started <"$1" && now=$(start_time "$pid") && [[ $now == "$started" ]]
}

running() { recorded "$dir/run/$1.pid"; }

# start NAME: runs the recorded command line of NAME. The process writes its own pid file before it execs the daemon,
# so that a killed script leaves no unrecorded daemon.
start() {
  local name=$1 command
  mapfile -d '' -t command <"$dir/run/$name.command"
  rm -f "$dir/run/$name.pid"
  # fd 8 is the lock of the folder: the daemon must not inherit it.
  setsid bash -c '
    read -r stat </proc/$$/stat
    read -ra fields <<<"${stat##*) }"
    echo "$$ ${fields[19]}" >"$0.new" && mv "$0.new" "$0" && exec "$@"
  ' "$dir/run/$name.pid" "${command[@]}" </dev/null >>"$dir/logs/$name.log" 2>&1 8<&- &
  disown
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    [[ ! -s $dir/run/$name.pid ]] || return 0
    sleep 0.05
  done
  fail "$name could not be started"
}

# stop NAME [SIGNAL [SECONDS]]: sends the signal, and SIGKILL if the process still exists after SECONDS.
stop() {
  local name=$1 signal=${2:-TERM} patience=${3:-10} file=$dir/run/$1.pid pid
  if recorded "$file"; then
    kill -s "$signal" "$pid" 2>/dev/null || true
    local deadline=$((SECONDS + patience))
    while recorded "$file" && ((SECONDS < deadline)); do sleep 0.05; done
    if recorded "$file"; then
      kill -s KILL "$pid" 2>/dev/null || true
      while recorded "$file"; do sleep 0.05; done
    fi
  fi
  rm -f "$file"
}

# blame NAME: prints the end of its log.
blame() {
  say "--- the end of $dir/logs/$1.log:"
  tail -n 25 "$dir/logs/$1.log" >&2 || true
  say "---"
}
