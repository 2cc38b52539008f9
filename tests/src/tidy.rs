//! The house stands as ARCHITECTURE.md (Workspace) draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_owned()
}

/// Dependencies between our crates go one way: schemas <- topology <- processor <- tests, benches.
#[test]
fn dependencies_go_one_way() {
    let metadata =
        cargo_metadata::MetadataCommand::new().current_dir(root()).no_deps().other_options(["--offline".to_owned()]).exec().expect("cargo metadata");
    let ours: BTreeSet<String> = metadata.packages.iter().map(|p| p.name.to_string()).collect();
    let found: BTreeMap<String, BTreeSet<String>> = metadata
        .packages
        .iter()
        .map(|p| (p.name.to_string(), p.dependencies.iter().map(|d| d.name.clone()).filter(|d| ours.contains(d)).collect()))
        .collect();
    let allowed = [
        ("landfall-schemas", &[][..]),
        ("landfall-topology", &["landfall-schemas"]),
        ("landfall", &["landfall-schemas", "landfall-topology"]),
        ("landfall-tests", &["landfall", "landfall-schemas", "landfall-topology"]),
        ("landfall-benches", &["landfall", "landfall-schemas", "landfall-topology"]),
    ];
    let allowed: BTreeMap<String, BTreeSet<String>> =
        allowed.into_iter().map(|(name, on)| (name.to_owned(), on.iter().map(|d| (*d).to_owned()).collect())).collect();
    assert_eq!(found, allowed);
}

/// The pure crates have no way to do I/O, to wait, or to know the time.
#[test]
fn the_pure_stay_pure() {
    let words = ["tokio", "TcpStream", "UdpSocket", "std::thread", "SystemTime", "Instant::now", "std::process"];
    for (folder, but) in
        [("schemas/src", &["tests"][..]), ("topology/src", &["load.rs", "tests"]), ("processor/src/land", &[]), ("processor/src/normalise", &[])]
    {
        for file in sources(&root().join(folder)) {
            if file.iter().any(|part| but.iter().any(|b| part == *b)) {
                continue;
            }
            let text = std::fs::read_to_string(&file).expect("a source file");
            for word in words {
                assert!(!text.contains(word), "{} mentions {word}", file.display());
            }
        }
    }
}

/// The visible top level is exactly this.
#[test]
fn the_top_level_is_what_the_architecture_says() {
    let rooms =
        ["Cargo.lock", "Cargo.toml", "LICENSE", "Makefile", "README.md", "benches", "docker", "processor", "schemas", "target", "tests", "topology"];
    // What the programs leave behind, such as the demo's file, is named in .gitignore and is no room.
    let ignored = std::fs::read_to_string(root().join(".gitignore")).expect("the list of what is left behind");
    let is_left = |name: &str| ignored.lines().any(|line| line.strip_prefix('/').is_some_and(|l| name.starts_with(l.trim_end_matches('*'))));
    for entry in std::fs::read_dir(root()).expect("the workspace") {
        let name = entry.expect("an entry").file_name().into_string().expect("a plain name");
        assert!(name.starts_with('.') || rooms.contains(&name.as_str()) || is_left(&name), "{name} stands at the top");
    }
}

pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
