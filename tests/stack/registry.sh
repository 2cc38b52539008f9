# Schema registry: Apicurio with the API of Confluent's, in memory; HTTP on 127.0.0.1. It forgets all schemas when it stops.

registry_mark() { echo "$RUN/registry/tmp"; }
registry_port() { echo "$REGISTRY_PORT"; }
registry_logs() { echo "$RUN/registry/server.log"; }

registry_spawn() {
  local dir=$RUN/registry runner=("$JARS"/registry/*-runner.jar)
  [ -f "${runner[0]}" ] || die "registry: it is not installed; run: $STACK/stack setup registry"
  mkdir -p "$dir/tmp"
  # The quick compiler alone: it starts in two thirds of the time, and is asked little later.
  spawn registry "$dir/server.log" java -Xmx256m -XX:TieredStopAtLevel=1 "${JAVA_OPTIONS[@]}" "-Djava.io.tmpdir=$dir/tmp" \
    -Dquarkus.http.host=127.0.0.1 "-Dquarkus.http.port=$REGISTRY_PORT" -jar "${runner[0]}"
}

registry_ready() { curl -fsS -m 2 -o /dev/null "$REGISTRY_URL/subjects" 2> /dev/null; }

registry_stop() { stop_pid registry TERM 10; }
