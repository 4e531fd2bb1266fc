//! `cursor-sidecar doctor`: checks the setup, and draws the timeline of a debug log.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::for_stdout;
use crate::config::in_force::{InForce, Source};
use crate::misread;
use crate::telemetry::logfile;
use crate::telemetry::timeline::{self, Glyphs, Mark, Paint, Style, Timeline};
use agent::run::Backend;
use foundation::place::state_dir;
use foundation::presentable;
use foundation::private;
use foundation::settings::SETTINGS;
use foundation::terminal_text::clean;

/// How many logs are listed.
const LOGS_SHOWN: usize = 3;
/// Files of the state folder that must be private.
const SECRET_FILES: [&str; 2] = ["login.json", "gateway-token"];
/// Supported terminal widths.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=200;
const USUAL_WIDTH: usize = 80;

/// Check the setup, or draw the turns of a debug log.
///
/// Set PI_CURSOR_PROVIDER_DEBUG=1 to write debug logs.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Draw this debug log.
    file: Option<PathBuf>,
    /// Draw the newest debug log.
    #[arg(long, conflicts_with = "file")]
    last: bool,
    /// Verify the API key with Cursor (the only check that uses the network).
    #[arg(long, conflicts_with_all = ["file", "last"])]
    online: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
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
    #[error("there is no state folder on this machine; set PI_CURSOR_STATE_DIR")]
    NoState,
    /// Standard output is closed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The checks found problems, which are printed above.
    #[error("the checks found problems; see above")]
    Problems,
}

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The result of one check.
struct Finding {
    mark: Mark,
    text: String,
}

fn well(text: impl Into<String>) -> Finding {
    Finding {
        mark: Mark::Well,
        text: text.into(),
    }
}

fn bad(text: impl Into<String>) -> Finding {
    Finding {
        mark: Mark::Failed,
        text: text.into(),
    }
}

impl Doctor {
    /// Runs the checks or draws the log, and prints the result.
    pub async fn run(self, home: Option<PathBuf>) -> Result<(), DoctorError> {
        let env = |name: &str| std::env::var(name).ok();
        let home = home.as_deref();
        match self.log(&env, home)? {
            Some(path) => self.print_log(&path, &env),
            None => self.print_checkup(&env, home).await,
        }
    }

    /// Returns the log to draw, if one was requested.
    fn log(&self, env: Env<'_>, home: Option<&Path>) -> Result<Option<PathBuf>, DoctorError> {
        if !self.last {
            return Ok(self.file.clone());
        }
        let folder = logfile::folder(&env, home).ok_or(DoctorError::NoState)?;
        let newest = logfile::found(&folder).into_iter().next();
        newest.map(Some).ok_or(DoctorError::NoLog(folder))
    }

    fn print_log(&self, path: &Path, env: Env<'_>) -> Result<(), DoctorError> {
        let timeline = read(path).map_err(|source| DoctorError::Log {
            path: path.to_owned(),
            source,
        })?;
        let mut out = std::io::stdout();
        if self.json {
            let json = serde_json::to_value(&timeline).unwrap_or_default();
            writeln!(out, "{json:#}")?;
        } else {
            write!(out, "{}", timeline::draw(&timeline, style(env)))?;
        }
        Ok(())
    }

    async fn print_checkup(&self, env: Env<'_>, home: Option<&Path>) -> Result<(), DoctorError> {
        let mut findings = vec![well(format!(
            "cursor-sidecar {}",
            env!("CARGO_PKG_VERSION")
        ))];
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let warnings = misread::all(&env, home, names);
        let log = logfile::wanted(&env, home, &mut Vec::new());
        let backend = match Backend::from_env(&env, home) {
            Ok((backend, _)) => {
                findings.push(well(format!("runs go to {}", backend.endpoints.agent)));
                Some(backend)
            }
            Err(error) => {
                findings.push(bad(error.to_string()));
                None
            }
        };
        findings.extend(warnings.iter().map(|warning| bad(warning.to_string())));
        findings.extend(state(env, home));
        findings.push(match log {
            logfile::Wanted::Off => well("debug log: off (PI_CURSOR_PROVIDER_DEBUG=1 turns it on)"),
            logfile::Wanted::In(folder) => well(format!("debug log: in {}", folder.display())),
            logfile::Wanted::At(path) => well(format!("debug log: {}", path.display())),
            logfile::Wanted::Nowhere => bad(DoctorError::NoState.to_string()),
        });
        let folder = logfile::folder(&env, home);
        let logs = folder.as_deref().map(logfile::found).unwrap_or_default();
        let drift = drift(&logs);
        findings.extend(drift.iter().map(|(kind, count)| {
            bad(format!("wire drift: the server sends {kind} (at least {count}), which this version does not know"))
        }));
        let mut failed = false;
        if self.online
            && let Some(backend) = backend
        {
            findings.push(match backend.account.token().await {
                Ok(_) => well(format!("{} takes the key", backend.endpoints.backend)),
                Err(error) => {
                    failed = true;
                    bad(error.to_string())
                }
            });
        }
        let in_force = SETTINGS.iter().map(|setting| {
            let in_force = InForce::of(setting, &env, &warnings);
            (setting.name, in_force)
        });
        let in_force: Vec<Named> = in_force.collect();
        let shown = &logs[..logs.len().min(LOGS_SHOWN)];
        let page = if self.json {
            let json = as_json(&findings, &in_force, shown, &drift);
            format!("{:#}\n", for_stdout(json))
        } else {
            as_text(&findings, &in_force, shown, style(env))
        };
        write!(std::io::stdout(), "{page}")?;
        if failed {
            Err(DoctorError::Problems)
        } else {
            Ok(())
        }
    }
}

fn read(path: &Path) -> std::io::Result<Timeline> {
    let bytes = std::fs::read(path)?;
    Ok(timeline::read(&String::from_utf8_lossy(&bytes)))
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

/// Checks whether the state folder can be written, and whether it and the secrets in it are
/// private: others are not used.
fn state(env: Env<'_>, home: Option<&Path>) -> Vec<Finding> {
    let Some(folder) = state_dir(&env, home) else {
        return vec![bad(DoctorError::NoState.to_string())];
    };
    let shown = folder.display();
    if let Err(error) = private::check_folder(&folder) {
        return vec![bad(format!("state folder: {error}"))];
    }
    if !folder.exists() {
        let made = format!("state folder: {shown} (made when it is needed)");
        return vec![well(made)];
    }
    let probe = folder.join(format!(".doctor-{}", uuid::Uuid::new_v4()));
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&probe);
    let mut findings = vec![match made {
        Ok(_) => {
            // A leftover file would do no harm.
            let _ = std::fs::remove_file(&probe);
            well(format!("state folder: {shown}, can be written"))
        }
        Err(error) => bad(format!("state folder: {shown} cannot be written: {error}")),
    }];
    let secrets = SECRET_FILES.map(|name| private::read_secret(&folder.join(name)));
    let exposed = secrets.into_iter().filter_map(Result::err);
    findings.extend(exposed.map(|error| bad(error.to_string())));
    findings
}

/// A setting's name and effective value.
type Named = (&'static str, InForce);

fn as_text(findings: &[Finding], settings: &[Named], logs: &[PathBuf], style: Style) -> String {
    let mut page = String::new();
    for finding in findings {
        let text = presentable(&finding.text);
        page.push_str(&format!("{} {text}\n", style.sign(finding.mark)));
    }
    page.push_str("\nsettings in force\n");
    for (name, in_force) in settings {
        let InForce { value, remark, .. } = in_force;
        if in_force.source == Source::Default && value.is_empty() && remark.is_none() {
            continue;
        }
        let source = source(in_force);
        let remark = remark.as_deref().map(|remark| format!("; {remark}"));
        let remark = remark.unwrap_or_default();
        let line = format!("  {name} = {value} ({source}{remark})\n");
        page.push_str(&clean(&line));
    }
    if !logs.is_empty() {
        page.push_str("\nnewest debug logs (cursor-sidecar doctor FILE draws one)\n");
        for log in logs {
            page.push_str(&clean(&format!("  {}\n", log.display())));
        }
    }
    page
}

fn source(in_force: &InForce) -> &'static str {
    match in_force.source {
        Source::Default => "default",
        Source::Environment => "environment",
    }
}

fn as_json(
    findings: &[Finding],
    settings: &[Named],
    logs: &[PathBuf],
    drift: &[(String, u64)],
) -> Json {
    let findings: Vec<Json> = findings
        .iter()
        .map(|finding| json!({"ok": finding.mark == Mark::Well, "text": finding.text}))
        .collect();
    let settings: Vec<Json> = settings
        .iter()
        .map(|(name, in_force)| {
            let source = source(in_force);
            let mut setting = json!({"name": name, "value": in_force.value, "source": source});
            if let Some(remark) = &in_force.remark {
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

/// Returns the drawing style for this terminal.
fn style(env: Env<'_>) -> Style {
    let terminal = std::io::stdout().is_terminal();
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    // As the C library reads them: the first that is set decides.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    let unicode = terminal && (locale.contains("utf-8") || locale.contains("utf8"));
    let colours = terminal && set("NO_COLOR").is_none() && env("TERM").as_deref() != Some("dumb");
    let columns = || set("COLUMNS")?.parse().ok();
    let window = || {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    };
    let width = columns().or_else(window).unwrap_or(USUAL_WIDTH);
    Style {
        width: width.clamp(*WIDTHS.start(), *WIDTHS.end()),
        glyphs: if unicode {
            Glyphs::Unicode
        } else {
            Glyphs::Ascii
        },
        paint: if colours {
            Paint::Colours
        } else {
            Paint::Plain
        },
    }
}
