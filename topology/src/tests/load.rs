//! Files, folders and references on a real file system.

use std::fs;

use crate::load::{DOCUMENT_BYTES_MAX, environment, load};
use crate::{LoadError, Reference};

#[test]
fn a_folder_is_read_in_order_and_flat() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [("b.yaml", "b"), ("a.yml", "a"), ("c.txt", "c"), ("d.YAML", "d")] {
        fs::write(folder.path().join(name), text).expect("written");
    }
    fs::create_dir(folder.path().join("e.yaml")).expect("made");
    let documents = load(&[folder.path()]).expect("read");
    let texts: Vec<_> = documents.iter().map(|d| d.text()).collect();
    assert_eq!(texts, ["a", "b", "d"]);
    assert!(documents[0].name().ends_with("a.yml"));
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    assert!(matches!(load(&[path("none.yaml")]), Err(LoadError::Read { .. })));
    assert!(matches!(load(&[folder.path()]), Err(LoadError::Nothing { .. })));
    fs::write(path("bytes.yaml"), b"a: \xff").expect("written");
    match load(&[path("bytes.yaml")]) {
        Err(LoadError::NotUtf8 { offset, .. }) => assert_eq!(offset, 3),
        other => panic!("{other:?}"),
    }
    fs::write(path("large.yaml"), vec![b'a'; DOCUMENT_BYTES_MAX + 1]).expect("written");
    assert!(matches!(load(&[path("large.yaml")]), Err(LoadError::TooLarge { .. })));
    fs::write(path("full.yaml"), vec![b'a'; DOCUMENT_BYTES_MAX]).expect("written");
    assert!(load(&[path("full.yaml")]).is_ok());
}

#[test]
fn references_to_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    let reference = Reference::File(file.display().to_string());
    assert!(environment(&reference).is_err());
    for (written, read) in [("x", "x"), ("x\n", "x"), ("x\r\n", "x"), ("x\n\n", "x\n"), (" x ", " x ")] {
        fs::write(&file, written).expect("written");
        assert_eq!(environment(&reference).as_deref(), Ok(read));
    }
    fs::write(&file, vec![b'a'; (1 << 20) + 1]).expect("written");
    assert_eq!(environment(&reference).map(drop).map_err(|e| e.to_string()), Err("is too long".to_owned()));
    fs::write(&file, b"\xff").expect("written");
    assert_eq!(environment(&reference).expect_err("no text").to_string(), "is not utf-8");
}

#[test]
fn references_to_variables() {
    // Cargo sets the one, nobody the other.
    let known = environment(&Reference::Env("CARGO_PKG_NAME".into()));
    assert_eq!(known.as_deref(), Ok("landfall-topology"));
    assert!(environment(&Reference::Env("LANDFALL_TEST_NOT_SET".into())).is_err());
}
