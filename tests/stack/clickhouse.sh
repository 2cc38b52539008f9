# ClickHouse: the real engine (libchdb.so) behind the small HTTP server in clickhouse/. Data survive kill -9 of it.

clickhouse_mark() { echo "$RUN/clickhouse/data"; }
clickhouse_port() { echo "$CLICKHOUSE_PORT"; }
clickhouse_logs() { echo "$RUN/clickhouse/server.log"; }

clickhouse_spawn() {
  mkdir -p "$RUN/clickhouse/data"
  spawn clickhouse "$RUN/clickhouse/server.log" "$CHDB/chdb-http" --lib "$CHDB/libchdb.so" --path "$RUN/clickhouse/data" \
    --listen "127.0.0.1:$CLICKHOUSE_PORT" --user "$CLICKHOUSE_USER:$CLICKHOUSE_PASSWORD"
}

clickhouse_ready() {
  [ "$(curl -fsS -m 2 -H "X-ClickHouse-User: $CLICKHOUSE_USER" -H "X-ClickHouse-Key: $CLICKHOUSE_PASSWORD" \
    "http://127.0.0.1:$CLICKHOUSE_PORT/?query=SELECT+1" 2> /dev/null)" = 1 ]
}

clickhouse_stop() { stop_pid clickhouse TERM 12; }
