//! Invalid settings: whichever module reads one, a front end reports it once.

use std::path::Path;

use crate::telemetry::logfile;
use agent::catalog;
use agent::run::Backend;
use agent::turn;
use foundation::parse;
use foundation::settings::{self, Warning};

/// Settings that only the extension reads.
pub(super) const CARD_SETTINGS: [&str; 2] = [
    "PI_CURSOR_NATIVE_TOOL_DISPLAY",
    "PI_CURSOR_REGISTER_NATIVE_TOOLS",
];

/// Returns warnings about the settings of an environment and the variable `names` in it, without
/// duplicates.
pub(super) fn all(
    env: &impl Fn(&str) -> Option<String>,
    home: Option<&Path>,
    names: impl Iterator<Item = String>,
) -> Vec<Warning> {
    let mut warnings = settings::unknown(names);
    warnings.extend(Backend::misread(env));
    warnings.extend(turn::Policy::from_env(env).1);
    warnings.extend(catalog::CachePolicy::from_env(env, None).1);
    for name in CARD_SETTINGS {
        let value = env(name).filter(|value| !["", "auto"].contains(&value.trim()));
        if parse::switch(value.as_deref()).is_none() {
            warnings.extend(settings::not_understood(name, value.as_deref()));
        }
    }
    logfile::wanted(env, home, &mut warnings);
    let mut once = Vec::new();
    for warning in warnings {
        if !once.contains(&warning) {
            once.push(warning);
        }
    }
    once
}

/// Returns the warnings for this process, after logging them to stderr and the debug log.
pub(super) fn log_all(home: Option<&Path>) -> Vec<Warning> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let warnings = all(&|name: &str| std::env::var(name).ok(), home, names);
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    warnings
}
