# Kafka Connect: one distributed worker with the Debezium Postgres connector; REST on 127.0.0.1. Converters are set per connector.

connect_mark() { echo "$RUN/connect/worker.properties"; }
connect_port() { echo "$CONNECT_PORT"; }
connect_logs() { printf '%s\n' "$RUN/connect/stdout.log" "$RUN/connect/connect.log"; }

connect_spawn() {
  local dir=$RUN/connect
  # Service loading, because scanning every jar for plugins takes ten seconds.
  cat > "$dir/worker.properties" << END
bootstrap.servers=127.0.0.1:$KAFKA_PORT
group.id=connect
listeners=http://127.0.0.1:$CONNECT_PORT
rest.advertised.host.name=127.0.0.1
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
offset.flush.interval.ms=1000
plugin.path=$PLUGINS
plugin.discovery=service_load
connector.client.config.override.policy=All
scheduled.rebalance.max.delay.ms=0
END
  spawn connect "$dir/stdout.log" java -Xms128m -Xmx1g "${JAVA_OPTIONS[@]}" "-Dstack.log=$dir/connect.log" -cp "$JARS/kafka/*" \
    org.apache.kafka.connect.cli.ConnectDistributed "$dir/worker.properties"
}

connect_ready() { curl -fsS -m 2 -o /dev/null "http://127.0.0.1:$CONNECT_PORT/health" 2> /dev/null; }

connect_stop() { stop_pid connect TERM 15; }
