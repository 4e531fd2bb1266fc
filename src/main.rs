//! The `cursor-sidecar` command: parse arguments, open one door, map errors to exit codes.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use cursor_sidecar::doors::cli::{Ask, AskError};
use cursor_sidecar::sim;
use etcetera::BaseStrategy as _;

/// Use Cursor's models outside Cursor.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ask(Ask),
    Sim(sim::Args),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = match error.downcast_ref::<AskError>() {
                Some(AskError::Cancelled) => 130,
                _ => 1,
            };
            // Nothing to be done about a closed stderr.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let home = etcetera::choose_base_strategy()
        .ok()
        .map(|folders| folders.home_dir().to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match arguments.command {
            Command::Ask(ask) => ask.run(home).await?,
            Command::Sim(sim) => sim.run().await?,
        }
        Ok(())
    })
}

/// Warnings for a person; `RUST_LOG` asks for more.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("cursor_sidecar=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .init();
}
