//! The binary `landfall`.

fn main() -> std::process::ExitCode {
    landfall::cli::main()
}
