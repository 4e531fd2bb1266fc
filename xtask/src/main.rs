//! `cargo xtask`: tools for developers.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench_report;
mod generate_protobuf;
mod schema_diff;
mod schema_listing;
mod schema_report;

use xtask::{package, root};

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
    /// Print the figures that benches wrote to a file, and make `docs/benchmarks.md` and its chart
    /// of them.
    ReportBenches {
        /// The file, with one figure a line.
        file: PathBuf,
        /// The folder for the page and the chart [default: docs].
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// How long a clean clone took to pass CI, which no bench measures.
        #[arg(long, value_name = "MINUTES")]
        ci_minutes: Option<f64>,
        /// Where they were measured, as the page names it.
        #[arg(long, default_value = "an unnamed machine")]
        machine: String,
    },
    /// Write the npm packages into `target/packages`: the extension with its launcher, and one
    /// package for each platform that can be built here.
    Package {
        /// A program that was built before, as PLATFORM=PATH; nothing is built then. Repeatable.
        #[arg(long = "binary", value_name = "PLATFORM=PATH", value_parser = package::parse_binary)]
        binaries: Vec<(String, PathBuf)>,
        /// Where to write the packages.
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        /// Let the main package refer to the written files, to install it before it is published.
        #[arg(long)]
        local: bool,
    },
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
        XtaskCommand::ReportBenches {
            file,
            out,
            ci_minutes,
            machine,
        } => {
            let report = bench_report::report(&file, ci_minutes, &machine)?;
            std::io::stdout().write_all(report.table.as_bytes())?;
            let out = out.unwrap_or_else(|| root().join("docs"));
            std::fs::create_dir_all(&out)?;
            std::fs::write(out.join("benchmarks.md"), report.page)?;
            std::fs::write(out.join("benchmarks.svg"), report.chart)?;
        }
        XtaskCommand::Package {
            binaries,
            out,
            local,
        } => {
            let binaries = if binaries.is_empty() {
                package::build_reachable()?
            } else {
                binaries
            };
            let out = out.unwrap_or_else(|| root().join("target/packages"));
            for file in package::write(&out, env!("CARGO_PKG_VERSION"), &binaries, local)? {
                writeln!(std::io::stdout(), "{}", file.display())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
