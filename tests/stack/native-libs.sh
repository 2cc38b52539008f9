#!/usr/bin/env bash
# native-libs.sh DIR: puts librocksdb.so and libduckdb.so into DIR.
#
# They are the shared objects inside the Java artifacts of RocksDB and DuckDB, which export the complete C APIs and need only libc,
# libstdc++ and libgcc. The versions are those that the crates rocksdb 0.25 (11.8.1) and duckdb ~1.10506 (1.5.6) bind to.
# What is there in the pinned version is left alone, so this asks the network nothing once it is done.
set -euo pipefail
dest=${1:?usage: native-libs.sh DIR}
mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
case $(uname -m) in
  x86_64) rocks=librocksdbjni-linux64.so duck=libduckdb_java.so_linux_amd64 ;;
  aarch64) rocks=librocksdbjni-linux-aarch64.so duck=libduckdb_java.so_linux_arm64 ;;
  *)
    echo "native-libs: there is no prebuilt library for $(uname -m); build RocksDB from source (README.md)" >&2
    exit 1
    ;;
esac

get() { # group:artifact:version  file-in-jar  link-name
  if [ "$(cat "$dest/.$3.version" 2> /dev/null)" = "$1" ] && [ -e "$dest/$3" ]; then return; fi
  for tool in mvn unzip; do
    command -v $tool > /dev/null || { echo "native-libs: $tool is missing; install it with: apt-get install maven unzip" >&2; exit 1; }
  done
  local tmp
  tmp=$(mktemp -d)
  mvn -B -q dependency:copy -Dartifact="$1" -DoutputDirectory="$tmp" > "$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
  unzip -q -o "$tmp"/*.jar "$2" -d "$tmp"
  # Moved, not written in place: a running program may have the old file mapped.
  mv -f "$tmp/$2" "$dest/$2"
  # DuckDB's object keeps its file name as its SONAME, so the folder needs the file and the link.
  ln -sf "$2" "$dest/$3"
  rm -rf "$tmp"
  echo "$1" > "$dest/.$3.version"
}
get org.rocksdb:rocksdbjni:11.8.1 "$rocks" librocksdb.so
get org.duckdb:duckdb_jdbc:1.5.6.0 "$duck" libduckdb.so
