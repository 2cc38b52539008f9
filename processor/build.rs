//! Lets the binary find the prebuilt engines: where they were linked from, and beside an installed binary.

fn main() {
    for variable in ["ROCKSDB_LIB_DIR", "DUCKDB_LIB_DIR"] {
        println!("cargo:rerun-if-env-changed={variable}");
        if let Ok(folder) = std::env::var(variable) {
            println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        }
    }
    println!("cargo:rustc-link-arg-bins=-Wl,-rpath,$ORIGIN/../lib");
}
