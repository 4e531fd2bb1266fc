//! `cargo xtask`: tools for developers.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod generate_protobuf;
mod schema_diff;
mod schema_listing;
mod schema_report;

#[derive(Debug, Parser)]
#[command(about = "Tools for developers of cursor-sidecar")]
struct XtaskArguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// Write the Rust code and the descriptors of `schema/proto`.
    GenerateProtobuf,
    /// Compare our copy of Cursor's messages with a listing of newer ones; exits with 1 if
    /// something breaks, with 2 if the listing cannot be read.
    ///
    /// Each message's full name starts a line; its fields follow, indented, as "number name type
    /// [label]".
    CompareSchema {
        /// The listing.
        file: PathBuf,
        /// Print the comparison as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Returns the root of the repository.
fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

fn main() -> ExitCode {
    match run(XtaskArguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: XtaskCommand) -> anyhow::Result<ExitCode> {
    match command {
        XtaskCommand::GenerateProtobuf => generate_protobuf::write_all()?,
        XtaskCommand::CompareSchema { file, json } => {
            let (report, breaks) = schema_report::compare(&file, json)?;
            std::io::stdout().write_all(report.as_bytes())?;
            if breaks {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
