//! `cursor-sidecar doctor`: checks the setup, and draws the timeline of a debug log.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::{bundle, for_stdout};
use crate::account_checkup;
use crate::checkup::{self, Finding, Severity};
use crate::config::{Config, EffectiveValue, TerminalOptions, ValueSource};
use crate::reachability;
use crate::telemetry::log_file;
use crate::telemetry::timeline::{self, Style, Timeline};
use agent::run::Backend;
use cursor_client::account::KeyError;
use foundation::presentable;
use foundation::terminal_text::clean;

/// How many logs are listed.
const LOGS_SHOWN: usize = 3;
/// Supported terminal widths.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=200;
const USUAL_WIDTH: usize = 80;

/// Check the setup, or draw the turns of a debug log.
///
/// The exit code is 1 if a check found a problem.
///
/// Set PI_CURSOR_PROVIDER_DEBUG=1 to write debug logs.
#[derive(Debug, clap::Args)]
pub struct DoctorCommand {
    /// Draw this debug log.
    file: Option<PathBuf>,
    /// Draw the newest debug log.
    #[arg(long, conflicts_with = "file")]
    last: bool,
    /// Verify the API key with Cursor, and show the plan.
    #[arg(long, conflicts_with_all = ["file", "last"])]
    online: bool,
    /// Do not check whether Cursor's servers answer.
    #[arg(long, conflicts_with_all = ["file", "last", "online"])]
    offline: bool,
    /// List every setting with its value, also those at their default.
    #[arg(long, conflicts_with_all = ["file", "last"])]
    all: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    /// Write one file for a bug report: versions, findings, settings and the newest debug log,
    /// without prompts, secrets and file contents.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with_all = ["file", "last"])]
    bundle: Option<Option<PathBuf>>,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The log cannot be read.
    #[error("cannot read the debug log {}: {source}", path.display())]
    Log {
        /// The log file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// There is no log yet.
    #[error("no debug log in {}; set PI_CURSOR_PROVIDER_DEBUG=1 and try again what you want to see", .0.display())]
    NoLog(PathBuf),
    /// No home directory, so no state folder.
    #[error("{}", checkup::NO_STATE)]
    NoState,
    /// The file for a bug report cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// Standard output is closed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The checks found problems, which are printed above.
    #[error("the checks found problems; see above")]
    Problems,
}

impl DoctorCommand {
    /// Runs the checks or draws the log, and prints the result.
    pub async fn run(self, config: &Config) -> Result<(), DoctorError> {
        match self.log(config)? {
            Some(path) => self.print_log(&path, config),
            None => self.print_checkup(config).await,
        }
    }

    /// Returns the log to draw, if one was requested.
    fn log(&self, config: &Config) -> Result<Option<PathBuf>, DoctorError> {
        if !self.last {
            return Ok(self.file.clone());
        }
        let folder = log_dir(config).ok_or(DoctorError::NoState)?;
        let newest = log_file::list_logs(&folder).into_iter().next();
        newest.map(Some).ok_or(DoctorError::NoLog(folder))
    }

    fn print_log(&self, path: &Path, config: &Config) -> Result<(), DoctorError> {
        let timeline = read(path).map_err(|source| DoctorError::Log {
            path: path.to_owned(),
            source,
        })?;
        let mut out = std::io::stdout();
        if self.json {
            let json = serde_json::to_value(&timeline).unwrap_or_default();
            writeln!(out, "{json:#}")?;
        } else {
            write!(
                out,
                "{}",
                timeline::render(&timeline, style(&config.terminal))
            )?;
        }
        Ok(())
    }

    async fn print_checkup(&self, config: &Config) -> Result<(), DoctorError> {
        let mut findings = checkup::check(config, None, &KeyError::Missing.to_string());
        let folder = log_dir(config);
        let logs = folder
            .as_deref()
            .map(log_file::list_logs)
            .unwrap_or_default();
        let drift = drift(&logs);
        findings.extend(drift.iter().map(|(kind, count)| {
            Finding::warning(format!("wire drift: the server sends {kind} (at least {count}), which this version does not know"))
        }));
        if !self.offline {
            findings.extend(reachability::check(config).await);
        }
        if !self.online {
            let text = "the key was not sent to Cursor (doctor --online verifies it)";
            findings.push(Finding::ok(text));
        } else if let Ok(backend) = Backend::new(&config.client) {
            findings.extend(account_checkup::online(&backend).await);
        }
        let settings = config.effective();
        let settings: Vec<NamedValue> = settings
            .map(|(setting, value)| (setting.name, value))
            .collect();
        let shown = &logs[..logs.len().min(LOGS_SHOWN)];
        if let Some(file) = &self.bundle {
            let shared = findings.iter().filter(|finding| !finding.is_private());
            let shared: Vec<Finding> = shared.cloned().collect();
            let report = as_json(&shared, &settings, &[], &drift);
            let path = bundle::write(file.as_deref(), config, report)
                .map_err(|(path, source)| DoctorError::Bundle { path, source })?;
            writeln!(
                std::io::stdout(),
                "written: {}\nRead it, then attach it to the report of the bug.",
                clean(&path.display().to_string())
            )?;
            return Ok(());
        }
        let page = if self.json {
            let json = as_json(&findings, &settings, shown, &drift);
            format!("{:#}\n", for_stdout(json))
        } else {
            self.as_text(&findings, &settings, shown, style(&config.terminal))
        };
        write!(std::io::stdout(), "{page}")?;
        let is_problem = |finding: &Finding| finding.severity == Severity::Problem;
        if findings.iter().any(is_problem) {
            Err(DoctorError::Problems)
        } else {
            Ok(())
        }
    }

    fn as_text(
        &self,
        findings: &[Finding],
        settings: &[NamedValue],
        logs: &[PathBuf],
        style: Style,
    ) -> String {
        let mut page = String::new();
        for finding in findings {
            let text = presentable(&finding.text);
            page.push_str(&format!("{} {text}\n", sign(style, finding.severity)));
        }
        let title = if self.all {
            "\nsettings in force\n"
        } else {
            "\nsettings that differ from the default (--all lists every setting)\n"
        };
        let mut listed = String::new();
        for (name, effective) in settings {
            let EffectiveValue { value, remark, .. } = effective;
            let is_default = effective.source == ValueSource::Default && remark.is_none();
            if is_default && (!self.all || value.is_empty()) {
                continue;
            }
            let source = source(effective.source);
            let remark = remark.as_deref().map(|remark| format!("; {remark}"));
            let remark = remark.unwrap_or_default();
            let line = format!("  {name} = {value} ({source}{remark})\n");
            listed.push_str(&clean(&line));
        }
        if listed.is_empty() {
            listed = "  none\n".to_owned();
        }
        page.push_str(title);
        page.push_str(&listed);
        if !logs.is_empty() {
            page.push_str("\nnewest debug logs (cursor-sidecar doctor FILE draws one)\n");
            for log in logs {
                page.push_str(&clean(&format!("  {}\n", log.display())));
            }
        }
        page
    }
}

fn read(path: &Path) -> std::io::Result<Timeline> {
    let bytes = std::fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    let timeline = timeline::read(&text);
    let lines = text.lines().filter(|line| !line.trim().is_empty()).count();
    if lines > 0 && timeline.problems.len() == lines {
        return Err(std::io::Error::other(
            "no line of it is a record of a debug log",
        ));
    }
    Ok(timeline)
}

/// Returns the directory of debug logs.
fn log_dir(config: &Config) -> Option<PathBuf> {
    config.state_dir.as_deref().map(log_file::log_dir)
}

/// Returns the unknown fields and messages that newer logs report.
fn drift(logs: &[PathBuf]) -> Vec<(String, u64)> {
    let mut most = std::collections::BTreeMap::<String, u64>::new();
    for log in logs.iter().take(LOGS_SHOWN) {
        for (kind, count) in read(log).unwrap_or_default().drift {
            let known = most.entry(kind).or_default();
            *known = (*known).max(count);
        }
    }
    most.into_iter().collect()
}

/// A setting's name and effective value.
type NamedValue = (&'static str, EffectiveValue);

fn sign(style: Style, severity: Severity) -> String {
    match severity {
        Severity::Ok => style.ok_sign(),
        Severity::Warning => style.warning_sign(),
        Severity::Problem => style.problem_sign(),
    }
}

fn source(source: ValueSource) -> &'static str {
    match source {
        ValueSource::Default => "default",
        ValueSource::Environment => "environment",
        ValueSource::File => "config.toml",
    }
}

fn as_json(
    findings: &[Finding],
    settings: &[NamedValue],
    logs: &[PathBuf],
    drift: &[(String, u64)],
) -> Json {
    let findings: Vec<Json> = findings
        .iter()
        .map(|finding| {
            let severity = match finding.severity {
                Severity::Ok => "ok",
                Severity::Warning => "warning",
                Severity::Problem => "problem",
            };
            let is_ok = finding.severity == Severity::Ok;
            json!({"ok": is_ok, "severity": severity, "text": finding.text})
        })
        .collect();
    let settings: Vec<Json> = settings
        .iter()
        .map(|(name, effective)| {
            let source = source(effective.source);
            let mut setting = json!({"name": name, "value": effective.value, "source": source});
            if let Some(remark) = &effective.remark {
                setting["remark"] = json!(remark);
            }
            setting
        })
        .collect();
    let drift: serde_json::Map<String, Json> = drift
        .iter()
        .map(|(kind, count)| (kind.clone(), json!(count)))
        .collect();
    json!({"version": env!("CARGO_PKG_VERSION"), "findings": findings, "settings": settings,
           "logs": logs, "wireDrift": drift})
}

/// Returns how many columns the terminal has.
#[cfg(unix)]
fn window_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns `None`, because no safe call of the standard library knows.
#[cfg(windows)]
fn window_width() -> Option<usize> {
    None
}

/// Returns the drawing style for this terminal.
fn style(options: &TerminalOptions) -> Style {
    let is_terminal = std::io::stdout().is_terminal();
    let width = options.columns.or_else(window_width);
    let width = width.unwrap_or(USUAL_WIDTH);
    Style {
        width: width.clamp(*WIDTHS.start(), *WIDTHS.end()),
        unicode: is_terminal && options.is_utf8,
        color: is_terminal && !options.no_color && !options.is_dumb,
    }
}
