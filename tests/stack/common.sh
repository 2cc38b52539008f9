# Sourced by every part: paths, ports and the few helpers that they share.
#
#   LANDFALL_CACHE            what is downloaded or built once (default ~/.cache/landfall)
#   LANDFALL_STACK_RUN        pids, logs and data of one running stack (default $LANDFALL_CACHE/run)
#   LANDFALL_STACK_PORT_BASE  first of the ports; a second stack needs another run folder and another base (default 19090)
CACHE=${LANDFALL_CACHE:-$HOME/.cache/landfall}
RUN=${LANDFALL_STACK_RUN:-$CACHE/run}
mkdir -p "$CACHE" "$RUN"
CACHE=$(cd "$CACHE" && pwd)
RUN=$(cd "$RUN" && pwd)

# A stack keeps the ports that it was started with, whatever the shell that asks later has set.
PORT_BASE=$(cat "$RUN/port-base" 2> /dev/null || echo "${LANDFALL_STACK_PORT_BASE:-19090}")
# From 32768 on, an outgoing connection of any program may hold a port when a service wants it.
if [ "$PORT_BASE" -lt 1024 ] || [ "$PORT_BASE" -gt 32700 ]; then
  echo "stack: LANDFALL_STACK_PORT_BASE is $PORT_BASE; it must be between 1024 and 32700" >&2
  exit 1
fi
KAFKA_PORT=$((PORT_BASE + 2))
CONTROLLER_PORT=$((PORT_BASE + 3))
CONNECT_PORT=$((PORT_BASE + 4))
POSTGRES_PORT=$((PORT_BASE + 5))
CLICKHOUSE_PORT=$((PORT_BASE + 6))
REGISTRY_PORT=$((PORT_BASE + 7))
REGISTRY_URL=http://127.0.0.1:$REGISTRY_PORT/apis/ccompat/v7
CLICKHOUSE_USER=landfall
CLICKHOUSE_PASSWORD=landfall

JARS=$CACHE/stack/jars
PLUGINS=$CACHE/stack/plugins
CHDB=$CACHE/stack/chdb
NATIVE_LIBS=$CACHE/lib

# Every Java service: small, quick to start.
JAVA_OPTIONS=(-XX:+UseSerialGC -Xshare:auto -Djava.awt.headless=true "-Dlog4j2.configurationFile=$STACK/log4j2.xml")

# A service that is not ready by then has failed. Two seconds are usual; a machine that compiles meanwhile needs more.
READY_SECONDS=${LANDFALL_STACK_READY_SECONDS:-120}

say() { printf '%s\n' "$*"; }
die() {
  printf 'stack: %s\n' "$*" >&2
  exit 1
}

now_ms() { date +%s%3N; }
seconds_since() { # milliseconds from now_ms
  local ms=$(($(now_ms) - $1))
  printf '%d.%d s' $((ms / 1000)) $((ms % 1000 / 100))
}

port_is_open() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }

# The pid of a service, if it runs. A pid file outlives a crash and its number may belong to another program by now,
# so the command line has to name the service's own folder too.
pid_of() { # service
  local pid
  pid=$(cat "$RUN/$1/pid" 2> /dev/null) || return 1
  [ -n "$pid" ] && tr '\0' ' ' 2> /dev/null < "/proc/$pid/cmdline" | grep -qF -- "$("$1_mark")" && echo "$pid"
}

resident_mib() { awk '/VmRSS/ { printf "%d", $2 / 1024 }' "/proc/$1/status" 2> /dev/null; }

# Starts a program that outlives this script, without its lock, and notes its pid: spawn SERVICE LOG COMMAND...
spawn() {
  local service=$1 log=$2
  shift 2
  setsid "$@" > "$log" 2>&1 < /dev/null 9>&- &
  echo $! > "$RUN/$service/pid"
  # Until the child has become the program, its command line is still this script's, by which nobody would know it.
  while cmp -s "/proc/$!/cmdline" "/proc/$BASHPID/cmdline"; do sleep 0.01; done
}

# Waits until a killed process has let go of its port and locks: its command line is gone at once, its last thread a moment later.
await_end() { # pid
  local _
  for _ in $(seq 200); do
    [ -e "/proc/$1" ] && [ -z "$(tr -d '\0' 2> /dev/null < "/proc/$1/cmdline")" ] || return 0
    # A zombie without other threads only waits for its parent.
    if grep -q '^State:.Z' "/proc/$1/status" 2> /dev/null && [ "$(ls "/proc/$1/task" 2> /dev/null | wc -l)" -le 1 ]; then return 0; fi
    sleep 0.05
  done
}

stop_pid() { # service signal seconds
  local pid _
  pid=$(pid_of "$1") || { rm -f "$RUN/$1/pid"; return 0; }
  kill -"$2" "$pid" 2> /dev/null || true
  for _ in $(seq $(($3 * 10))); do
    pid_of "$1" > /dev/null || break
    sleep 0.1
  done
  if pid_of "$1" > /dev/null; then kill -KILL "$pid" 2> /dev/null || true; fi
  while pid_of "$1" > /dev/null; do sleep 0.1; done
  await_end "$pid"
  rm -f "$RUN/$1/pid"
}

# Once for all callers of a folder, so that two commands at the same time do no harm: locked FOLDER COMMAND...
locked() {
  local folder=$1
  shift
  (
    flock 9
    "$@"
  ) 9> "$folder/.lock"
}
