//! What DuckDB's errors mean: one table from the class that begins every message to [`Kind`].
//!
//! The C API reports a class only as the first words of the text. The text itself goes into ours only for classes that speak of files, names and
//! memory; others quote values of rows, which an error must not carry.

use std::path::Path;

use crate::sink::{Error, Kind};

/// Class, kind, and whether the message may be shown: it never quotes a value.
const CLASSES: [(&str, Kind, bool); 20] = [
    ("IO Error", Kind::Unavailable, true),
    ("Out of Memory Error", Kind::Unavailable, true),
    // A disk that filled up, or an I/O error in a commit: the database has to be closed and opened again, and its log is replayed then.
    ("FATAL Error", Kind::Unavailable, false),
    ("INTERRUPT Error", Kind::Unavailable, true),
    ("TransactionContext Error", Kind::Unavailable, false),
    ("Permission Error", Kind::Permission, true),
    ("Catalog Error", Kind::TableChanged, true),
    ("Dependency Error", Kind::TableChanged, true),
    // A constraint of somebody else's on our table, such as NOT NULL or UNIQUE.
    ("Constraint Error", Kind::TableChanged, false),
    ("Conversion Error", Kind::Unsupported, false),
    ("Out of Range Error", Kind::Unsupported, false),
    ("Not implemented Error", Kind::Unsupported, true),
    ("Invalid Input Error", Kind::Internal, false),
    ("Invalid Type Error", Kind::Internal, false),
    ("Mismatch Type Error", Kind::Internal, false),
    ("Binder Error", Kind::Internal, true),
    ("Parser Error", Kind::Internal, true),
    ("Serialization Error", Kind::Internal, false),
    ("INTERNAL Error", Kind::Internal, false),
    ("Invalid Error", Kind::Internal, false),
];

/// An error of ours for one of DuckDB's; `what` says what was being done, as a lower-case fragment.
pub(super) fn of(what: &str, error: &duckdb::Error) -> Error {
    let text = text(error);
    let (class, kind, shown) = classify(text);
    if shown { Error::new(kind, format!("{what}: {}", first_line(text))) } else { Error::new(kind, format!("{what}: {class}")) }
}

fn classify(text: &str) -> (&str, Kind, bool) {
    // "IO Error" in front also covers a full disk and a file that vanished; both mend.
    CLASSES.into_iter().find(|(class, ..)| text.strip_prefix(class).is_some_and(|rest| rest.starts_with(':'))).unwrap_or((
        "error without a class",
        Kind::Internal,
        false,
    ))
}

/// Whether an open failed because another process has the file.
pub(super) fn is_held(error: &duckdb::Error) -> bool {
    text(error).contains("Could not set lock on file")
}

/// The error of an open that failed. A file that does not open is left as it is: it may hold the only copy of something.
pub(super) fn of_open(path: &Path, error: &duckdb::Error) -> Error {
    let text = text(error);
    let path = path.display();
    let io = text.strip_prefix("IO Error: ");
    // What the system says of a path is passing; what DuckDB says of a file's contents is not.
    let system = |io: &str| io.starts_with("Cannot open ") || io.starts_with("Could not create ") || io.starts_with("Failed to ");
    let (kind, detail) = match io {
        Some(io) if io.contains("Permission denied") => (Kind::Permission, format!("{path} may not be opened: {}", first_line(io))),
        Some(io) if system(io) => (Kind::Unavailable, format!("{path} cannot be opened now: {}", first_line(io))),
        _ if text.starts_with("Out of Memory Error") => (Kind::Unavailable, format!("{path} cannot be opened now: {}", first_line(text))),
        _ => {
            let class = classify(text).0;
            (
                Kind::Internal,
                format!("{path} does not open as a database ({class}): move it and its .wal away, keep both, and the replicas are built anew"),
            )
        }
    };
    Error::new(kind, detail)
}

fn text(error: &duckdb::Error) -> &str {
    match error {
        duckdb::Error::DuckDBFailure(_, Some(text)) => text,
        _ => "",
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(text: &str) -> duckdb::Error {
        duckdb::Error::DuckDBFailure(duckdb::ffi::Error::new(1), Some(text.to_owned()))
    }

    #[test]
    fn classes_become_kinds_and_values_stay_out() {
        let e = of("land into \"t\"", &failure("Constraint Error: Duplicate key \"id: 4711\" violates primary key constraint."));
        assert_eq!((e.kind, e.detail.as_str()), (Kind::TableChanged, "land into \"t\": Constraint Error"));
        let e = of("land into \"t\"", &failure("IO Error: Could not write file \"x\": No space left on device\nmore"));
        assert_eq!(
            (e.kind, e.detail.as_str()),
            (Kind::Unavailable, "land into \"t\": IO Error: Could not write file \"x\": No space left on device")
        );
        assert_eq!(of("x", &failure("IO Errors")).kind, Kind::Internal);
        assert_eq!(of("x", &duckdb::Error::AppendError).kind, Kind::Internal);
    }

    #[test]
    fn a_broken_file_is_told_from_one_that_cannot_be_reached() {
        let path = Path::new("/data/r.duckdb");
        for (text, kind) in [
            ("IO Error: Cannot open file \"/data/r.duckdb\": No such file or directory", Kind::Unavailable),
            ("IO Error: Cannot open file \"/data/r.duckdb\": Permission denied", Kind::Permission),
            ("IO Error: The file \"/data/r.duckdb\" exists, but it is not a valid DuckDB database file!", Kind::Internal),
            ("Serialization Error: Failed to deserialize", Kind::Internal),
        ] {
            let e = of_open(path, &failure(text));
            assert_eq!(e.kind, kind, "{text}");
            assert!(e.detail.contains("/data/r.duckdb"), "{}", e.detail);
        }
        assert!(is_held(&failure("IO Error: Could not set lock on file \"r\": Conflicting lock is held")));
    }
}
