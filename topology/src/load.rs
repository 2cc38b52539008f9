//! The only I/O of this crate: files into documents, references into values.
//!
//! [`load`] reads a file, or the `*.yaml` and `*.yml` of a folder (not of its subfolders) in the order of their names.
//! [`environment`] looks references up; [`crate::check`] takes it as a function, so tests and other callers pass their own.
//! Sizes are bounded before anything is kept. Nothing here prints what it reads.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::secret::{LookupError, Reference};

/// A topology file is text by hand; more than this is a mistake (or an attack), not a topology.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// Files of a folder that are read at most.
const DOCUMENTS_MAX: usize = 1_000;

/// A secret or value behind `${file:…}` is at most this long: the schema of a wide table is the longest of them.
const REFERENCE_BYTES_MAX: usize = 1 << 20;

/// One file of a topology: its name, as issues show it, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    name: String,
    text: String,
}

impl Document {
    /// A document from text, for callers that have no file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// The name, as given or as the path of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text as read.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Why no documents were read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file or folder could not be read.
    #[error("cannot read topology {}", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A folder without a single topology file, or no path at all.
    #[error("no *.yaml file in {}", path.display())]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
    /// More files than a topology has.
    #[error("more than {DOCUMENTS_MAX} topology files in {}", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
    /// A file above [`DOCUMENT_BYTES_MAX`].
    #[error("topology file {} is larger than {DOCUMENT_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A file that is not UTF-8.
    #[error("topology file {} is not utf-8 from byte {offset}", path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Offset of the first byte that is not UTF-8.
        offset: usize,
    },
}

/// Reads files, and the topology files of folders, in the order given.
///
/// # Errors
/// [`LoadError`] for the first path that cannot be read, is too large or not UTF-8, or holds no topology file.
pub fn load<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<Document>, LoadError> {
    let mut documents = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let read = |source| LoadError::Read { path: path.to_owned(), source };
        if !fs::metadata(path).map_err(read)?.is_dir() {
            documents.push(load_file(path)?);
            continue;
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(path).map_err(read)? {
            let file = entry.map_err(read)?.path();
            let yaml = file.extension().is_some_and(|e| e.eq_ignore_ascii_case("yaml") || e.eq_ignore_ascii_case("yml"));
            if yaml && file.is_file() {
                files.push(file);
            }
            if files.len() > DOCUMENTS_MAX {
                return Err(LoadError::TooMany { path: path.to_owned() });
            }
        }
        if files.is_empty() {
            return Err(LoadError::Nothing { path: path.to_owned() });
        }
        files.sort();
        for file in files {
            documents.push(load_file(&file)?);
        }
    }
    Ok(documents)
}

fn load_file(path: &Path) -> Result<Document, LoadError> {
    let bytes = read_bounded(path, DOCUMENT_BYTES_MAX)
        .map_err(|source| LoadError::Read { path: path.to_owned(), source })?
        .ok_or_else(|| LoadError::TooLarge { path: path.to_owned() })?;
    let text = String::from_utf8(bytes).map_err(|error| LoadError::NotUtf8 { path: path.to_owned(), offset: error.utf8_error().valid_up_to() })?;
    Ok(Document::new(path.display().to_string(), text))
}

/// The bytes of a file, or nothing if there are more than `max`.
fn read_bounded(path: &Path, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= max).then_some(bytes))
}

/// Looks a reference up in the process environment or the file system; one line end at the end of a file is dropped.
///
/// # Errors
/// [`LookupError`] if the variable is not set or the file cannot be read, is too long, or either is not UTF-8.
pub fn environment(reference: &Reference) -> Result<String, LookupError> {
    match reference {
        Reference::Env(name) => match std::env::var(name) {
            Ok(value) => Ok(value),
            Err(std::env::VarError::NotPresent) => Err(LookupError::new("is not set")),
            Err(std::env::VarError::NotUnicode(_)) => Err(LookupError::new("is not utf-8")),
        },
        Reference::File(path) => {
            let bytes = read_bounded(Path::new(path), REFERENCE_BYTES_MAX)
                .map_err(|error| LookupError::new(format!("cannot be read: {}", error.kind())))?
                .ok_or_else(|| LookupError::new("is too long"))?;
            let mut text = String::from_utf8(bytes).map_err(|_| LookupError::new("is not utf-8"))?;
            if text.ends_with('\n') {
                text.pop();
                if text.ends_with('\r') {
                    text.pop();
                }
            }
            Ok(text)
        }
    }
}
