# Kafka: one node that is broker and controller, KRaft, no log cleaner surprises. Data stays until `stack wipe`.

kafka_mark() { echo "$RUN/kafka/server.properties"; }
kafka_port() { echo "$KAFKA_PORT"; }
kafka_logs() { printf '%s\n' "$RUN/kafka/stdout.log" "$RUN/kafka/server.log"; }

kafka_spawn() {
  local dir=$RUN/kafka jars=$JARS/kafka/*
  # Topics are made by those that need them: a name with a typing error must not come to life.
  # The request limit leaves room for a record of 100 MiB, for a topic that allows it.
  cat > "$dir/server.properties" << END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$CONTROLLER_PORT
listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT,CONTROLLER://127.0.0.1:$CONTROLLER_PORT
advertised.listeners=PLAINTEXT://127.0.0.1:$KAFKA_PORT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$dir/data
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
group.coordinator.rebalance.protocols=classic,consumer
auto.create.topics.enable=false
socket.request.max.bytes=268435456
num.network.threads=2
num.io.threads=4
log.cleaner.dedupe.buffer.size=16777216
log.retention.hours=-1
END
  if [ ! -f "$dir/data/meta.properties" ]; then
    java "${JAVA_OPTIONS[@]}" -Xmx128m -cp "$jars" kafka.tools.StorageTool format -t MkU3OEVBNTcwNTJENDM2Qk -c "$dir/server.properties" \
      > "$dir/format.log" 2>&1 || { cat "$dir/format.log" >&2; die "kafka: the data folder could not be formatted"; }
  fi
  spawn kafka "$dir/stdout.log" java -Xms256m -Xmx512m "${JAVA_OPTIONS[@]}" "-Dstack.log=$dir/server.log" -cp "$jars" \
    kafka.Kafka "$dir/server.properties"
}

# Sends an ApiVersions request (key 18, version 0, correlation 1, no client id) and looks for its correlation id in the answer.
# The broker answers only once it is registered and may serve.
kafka_ready() {
  # shellcheck disable=SC2016
  [ "$(timeout 2 bash -c '
    exec 3<> "/dev/tcp/127.0.0.1/$0" || exit 1
    printf "\0\0\0\12\0\22\0\0\0\0\0\1\377\377" >&3
    head -c 8 <&3 | od -An -tx1 -j4 | tr -d " \n"' "$KAFKA_PORT" 2> /dev/null)" = 00000001 ]
}

kafka_stop() { stop_pid kafka TERM 15; }
