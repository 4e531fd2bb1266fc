//! The `cursor-sidecar` command: parses arguments, runs one front end, maps errors to exit
//! codes.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use agent_tools::shell::reaper::{self, ChildReaper};
use clap::{CommandFactory as _, Parser, Subcommand};
use cursor_sidecar::cli::{
    AskCommand, AskCommandError, DoctorCommand, LoginCommand, LogoutCommand, ModelsCommand,
    SchemaCommand, TrustCommand, UsageCommand,
};
use cursor_sidecar::config::{Config, process_environment};
use cursor_sidecar::telemetry::debug_log::{self, DebugLogGuard, DebugLogLayer};
use cursor_sidecar::telemetry::log_file::{LogDestination, LogFile};
use cursor_sidecar::telemetry::panic_hook;
use cursor_sidecar::{acp, gateway, rpc};
use etcetera::BaseStrategy as _;
use foundation::{presentable, private_files, secrets};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Use Cursor's models outside Cursor.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None)]
struct Arguments {
    #[command(subcommand)]
    command: Option<CliCommand>,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve one host over JSON-RPC on standard input and output (the default).
    Stdio,
    Gateway(gateway::Serve),
    Acp(acp::AcpCommand),
    Ask(AskCommand),
    Models(ModelsCommand),
    Login(LoginCommand),
    Logout(LogoutCommand),
    Usage(UsageCommand),
    Doctor(DoctorCommand),
    Trust(TrustCommand),
    Sim(cursor_sim::Args),
    Schema(SchemaCommand),
    /// Print a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
    /// Ends processes that a sidecar leaves running; started by the sidecar itself.
    #[command(hide = true, name = reaper::ARGUMENT)]
    Reaper,
}

fn main() -> ExitCode {
    let undumpable = deny_inspection();
    panic_hook::install();
    // Hosts pass no arguments and start us often, so skip clap: parsing costs time and memory.
    let arguments = match std::env::args_os().len() {
        0 | 1 => Arguments { command: None },
        _ => Arguments::parse(),
    };
    // A user who only typed the name gets help, because no JSON-RPC frames would come from a
    // terminal.
    if arguments.command.is_none() && std::io::stdin().is_terminal() {
        let _ = Arguments::command().print_help();
        return ExitCode::from(2);
    }
    if matches!(arguments.command, Some(CliCommand::Reaper)) {
        reaper::hold();
        return ExitCode::SUCCESS;
    }
    let home = etcetera::choose_base_strategy()
        .ok()
        .map(|folders| folders.home_dir().to_owned());
    let config = Arc::new(Config::load(&process_environment(), home));
    let command = arguments.command.unwrap_or(CliCommand::Stdio);
    // Kept until the end, because dropping it flushes the last records.
    let _log = start_logs(&command, &config);
    if let Err(error) = undumpable {
        tracing::warn!(%error, "processes of the same user can read the key from this one");
    }
    match run(command, config) {
        Ok(code) => code,
        // As in every pipe: `cursor-sidecar models | head` is no error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = match error.downcast_ref::<AskCommandError>() {
                Some(AskCommandError::Cancelled) => 130,
                _ => 1,
            };
            // A write error is ignored, because a closed stderr cannot be reported anywhere.
            let error = presentable(&error.to_string());
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(code)
        }
    }
}

/// Returns whether the reader of our output has closed it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Makes this process undumpable, because its environment and memory hold the key: other
/// processes of the same user, such as commands we start, cannot read them, and no core file is
/// written.
#[cfg(target_os = "linux")]
fn deny_inspection() -> std::io::Result<()> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Does nothing, because other systems have no safe call for it.
#[cfg(not(target_os = "linux"))]
fn deny_inspection() -> std::io::Result<()> {
    Ok(())
}

fn run(command: CliCommand, config: Arc<Config>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Released soon, because storing many turns at once starts dozens of blocking threads.
        .thread_keep_alive(std::time::Duration::from_secs(2))
        .enable_all()
        .build()?;
    let reaper = ChildReaper::new();
    let code = runtime.block_on(async {
        match command {
            CliCommand::Reaper => reaper::hold(),
            CliCommand::Stdio => match rpc::serve(config, reaper.clone()).await? {
                rpc::ExitKind::Orderly => {}
                // As in LSP: exiting without a `shutdown` request is an error.
                rpc::ExitKind::Abrupt => return anyhow::Ok(ExitCode::FAILURE),
            },
            CliCommand::Schema(schema) => schema.run()?,
            CliCommand::Gateway(gateway) => gateway.run(config).await?,
            CliCommand::Acp(acp) => acp.run(config, reaper.clone()).await?,
            CliCommand::Ask(ask) => ask.run(&config, reaper.clone()).await?,
            CliCommand::Models(models) => models.run(&config).await?,
            CliCommand::Login(login) => login.run(&config).await?,
            CliCommand::Logout(logout) => logout.run(&config)?,
            CliCommand::Usage(usage) => usage.run(&config).await?,
            CliCommand::Doctor(doctor) => doctor.run(&config).await?,
            CliCommand::Trust(trust) => trust.run(&config)?,
            CliCommand::Sim(sim) => sim.run().await?,
            CliCommand::Completions { shell } => {
                let (mut command, mut script) = (Arguments::command(), Vec::new());
                clap_complete::generate(shell, &mut command, "cursor-sidecar", &mut script);
                std::io::stdout().write_all(&script)?;
            }
            CliCommand::Man => {
                clap_mangen::Man::new(Arguments::command()).render(&mut std::io::stdout())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    });
    reaper.end_all();
    // Do not wait for tasks that are still running, because their results are not needed.
    runtime.shutdown_background();
    code
}

/// A writer that removes secrets and control characters, because names and errors in log lines
/// may come from servers or repositories.
struct CleanLines<W>(W);

impl<W: std::io::Write> std::io::Write for CleanLines<W> {
    /// Writes one cleaned line; the log passes each line in a single call.
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        let text = presentable(&String::from_utf8_lossy(line));
        self.0.write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Returns a filter that passes the events of this workspace's crates, and no dependency's.
fn our_crates(level: tracing::Level) -> Targets {
    let crates = [
        "cursor_sidecar",
        "agent",
        "agent_tools",
        "cursor_client",
        "cursor_proto",
        "cursor_sim",
        "foundation",
    ];
    Targets::new()
        .with_targets(crates.map(|name| (name, level)))
        // Its name starts with the name of one of our crates.
        .with_target("agent_client_protocol", LevelFilter::OFF)
}

/// Starts logging: warnings for the user on stderr (more with `RUST_LOG`), and everything in the
/// debug log if it is enabled. Returns the guard that flushes the debug log.
fn start_logs(command: &CliCommand, config: &Config) -> Option<DebugLogGuard> {
    let default_filter = || our_crates(tracing::Level::INFO);
    let filter = match config.log_filter.as_deref().map(str::parse) {
        Some(Ok(filter)) => filter,
        Some(Err(error)) => {
            let _ = writeln!(std::io::stderr(), "warning: RUST_LOG is not used: {error}");
            default_filter()
        }
        None => default_filter(),
    };
    let stderr = tracing_subscriber::fmt::layer()
        .with_writer(|| CleanLines(std::io::stderr()))
        .with_ansi(false)
        .without_time()
        .with_target(false);
    let debug_log = match command {
        CliCommand::Stdio | CliCommand::Gateway(_) | CliCommand::Acp(_) | CliCommand::Ask(_) => {
            open_debug_log(config)
        }
        CliCommand::Doctor(_)
        | CliCommand::Login(_)
        | CliCommand::Logout(_)
        | CliCommand::Usage(_)
        | CliCommand::Trust(_)
        | CliCommand::Models(_)
        | CliCommand::Sim(_)
        | CliCommand::Completions { .. }
        | CliCommand::Man
        | CliCommand::Reaper
        | CliCommand::Schema(_) => None,
    };
    let stderr = tracing_subscriber::registry().with(stderr.with_filter(filter));
    let Some((layer, guard)) = debug_log else {
        stderr.init();
        return None;
    };
    let ours = our_crates(tracing::Level::DEBUG);
    stderr.with(layer.with_filter(ours)).init();
    tracing::debug!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        "log.started"
    );
    Some(guard)
}

/// Opens the debug log and prints its path. If it cannot be opened, prints a warning and returns
/// `None`, because the log is not needed to serve.
fn open_debug_log(config: &Config) -> Option<(DebugLogLayer, DebugLogGuard)> {
    let mut stderr = std::io::stderr();
    let opened = match &config.debug_log {
        LogDestination::Off => return None,
        LogDestination::NewFileIn(folder) => {
            let state = config.state_dir.as_deref().unwrap_or(folder);
            let checked = private_files::check_folder(state).map_err(std::io::Error::other);
            checked.and_then(|()| LogFile::create_in(folder))
        }
        LogDestination::File(path) => LogFile::open(path),
        LogDestination::NoStateDir => Err(std::io::Error::other(
            "there is no state folder; set PI_CURSOR_STATE_DIR",
        )),
    };
    let started = opened.and_then(|file| {
        let path = file.path().display().to_string();
        Ok((path, debug_log::start(file, secrets())?))
    });
    match started {
        Ok((path, started)) => {
            let _ = writeln!(stderr, "debug log: {path}");
            Some(started)
        }
        Err(error) => {
            let _ = writeln!(stderr, "warning: no debug log: {error}");
            None
        }
    }
}
