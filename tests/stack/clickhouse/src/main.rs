//! `chdb-http`: ClickHouse's HTTP interface over an in-process ClickHouse engine (`libchdb.so`).
//!
//! Only the HTTP layer is a stand-in: SQL, formats, MergeTree, mutations and errors are the engine's own.
//! It serves the tests of one machine. It has no TLS, no sessions, no native protocol and one right for all users,
//! and it must never be taken for a server to keep data in.
mod codec;
mod engine;
mod http;
mod job;
mod sql;

use engine::{Engine, Params};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str =
    "chdb-http --lib PATH/libchdb.so [--path DIR] [--listen 127.0.0.1:8123] [--user NAME[:PASSWORD]]... [--verbose] [-- ENGINE-ARGS...]

--path    data folder; without it all data is in a temporary folder of the engine
--user    allowed user, may be repeated; default: `default` without a password
--listen  address; port 0 picks a free one. The line `listening on ADDRESS` on stdout tells it.";

/// An orderly stop of the engine takes about a second; past this the process ends all the same (parts on disk are whole).
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// What every request shares.
pub struct Shared {
    engine: Engine,
    /// Engine arguments of each request's own connection.
    args: Vec<String>,
    users: HashMap<String, String>,
    version: String,
    timezone: String,
    verbose: bool,
    query_ids: AtomicU64,
    query_id_seed: u64,
}

struct Options {
    lib: String,
    path: Option<String>,
    listen: String,
    users: HashMap<String, String>,
    verbose: bool,
    engine: Vec<String>,
}

fn main() {
    let options = options();
    let engine = Engine::load(&options.lib).unwrap_or_else(|e| die(e));
    let mut args = vec!["--implicit_select=0".to_string()];
    args.extend(options.path.iter().map(|p| format!("--path={p}")));
    let mut boot = args.clone();
    boot.extend(options.engine);
    // Kept open: the engine lives as long as a connection does.
    let mut keeper = engine.connect(&boot).unwrap_or_else(|e| die(e));
    let (answer, _) = keeper.query(b"SELECT version(), timezone()", "TSV", &Params::default()).unwrap_or_else(|e| die(e));
    let line = String::from_utf8_lossy(&answer).trim().to_string();
    let (version, timezone) = line.split_once('\t').unwrap_or((&line, "UTC"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
    let shared = Arc::new(Shared {
        engine,
        args,
        users: options.users,
        version: version.into(),
        timezone: timezone.into(),
        verbose: options.verbose,
        query_ids: AtomicU64::new(1),
        query_id_seed: now ^ u64::from(std::process::id()) << 32,
    });
    // The engine parses deep statements on the calling thread, so the workers get large stacks.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(256)
        .thread_stack_size(8 << 20)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(serve(&options.listen, &shared));
    drop(runtime);
    std::thread::spawn(|| {
        std::thread::sleep(STOP_LIMIT);
        std::process::exit(0)
    });
    drop(keeper);
    shared.engine.shutdown();
    std::process::exit(0);
}

/// Takes connections until the process is asked to end.
async fn serve(listen: &str, shared: &Arc<Shared>) {
    let listener = tokio::net::TcpListener::bind(listen).await.unwrap_or_else(|e| die(format!("{listen}: {e}")));
    println!("listening on {}", listener.local_addr().expect("a bound listener has an address"));
    let mut term = signal(SignalKind::terminate()).expect("SIGTERM can be handled");
    let mut int = signal(SignalKind::interrupt()).expect("SIGINT can be handled");
    loop {
        tokio::select! {
            _ = term.recv() => return,
            _ = int.recv() => return,
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                let _ = stream.set_nodelay(true);
                let shared = shared.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| http::handle(shared.clone(), request));
                    let mut server = hyper::server::conn::http1::Builder::new();
                    server.title_case_headers(true).max_buf_size(1 << 20);
                    let _ = server.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await;
                });
            },
        }
    }
}

fn options() -> Options {
    let mut options = Options {
        lib: std::env::var("CHDB_LIB").unwrap_or_default(),
        path: None,
        listen: "127.0.0.1:8123".into(),
        users: HashMap::new(),
        verbose: false,
        engine: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| usage());
        match arg.as_str() {
            "--lib" => options.lib = value(),
            "--path" => options.path = Some(value()),
            "--listen" => options.listen = value(),
            "--user" => {
                let user = value();
                let (name, password) = user.split_once(':').unwrap_or((&user, ""));
                options.users.insert(name.to_string(), password.to_string());
            }
            "--verbose" => options.verbose = true,
            "--" => options.engine.extend(args.by_ref()),
            _ => usage(),
        }
    }
    if options.users.is_empty() {
        options.users.insert("default".into(), String::new());
    }
    options
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    std::process::exit(2)
}

fn die(e: String) -> ! {
    eprintln!("chdb-http: {e}");
    std::process::exit(1)
}
