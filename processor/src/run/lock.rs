//! The lock beside a file that one process writes: who holds it is a member of the store's consumer group.
//!
//! DuckDB's own lock goes with the open file, which is closed when idle so that readers can open it; this one is held as long as the process
//! lands. The system gives it back when the process ends, however that happens.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Stopping;
use crate::observe::Reason;

/// The held lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The lock file of a store's file.
pub fn path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Waits for the lock; `None` when told to stop first. Where another process holds it, `tell` says so until it is to be had: that may be a
/// second process of the same topology, which stands by, or another topology that lands into the same file.
pub fn wait(file: &Path, topology: &str, stopping: &Stopping, tell: impl Fn(Option<Reason>)) -> Option<Lock> {
    let path = path(file);
    let mut told = false;
    loop {
        let reason = match try_take(&path, topology) {
            Ok(Taken::Ours(lock)) => {
                tell(None);
                return Some(lock);
            }
            Ok(Taken::Theirs(holder)) => held(file, topology, &holder),
            Err(error) => Reason {
                code: "sink.lock_unusable".to_owned(),
                what: format!("the lock file {} cannot be used: {error}", path.display()),
                hint: "make its folder writable".to_owned(),
            },
        };
        if !told {
            told = true;
            tell(Some(reason));
        }
        if stopping.wait(Duration::from_millis(200)) {
            return None;
        }
    }
}

fn held(file: &Path, topology: &str, holder: &str) -> Reason {
    let file = file.display();
    let (what, hint) = if holder == topology || holder.is_empty() {
        (format!("another process lands into {file}"), "this one stands by; a DuckDB file has one writer at a time")
    } else {
        (format!("topology {holder:?} lands into {file}"), "a DuckDB file has one writer at a time: give each topology a file of its own")
    };
    Reason { code: "sink.file_held".to_owned(), what, hint: hint.to_owned() }
}

enum Taken {
    Ours(Lock),
    /// The topology of the holder, as it wrote it there.
    Theirs(String),
}

fn try_take(path: &Path, topology: &str) -> std::io::Result<Taken> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => {
            file.set_len(0)?;
            file.write_all(topology.as_bytes())?;
            Ok(Taken::Ours(Lock { _file: file }))
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Only names are written there; what is not one is nobody's.
            let _ = file.take(100).read_to_string(&mut holder)?;
            Ok(Taken::Theirs(holder))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn who_holds_a_file_is_told_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("new").join("replicas.duckdb");
        let stopping = Stopping::default();
        let told = RefCell::new(Vec::new());
        let tell = |reason: Option<Reason>| told.borrow_mut().push(reason.map(|r| r.what));
        let lock = wait(&file, "shop", &stopping, tell).expect("free");
        stopping.set();
        for topology in ["bank", "shop"] {
            assert!(wait(&file, topology, &stopping, tell).is_none(), "told to stop");
        }
        drop(lock);
        let _again = wait(&file, "bank", &stopping, tell).expect("free again");
        let path = file.display();
        let expected = [None, Some(format!("topology \"shop\" lands into {path}")), Some(format!("another process lands into {path}")), None];
        assert_eq!(told.into_inner(), expected);
    }
}
