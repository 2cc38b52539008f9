//! What ClickHouse's errors mean for a landing: one table from the server's codes to [`Kind`].
//!
//! The crate hands the server's answer over as text (`Code: 60. DB::Exception: …`), so the number is read out of it. Text of the server goes
//! into an error only for statements that carry names alone; an answer to an insert of rows could quote a value and stays behind.

use clickhouse::error::Error as Client;

use crate::sink::{Error, Kind};

/// Most characters of a server's message that an error repeats.
const MESSAGE_CHARACTERS: usize = 300;

/// Whether a statement could bring values into the server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carries {
    /// Names of tables, columns and replicas only.
    Names,
    /// Rows.
    Values,
}

/// The error of a statement; `what` says what it was for, as a lower-case fragment.
pub(super) fn of(error: &Client, what: &str, carries: Carries) -> Error {
    let text = match error {
        Client::BadResponse(text) => text.as_str(),
        Client::TimedOut => return Error::new(Kind::Unavailable, format!("{what}: no answer in time")),
        Client::Network(cause) => return Error::new(Kind::Unavailable, format!("{what}: {}", innermost(cause.as_ref()))),
        Client::InvalidParams(_) | Client::Unsupported(_) => {
            return Error::new(Kind::Unsupported, format!("{what}: the url of the store cannot be used"));
        }
        // A broken answer is what a server that dies in the middle of it leaves behind.
        Client::Decompression(_) | Client::NotEnoughData | Client::InvalidColumnsHeader(_) => {
            return Error::new(Kind::Unavailable, format!("{what}: the answer broke off"));
        }
        _ => return Error::new(Kind::Internal, format!("{what}: an answer that makes no sense")),
    };
    match code(text) {
        Some(code) if carries == Carries::Names => Error::new(kind(code), format!("{what}: {}", excerpt(text))),
        Some(code) => Error::new(kind(code), format!("{what}: code {code}{}", name(text).map(|n| format!(" ({n})")).unwrap_or_default())),
        None => Error::new(kind_of_status(text), format!("{what}: http status {}", text.get(..3).unwrap_or("unknown"))),
    }
}

/// The error of a statement that was not answered within its deadline.
pub(super) fn late(what: &str) -> Error {
    Error::new(Kind::Unavailable, format!("{what}: no answer in time"))
}

/// The number out of `Code: N. …`.
pub(super) fn code(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Code: ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

/// The symbolic name at the end of an exception: `… (UNKNOWN_TABLE) (version …)`.
fn name(text: &str) -> Option<&str> {
    let head = text.split(" (version ").next()?.trim_end().strip_suffix(')')?;
    let name = &head[head.rfind('(')? + 1..];
    name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_').then_some(name)
}

/// The start of a message without the version, on one line.
fn excerpt(text: &str) -> String {
    let head = text.split(" (version ").next().unwrap_or(text);
    head.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARACTERS).collect()
}

fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error
}

/// What is meant by an answer that is not ClickHouse's own: a proxy's, or a login refused before the server was asked.
fn kind_of_status(text: &str) -> Kind {
    match text.get(..3).and_then(|digits| digits.parse::<u16>().ok()) {
        Some(401 | 403) => Kind::Login,
        Some(408 | 425 | 429 | 500..=599) => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

/// The table. Names are those of `errorCodeToName` on 26.7; a code that is not here is ours to look at.
fn kind(code: u32) -> Kind {
    match code {
        // UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD, IP_ADDRESS_NOT_ALLOWED, AUTHENTICATION_FAILED
        192..=195 | 516 => Kind::Login,
        // READONLY, DATABASE_ACCESS_DENIED, QUERY_IS_PROHIBITED, SETTING_CONSTRAINT_VIOLATION, ACCESS_DENIED, UNKNOWN_ROLE
        164 | 291 | 392 | 452 | 497 | 511 => Kind::Permission,
        // THERE_IS_NO_COLUMN, NOT_FOUND_COLUMN_IN_BLOCK, NO_SUCH_COLUMN_IN_TABLE, NUMBER_OF_COLUMNS_DOESNT_MATCH, UNKNOWN_IDENTIFIER,
        // TYPE_MISMATCH, UNKNOWN_TABLE, CANNOT_CONVERT_TYPE, UNKNOWN_DATABASE, INCOMPATIBLE_COLUMNS, TABLE_IS_DROPPED,
        // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN, VIOLATED_CONSTRAINT, ALTER_OF_COLUMN_IS_FORBIDDEN
        8 | 10 | 16 | 20 | 47 | 53 | 60 | 70 | 81 | 122 | 218 | 349 | 469 | 524 => Kind::TableChanged,
        // TABLE_ALREADY_EXISTS
        57 => Kind::TableExists,
        // UNSUPPORTED_METHOD, BAD_ARGUMENTS, ILLEGAL_COLUMN, NOT_IMPLEMENTED, UNKNOWN_TYPE, ARGUMENT_OUT_OF_BOUND, UNKNOWN_SETTING,
        // ENGINE_REQUIRED, SUPPORT_IS_DISABLED, TABLE_SIZE_EXCEEDS_MAX_DROP_SIZE_LIMIT
        1 | 36 | 44 | 48 | 50 | 69 | 115 | 119 | 344 | 359 => Kind::Unsupported,
        // UNEXPECTED_END_OF_FILE (a body cut short), CANNOT_READ_FROM/WRITE_TO_FILE_DESCRIPTOR, CANNOT_OPEN_FILE, FILE_DOESNT_EXIST,
        // TIMEOUT_EXCEEDED, TOO_SLOW, CANNOT_ALLOCATE_MEMORY, DNS_ERROR, QUOTA_EXCEEDED, TOO_MANY_SIMULTANEOUS_QUERIES, NO_FREE_CONNECTION
        3 | 74 | 75 | 76 | 107 | 159 | 160 | 173 | 198 | 201 | 202 | 203
        // SOCKET_TIMEOUT, NETWORK_ERROR, NO_ZOOKEEPER, ABORTED, MEMORY_LIMIT_EXCEEDED, TABLE_IS_READ_ONLY, NOT_ENOUGH_SPACE,
        // UNEXPECTED_ZOOKEEPER_ERROR, TOO_MANY_PARTS, NO_ACTIVE_REPLICAS, ALL_CONNECTION_TRIES_FAILED, TOO_FEW_LIVE_REPLICAS
        | 209 | 210 | 225 | 236 | 241 | 242 | 243 | 244 | 252 | 254 | 279 | 285
        // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE, REPLICA_IS_NOT_IN_QUORUM, LIMIT_EXCEEDED, TABLE_WAS_NOT_DROPPED, UNKNOWN_STATUS_OF_INSERT,
        // UNFINISHED, RECEIVED_ERROR_TOO_MANY_REQUESTS, SESSION_IS_LOCKED, QUERY_WAS_CANCELLED, TOO_MANY_ROWS_OR_BYTES, SYSTEM_ERROR
        | 286 | 289 | 290 | 305 | 319 | 341 | 364 | 373 | 394 | 396 | 425
        // CANNOT_SCHEDULE_TASK, DEADLOCK_AVOIDED, S3_ERROR, CANNOT_ASSIGN_ALTER, NOT_A_LEADER, THREAD_WAS_CANCELED, SERVER_OVERLOADED,
        // KEEPER_EXCEPTION, POCO_EXCEPTION, STD_EXCEPTION (a disk that is full)
        | 439 | 473 | 499 | 517 | 529 | 677 | 745 | 999..=1001 => Kind::Unavailable,
        _ => Kind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, carries: Carries) -> Error {
        of(&Client::BadResponse(text.to_owned()), "rows of table \"t\"", carries)
    }

    #[test]
    fn codes_become_kinds() {
        for (code, kind) in [
            (516, Kind::Login),
            (194, Kind::Login),
            (497, Kind::Permission),
            (252, Kind::Unavailable),
            (241, Kind::Unavailable),
            (159, Kind::Unavailable),
            (209, Kind::Unavailable),
            (243, Kind::Unavailable),
            (16, Kind::TableChanged),
            (60, Kind::TableChanged),
            (62, Kind::Internal),
            (49, Kind::Internal),
        ] {
            let error = answer(&format!("Code: {code}. DB::Exception: x. (SOME_NAME) (version 26.7.2.1 (official build))"), Carries::Names);
            assert_eq!(error.kind, kind, "{code}");
        }
    }

    #[test]
    fn values_never_come_through() {
        let text = "Code: 117. DB::Exception: Cannot parse 'hunter2' here. (INCORRECT_DATA) (version 26.7.2.1 (official build))";
        assert_eq!(answer(text, Carries::Values).to_string(), "rows of table \"t\": code 117 (INCORRECT_DATA)");
        let named = "Code: 60. DB::Exception: Table shop.t does not exist.\n(UNKNOWN_TABLE) (version 26.7.2.1 (official build))";
        assert_eq!(
            answer(named, Carries::Names).to_string(),
            "rows of table \"t\": Code: 60. DB::Exception: Table shop.t does not exist. (UNKNOWN_TABLE)"
        );
    }

    #[test]
    fn answers_of_others_on_the_way() {
        assert_eq!(answer("503 Service Unavailable", Carries::Values).kind, Kind::Unavailable);
        assert_eq!(answer("403 Forbidden", Carries::Values).kind, Kind::Login);
        assert_eq!(answer("<html>", Carries::Values).kind, Kind::Internal);
        assert_eq!(of(&Client::Network("refused".into()), "hello", Carries::Names).kind, Kind::Unavailable);
        assert_eq!(of(&Client::TimedOut, "hello", Carries::Names).kind, Kind::Unavailable);
    }
}
