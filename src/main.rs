//! The `cursor-sidecar` command: parse arguments, open one door, map errors to exit codes.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use cursor_sidecar::doors::cli::{Ask, AskError, Models};
use cursor_sidecar::doors::rpc;
use cursor_sidecar::sim;
use etcetera::BaseStrategy as _;

/// Use Cursor's models outside Cursor.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve one host over JSON-RPC on standard input and output (the default).
    Stdio,
    Ask(Ask),
    Models(Models),
    Sim(sim::Args),
    /// Print the JSON Schema of the JSON-RPC protocol.
    Schema,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A person who just typed the name would wait for frames that never come.
    if arguments.command.is_none() && std::io::stdin().is_terminal() {
        let _ = Arguments::command().print_help();
        return ExitCode::from(2);
    }
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
        match arguments.command.unwrap_or(Command::Stdio) {
            Command::Stdio => match rpc::serve(home).await? {
                rpc::Ended::Orderly => {}
                // As in LSP: an end nobody announced is told by the exit code.
                rpc::Ended::Abrupt => std::process::exit(1),
            },
            Command::Schema => writeln!(std::io::stdout(), "{:#}", rpc::schema())?,
            Command::Ask(ask) => ask.run(home).await?,
            Command::Models(models) => models.run(home).await?,
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
