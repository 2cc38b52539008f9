//! The real program once more, with the crash points and planted bugs of the test build: what the end-to-end tests start and kill.

fn main() -> std::process::ExitCode {
    landfall::cli::main()
}
