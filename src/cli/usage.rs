//! `cursor-sidecar usage`: the plan of the account and what is left of it.

use std::io::Write as _;
use std::time::SystemTime;

use serde_json::{Value as Json, json};

use super::for_stdout;
use crate::config::Config;
use crate::{account_checkup, usage_report};
use agent::run::{AssembleError, Backend};
use cursor_client::account::{AuthorizedError, find_credential};
use foundation::terminal_text::clean;

/// Show the account's plan and its usage in this billing period.
#[derive(Debug, clap::Args)]
pub struct UsageCommand {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The settings are incomplete.
    #[error(transparent)]
    Settings(#[from] AssembleError),
    /// Cursor did not answer.
    #[error(transparent)]
    Account(#[from] AuthorizedError),
    /// Standard output is closed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl UsageCommand {
    /// Asks Cursor and prints the answer.
    pub async fn run(self, config: &Config) -> Result<(), UsageError> {
        let backend = Backend::new(&config.client)?;
        let (_, source) = find_credential(None, &config.client).map_err(AssembleError::from)?;
        let dashboard = backend.dashboard();
        let (profile, plan) = tokio::join!(
            dashboard.user(&backend.account),
            dashboard.plan(&backend.account)
        );
        let plan = plan?;
        // The profile is informational.
        let profile = profile.unwrap_or_default();
        let mut out = std::io::stdout();
        if self.json {
            let json = json!({
                "keySource": account_checkup::name(source),
                "email": profile.email,
                "name": profile.name,
                "plan": plan.name,
                "usedCents": plan.used_cents,
                "limitCents": plan.limit_cents,
                "percentUsed": plan.percent_used,
                "autoPercentUsed": plan.auto_percent_used,
                "namedPercentUsed": plan.named_percent_used,
                "onDemandCents": plan.on_demand_cents,
                "onDemandLimitCents": plan.on_demand_limit_cents,
                "periodEndsAt": plan.period_ends_ms,
                "message": plan.message,
            });
            let reported: serde_json::Map<String, Json> = match json {
                Json::Object(members) => members
                    .into_iter()
                    .filter(|(_, value)| !value.is_null())
                    .collect(),
                _ => serde_json::Map::new(),
            };
            writeln!(out, "{:#}", for_stdout(Json::Object(reported)))?;
            return Ok(());
        }
        for line in usage_report::lines(&profile, &plan, SystemTime::now()) {
            writeln!(out, "{}", clean(&line))?;
        }
        Ok(())
    }
}
