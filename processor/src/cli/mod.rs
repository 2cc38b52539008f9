//! The command line: what people type, and what it prints.
//!
//! One file per command. Human output goes to standard output, logs and errors to standard error; errors are printed as what, why and hint. Exit
//! codes: 0 all is well, 1 something failed, 2 the topology or the command line has problems, 3 a second signal ended a run at once. Each
//! command prints on a [`paper::Paper`] and never asks where that ends.

pub mod check;
pub mod convert;
pub mod dead_letters;
pub mod demo;
pub mod failure;
pub mod http;
pub mod manual;
pub mod online;
pub mod paper;
pub mod progress;
pub mod rebuild;
pub mod run;
pub mod schema;
pub mod sql;
pub mod status;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use landfall_topology::{Plan, environment};

pub use failure::{Failure, Problem};
use paper::Paper;

const CODES: &str = "\
Exit codes: 0 all is well, 1 something failed, 2 the topology or the command line has problems, 3 a second signal ended a run at once.
Environment: LANDFALL_LOG sets what is logged (info, debug, landfall=trace), LANDFALL_LOG_FORMAT=json how, NO_COLOR takes colours away.

`landfall COMMAND --help` tells more about a command.";

/// Change events from Kafka into one canonical change log, and exact replicas of every table from there.
#[derive(Debug, Parser)]
#[command(name = "landfall", version, max_term_width = 120, after_help = CODES)]
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
    /// Tell every problem of a topology, or what it resolves to
    Check(check::Arguments),
    /// Run normalisers and landers until told to stop; SIGTERM drains
    Run(run::Arguments),
    /// Show what a running process does: replicas, lag, sources, what stands still
    Status(status::Arguments),
    /// Read a store: Postgres, ClickHouse or DuckDB
    Sql(sql::Arguments),
    /// List what could not be taken, and why; have it replayed, or drop it
    DeadLetters(dead_letters::Arguments),
    /// Discard a replica and fold its log again
    Rebuild(rebuild::Arguments),
    /// Turn captured Kafka records into canonical changes, without any service
    Convert(convert::Arguments),
    /// Print the JSON Schema of a topology file, for editors; or the types of each store
    Schema(schema::Arguments),
    /// Print what a shell needs to complete commands and options
    Completions(manual::Completions),
    /// Print a page of the manual, for man -l
    Man(manual::Man),
}

/// Does what the command line says.
pub fn main() -> ExitCode {
    // Where another part of the process has installed one already, that one does.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let cli = Cli::parse();
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let outcome = perform(&cli.command, &mut out).and_then(|()| Ok(out.flush()?));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            // What was printed so far stands before the error; that it cannot be printed is no further news.
            drop(out.flush());
            if let Some(text) = failure.text() {
                eprint!("{text}");
            }
            ExitCode::from(failure.code())
        }
    }
}

fn perform(command: &Command, out: &mut dyn std::io::Write) -> Result<(), Failure> {
    match command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Convert(arguments) => convert::run(arguments, out),
        Command::Check(arguments) => check::run(arguments, &mut Paper::stdout(out)),
        Command::Status(arguments) => status::run(arguments, &mut Paper::stdout(out)),
        Command::Sql(arguments) => sql::run(arguments, &mut Paper::stdout(out)),
        Command::DeadLetters(arguments) => dead_letters::run(arguments, &mut Paper::stdout(out)),
        Command::Rebuild(arguments) => rebuild::run(arguments, &mut Paper::stdout(out)),
        Command::Schema(arguments) => schema::run(arguments, &mut Paper::stdout(out)),
        Command::Completions(arguments) => manual::completions(arguments, out),
        Command::Man(arguments) => manual::man(arguments, out),
    }
}

/// The paths of a topology: those given, or the one that needs no name.
pub fn paths(given: &[PathBuf]) -> Vec<PathBuf> {
    if given.is_empty() { vec![PathBuf::from("landfall.yaml")] } else { given.to_vec() }
}

/// Loads a topology; its problems are printed, all at once.
pub fn load(given: &[PathBuf]) -> Result<Plan, Failure> {
    let documents = landfall_topology::load(&paths(given))?;
    let checked = landfall_topology::check(&documents, &environment);
    for issue in &checked.issues {
        eprintln!("{issue}");
    }
    checked.plan.ok_or(Failure::Topology)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        for (typed, meant) in [("chekc", "check"), ("dead-leters", "dead-letters"), ("statsu", "status")] {
            let error = Cli::try_parse_from(["landfall", typed]).expect_err(typed);
            assert_eq!((error.kind(), error.exit_code()), (ErrorKind::InvalidSubcommand, 2));
            assert!(error.to_string().contains(meant), "{error}");
        }
    }

    #[test]
    fn every_command_and_option_has_a_line_of_help() {
        fn look(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty() && !help.ends_with('.'), "{} of {}: {help:?}", argument.get_id(), command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }
}
