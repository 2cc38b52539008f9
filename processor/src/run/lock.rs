//! The lock beside a file that one process writes: who holds it is a member of the store's consumer group.
//!
//! DuckDB's own lock goes with the open file, which is closed when idle so that readers can open it; this one is held as long as the process
//! lands. The system gives it back when the process ends, however that happens.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Stopping;

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

/// Waits for the lock; `None` when told to stop first.
pub fn wait(file: &Path, stopping: &Stopping) -> Option<Lock> {
    let path = path(file);
    let mut told = false;
    loop {
        match try_take(&path) {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) if !told => {
                told = true;
                tracing::info!(path = %path.display(), "another process writes this file, waiting for it");
            }
            Ok(None) => {}
            Err(error) => tracing::error!(path = %path.display(), %error, "the lock file cannot be used"),
        }
        if stopping.wait(Duration::from_millis(200)) {
            return None;
        }
    }
}

fn try_take(path: &Path) -> std::io::Result<Option<Lock>> {
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock { _file: file })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}
