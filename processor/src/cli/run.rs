//! `landfall run`: the topology until told to stop.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use super::progress::Stderr;
use super::{Failure, load};
use crate::observe::Observer;
use crate::observe::query::Readable;
use crate::run::{self, Options, Shared, Stopping};

/// A part of the journey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Input topics into change logs.
    #[value(help = Resettable::Reset)]
    Normalise,
    /// Change logs into replicas.
    #[value(help = Resettable::Reset)]
    Land,
}

const EXAMPLES: &str = "\
Progress is shown below the log where standard error is a terminal. SIGTERM and Ctrl-C drain; a second one ends at once.

Examples:
  landfall run                          the file landfall.yaml
  landfall run shop.yaml --state-dir /var/lib/landfall
  landfall run shop.yaml --only land    a second process that only lands
  LANDFALL_LOG=debug landfall run       tell more
  LANDFALL_LOG=debug LANDFALL_KAFKA_DEBUG=broker,security landfall run
                                        tell what the Kafka client does, too";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Topology files, or folders of them [default: landfall.yaml]
    #[arg(value_name = "FILE")]
    pub topology: Vec<PathBuf>,
    /// Run only one part: input topics into change logs, or these into replicas
    #[arg(long, value_enum)]
    pub only: Option<Stage>,
    /// Where state is kept; it is built again from the logs when it is lost
    #[arg(long, value_name = "FOLDER", env = "LANDFALL_STATE_DIR", default_value = "landfall-state")]
    pub state_dir: PathBuf,
    /// Address of the HTTP interface; loopback only
    #[arg(long, value_name = "ADDRESS", env = "LANDFALL_HTTP", default_value = "127.0.0.1:9090")]
    pub http: SocketAddr,
}

/// Runs the topology.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    log();
    let plan = Arc::new(load(&arguments.topology)?);
    let observer = Observer::new(&plan.topology);
    let shared = Shared::new(plan, observer);
    let stopping = Stopping::default();
    stop_on_signal(&stopping)?;
    crate::observe::http::serve(&shared.observer, Readable::of(&shared.plan), arguments.http, &stopping)?;
    super::progress::start(&shared.observer, &stopping);
    let options = Options {
        normalise: arguments.only != Some(Stage::Land),
        land: arguments.only != Some(Stage::Normalise),
        state: arguments.state_dir.clone(),
    };
    Ok(run::run(&shared, &options, &stopping)?)
}

/// Structured logs on standard error: text for a terminal, JSON lines with `LANDFALL_LOG_FORMAT=json`; levels from `LANDFALL_LOG`.
pub fn log() {
    let filter = EnvFilter::try_from_env("LANDFALL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let ansi = std::io::stderr().is_terminal() && super::paper::wants_colour();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(|| Stderr).with_target(false);
    let json = std::env::var("LANDFALL_LOG_FORMAT").is_ok_and(|format| format == "json");
    // A second subscriber in one process (tests) is no error.
    drop(if json { builder.json().flatten_event(true).try_init() } else { builder.try_init() });
}

/// SIGTERM and SIGINT drain: what is on its way is landed and committed. A second signal ends the process at once.
#[allow(clippy::disallowed_methods, reason = "waiting for signals takes a thread of its own")]
pub fn stop_on_signal(stopping: &Stopping) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stopping = stopping.clone();
    let _ = std::thread::spawn(move || {
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else { return };
            for asked in 0.. {
                let _ = tokio::select! { s = terminate.recv() => s, s = interrupt.recv() => s };
                if asked > 0 {
                    std::process::exit(3);
                }
                tracing::info!("stopping: what is on its way is landed first");
                stopping.set();
            }
        });
    });
    Ok(())
}
