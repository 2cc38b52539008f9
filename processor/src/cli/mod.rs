//! The command line: what people type, and what it prints.
//!
//! Human output goes to standard output, logs to standard error. Exit codes: 0 all is well, 1 something failed, 2 the topology or the command
//! line has problems. Errors are printed as what, where and hint.

pub mod demo;
pub mod rebuild;
pub mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use landfall_topology::{Plan, environment};

/// Change events from Kafka into one canonical change log, and exact replicas of every table from there.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, max_term_width = 120)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the whole journey without any service: a shop's Debezium events into a DuckDB file
    Demo(demo::Arguments),
    /// Run normalisers and landers until told to stop; SIGTERM drains
    Run(run::Arguments),
    /// Discard a replica and fold its log again
    Rebuild(rebuild::Arguments),
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The topology has problems; they are printed already.
    Topology,
    /// Something else.
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Rebuild(arguments) => rebuild::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Topology) => ExitCode::from(2),
        Err(Failure::Other(error)) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::from(1)
        }
    }
}

/// Loads a topology; its problems are printed, all at once.
pub fn load(paths: &[PathBuf]) -> Result<Plan, Failure> {
    let default = [PathBuf::from("landfall.yaml")];
    let paths = if paths.is_empty() { &default[..] } else { paths };
    let documents = landfall_topology::load(paths)?;
    let checked = landfall_topology::check(&documents, &environment);
    for issue in &checked.issues {
        eprintln!("{issue}");
    }
    checked.plan.ok_or(Failure::Topology)
}
