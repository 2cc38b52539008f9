# Postgres: Debian's programs, a cluster of our own with wal_level=logical. It is source and sink; each test makes its own database.

postgres_mark() { postgres_data; }
postgres_port() { echo "$POSTGRES_PORT"; }
postgres_logs() { echo "$RUN/postgres/server.log"; }

# The newest installed Postgres from 15 on; nothing if there is none.
postgres_bin() {
  local dir
  dir=$(ls -d /usr/lib/postgresql/*/bin 2> /dev/null | sort -V | tail -n 1)
  [ -n "$dir" ] || dir=$(dirname "$(command -v postgres 2> /dev/null)" 2> /dev/null)
  [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ] || return 0
  [ "$("$dir/postgres" --version | grep -oE '[0-9]+' | head -n 1)" -lt 15 ] || echo "$dir"
}

# Postgres refuses to run as root; there it runs as its package's user.
POSTGRES_AS=()
[ "$(id -u)" != 0 ] || POSTGRES_AS=(setpriv --reuid=postgres --regid=postgres --init-groups --)

# Root's cache folder is closed to the package's user; then the data live beside, in a folder named for the run folder.
postgres_data() {
  if [ "$(id -u)" != 0 ] || "${POSTGRES_AS[@]}" test -x "$RUN" 2> /dev/null; then
    echo "$RUN/postgres/data"
  else
    echo "/var/tmp/landfall-postgres-$(printf '%s' "$RUN" | cksum | cut -d ' ' -f 1)"
  fi
}

# A killed Postgres leaves its pid file, and children that take a moment to notice. While one of them (its working directory is the
# data folder) lives, the file must stay; after that it may go: its number can belong to a process that was never waited for.
postgres_clear() { # data-folder
  local process
  for process in /proc/[0-9]*/cwd; do
    while [ "$(readlink "$process" 2> /dev/null)" = "$1" ]; do sleep 0.1; done
  done
  rm -f "$1/postmaster.pid"
}

postgres_spawn() {
  local data bin log=$RUN/postgres/server.log
  data=$(postgres_data)
  bin=$(postgres_bin)
  [ -n "$bin" ] || die "postgres: no Postgres 15 or newer is installed; run: $STACK/stack setup postgres"
  if [ ! -f "$data/PG_VERSION" ]; then
    rm -rf "$data"
    mkdir -p "$data"
    chmod 700 "$data"
    [ "$(id -u)" != 0 ] || chown postgres: "$data"
    (cd / && "${POSTGRES_AS[@]}" "$bin/initdb" -D "$data" -U postgres --auth=trust -E UTF8 --locale=C.UTF-8 --no-sync) > "$log" 2>&1 \
      || { tail -n 20 "$log" >&2; die "postgres: initdb failed"; }
  fi
  # Options here and not in the cluster's file, so that a cluster from before takes today's.
  # No Unix socket: the path of one may be longer than the system allows.
  # One logical slot and walsender per connector, and the suite has dozens.
  postgres_clear "$data"
  cd /
  spawn postgres "$log" "${POSTGRES_AS[@]}" "$bin/postgres" -D "$data" -c "port=$POSTGRES_PORT" -c listen_addresses=127.0.0.1 \
    -c unix_socket_directories= -c wal_level=logical -c max_wal_senders=60 -c max_replication_slots=60 -c max_connections=200 \
    -c "fsync=${LANDFALL_STACK_POSTGRES_FSYNC:-on}" -c timezone=UTC -c log_timezone=UTC -c shared_buffers=256MB -c max_wal_size=4GB
}

postgres_ready() {
  [ "$(PGCONNECT_TIMEOUT=2 "$(postgres_bin)/psql" -X -h 127.0.0.1 -p "$POSTGRES_PORT" -U postgres -Atqc 'select 1' postgres 2> /dev/null)" = 1 ]
}

postgres_stop() { stop_pid postgres INT 20; }
