//! Reading a DuckDB file through the process that holds it: `POST /api/sql`, the other half of `landfall sql`.
//!
//! DuckDB lets one process have a file open for writing, so whoever asks while a landing is under way is answered by the lander. The question
//! names topology and file as the asker knows them: an answer out of another file that happens to have the same store id would be worse than
//! none. A query runs beside the landings on a connection of its own, read-only, bounded in rows, bytes and time, two at once at most.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use landfall_topology::Plan;
use landfall_topology::plan::StoreKind;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::Reason;
use super::http::Served;
use crate::sink::Kind;
use crate::sink::duckdb::query;
use crate::sink::query::Limits;

/// Queries that run at once; each may take DuckDB's memory and threads from the landings.
const AT_ONCE: usize = 2;
/// Most rows of an answer, whatever is asked for.
const ROWS_MAX: usize = 100_000;

/// Which files this process may be asked to read.
#[derive(Clone, Debug, Default)]
pub struct Readable {
    topology: String,
    /// File and schema of the replicas, by store.
    files: BTreeMap<String, (PathBuf, String)>,
}

impl Readable {
    /// The DuckDB files of a plan, by store.
    pub fn of(plan: &Plan) -> Self {
        let files = plan.stores.iter().filter_map(|store| match &store.kind {
            StoreKind::DuckDb { path, schema } => Some((store.id.clone(), (PathBuf::from(path), schema.clone()))),
            _ => None,
        });
        Self { topology: plan.topology.clone(), files: files.collect() }
    }

    /// The file and the schema that a question is about, or why it is not answered here.
    fn find(&self, question: &Question) -> Result<(PathBuf, String), Reason> {
        let refused = |what: String| Reason {
            code: "sql.other_file".to_owned(),
            what,
            hint: "name the process that runs this topology with --http ADDRESS".to_owned(),
        };
        if question.topology != self.topology {
            return Err(refused(format!("this process runs topology {:?}, not {:?}", self.topology, question.topology)));
        }
        let Some((file, schema)) = self.files.get(&question.store) else {
            return Err(refused(format!("this process has no DuckDB store {:?}", question.store)));
        };
        if absolute(file) != question.file {
            return Err(refused(format!("store {:?} of this process is another file, {}", question.store, file.display())));
        }
        Ok((file.clone(), schema.clone()))
    }
}

/// The one name of a file, wherever it is said.
pub fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Name of the topology.
    pub topology: String,
    /// Id of the store.
    pub store: String,
    /// The file, by its [`absolute`] name.
    pub file: PathBuf,
    /// One statement.
    pub query: String,
    /// Most rows wanted.
    pub rows: usize,
}

/// What comes back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows, as text; null is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// True where a limit cut rows off.
    pub cut: bool,
}

/// Where questions come in. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Desk {
    readable: Arc<Readable>,
    running: Arc<Semaphore>,
}

impl Desk {
    pub(super) fn new(readable: Readable) -> Self {
        Self { readable: Arc::new(readable), running: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// Answers a question: 200 with the rows, else a reason. 409 says that it is not for this process, 429 and 503 that it may be asked again,
/// 400 that the query itself is wrong.
#[allow(clippy::disallowed_methods, reason = "a query blocks; it runs beside the thread that answers, and ends by its own time limit")]
pub(super) async fn answer(State(served): State<Served>, headers: HeaderMap, Json(question): Json<Question>) -> Response {
    // A page in a browser on this machine can name any host that resolves to loopback; it must not read replicas by that.
    if !headers.get(HOST).and_then(|h| h.to_str().ok()).is_some_and(is_loopback) {
        let what = "the request names a host that is not loopback".to_owned();
        return refuse(StatusCode::FORBIDDEN, Reason { code: "sql.host".to_owned(), what, hint: "ask 127.0.0.1".to_owned() });
    }
    let (file, schema) = match served.queries.readable.find(&question) {
        Ok(file) => file,
        Err(reason) => return refuse(StatusCode::CONFLICT, reason),
    };
    let Ok(permit) = Arc::clone(&served.queries.running).try_acquire_owned() else {
        let what = format!("{AT_ONCE} queries are running already");
        return refuse(StatusCode::TOO_MANY_REQUESTS, Reason { code: "sql.busy".to_owned(), what, hint: "ask again in a moment".to_owned() });
    };
    let limits = Limits { rows: question.rows.min(ROWS_MAX), ..Limits::default() };
    let outcome = tokio::task::spawn_blocking(move || {
        let outcome = query::run(&file, Some(&schema), &question.query, &limits);
        drop(permit);
        outcome
    });
    match outcome.await {
        Ok(Ok(table)) => Json(Answer { columns: table.columns, rows: table.rows, cut: table.cut }).into_response(),
        Ok(Err(error)) => {
            let status = if error.kind == Kind::Unavailable { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::BAD_REQUEST };
            refuse(status, Reason { code: error.kind.code().to_owned(), what: error.detail, hint: String::new() })
        }
        Err(_) => {
            let what = "the query broke down".to_owned();
            refuse(StatusCode::INTERNAL_SERVER_ERROR, Reason { code: Kind::Internal.code().to_owned(), what, hint: Kind::Internal.hint().to_owned() })
        }
    }
}

fn refuse(status: StatusCode, reason: Reason) -> Response {
    (status, Json(reason)).into_response()
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(topology: &str, store: &str, file: &str) -> Question {
        Question { topology: topology.to_owned(), store: store.to_owned(), file: PathBuf::from(file), query: "FROM t".to_owned(), rows: 1 }
    }

    #[test]
    fn only_the_file_that_is_meant_is_read() {
        let files = BTreeMap::from([("local".to_owned(), (PathBuf::from("/nowhere/a.duckdb"), "main".to_owned()))]);
        let readable = Readable { topology: "shop".to_owned(), files };
        assert_eq!(readable.find(&question("shop", "local", "/nowhere/a.duckdb")), Ok((PathBuf::from("/nowhere/a.duckdb"), "main".to_owned())));
        for (other, said) in [
            (question("bank", "local", "/nowhere/a.duckdb"), "runs topology \"shop\", not \"bank\""),
            (question("shop", "serving", "/nowhere/a.duckdb"), "no DuckDB store \"serving\""),
            (question("shop", "local", "/elsewhere/a.duckdb"), "another file, /nowhere/a.duckdb"),
        ] {
            let reason = readable.find(&other).expect_err(said);
            assert!(reason.what.contains(said), "{reason:?}");
        }
    }

    #[test]
    fn hosts_of_this_machine() {
        for host in ["localhost", "localhost:9090", "127.0.0.1:9090", "127.8.0.1", "[::1]:9090"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["evil.example", "evil.example:9090", "10.0.0.1:9090", "localhost.evil.example", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
