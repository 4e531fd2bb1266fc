//! The `cursor-sidecar` command.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

/// Use Cursor's models outside Cursor.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Sim(cursor_sidecar::sim::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Sim(args) = Cli::parse().command;
    match args.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "cursor-sidecar: {error}");
            ExitCode::FAILURE
        }
    }
}
