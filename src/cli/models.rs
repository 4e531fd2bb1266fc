//! `cursor-sidecar models`: prints the models that hosts are offered.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use super::for_stdout;
use crate::config::Config;
use crate::model_resolver::catalog_client;
use crate::rpc::ModelsListResult;
use agent::catalog::{
    ContextWindows, FetchMode, HostModel, HostModels, LevelRange, ListSource, ModelCatalog,
    ModelList, Speed, WAIT_BUDGET, render_snapshot,
};
use agent::run::{AssembleError, Backend};
use cursor_client::account::{KeyError, find_credential};
use foundation::terminal_text::clean;

/// List the models that hosts are offered.
#[derive(Debug, clap::Args)]
pub struct ModelsCommand {
    /// Print JSON in the format of `models/list`.
    #[arg(long)]
    json: bool,
    /// Fetch the list from Cursor even if the cache is fresh.
    #[arg(long)]
    refresh: bool,
    /// Fetch the list from Cursor and write it to FILE, for bundling with a release.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    write_snapshot: Option<PathBuf>,
    /// Include the context windows learned on this machine.
    #[arg(long, requires = "write_snapshot")]
    context_windows: bool,
}

/// Why the models could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// The settings are invalid.
    #[error(transparent)]
    Settings(#[from] AssembleError),
    /// The output could not be written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A snapshot needs a list fetched from Cursor.
    #[error("no snapshot was written: {0}")]
    NotLive(String),
    /// The refresh failed; an older list was printed.
    #[error("the list was not refreshed: {0}")]
    NotRefreshed(String),
}

impl ModelsCommand {
    /// Runs the command.
    pub async fn run(self, config: &Config) -> Result<(), ModelsError> {
        config.log_warnings();
        let (windows, problem) = ContextWindows::load(config.state_dir.as_deref());
        let mut listing = self.listing(config).await?;
        if let Some(file) = &self.write_snapshot {
            let learned = if self.context_windows {
                windows
            } else {
                ContextWindows::default()
            };
            return write_snapshot(file, &listing, &learned);
        }
        let refused = (self.refresh && listing.source != ListSource::Live)
            .then(|| ModelsError::NotRefreshed(listing.warnings.join("; ")));
        // Warnings that are part of the error are not logged again.
        let shown = refused.as_ref().map_or(0, |_| listing.warnings.len());
        listing
            .warnings
            .extend(problem.map(|problem| problem.to_string()));
        // List all thinking levels.
        let rows = HostModels::build(&listing.models, LevelRange::UpToMax, &windows);
        let mut out = std::io::stdout();
        if self.json {
            let result = serde_json::to_value(ModelsListResult::of(listing, &rows));
            let result = result.map_err(std::io::Error::other)?;
            writeln!(out, "{:#}", for_stdout(result))?;
            return refused.map_or(Ok(()), Err);
        }
        let use_color = out.is_terminal() && !config.terminal.no_color;
        out.write_all(table(&rows, use_color).as_bytes())?;
        for warning in listing.warnings.iter().skip(shown) {
            tracing::warn!("{warning}");
        }
        tracing::info!("{}", summary(&listing, &rows));
        refused.map_or(Ok(()), Err)
    }

    async fn listing(&self, config: &Config) -> Result<ModelList, ModelsError> {
        let catalog = ModelCatalog::new(config.model_cache.clone());
        let options = &config.client;
        let backend = match Backend::new(options) {
            // Without a key a cached or the bundled list is shown.
            Err(AssembleError::Key(missing @ KeyError::Missing)) => {
                return Ok(catalog.without_key(&options.endpoints, &missing.to_string()));
            }
            backend => backend?,
        };
        let (key, _) = find_credential(None, options).map_err(AssembleError::from)?;
        let mode = if self.refresh || self.write_snapshot.is_some() {
            FetchMode::Live
        } else {
            // The process exits right after, so a background refresh would not finish.
            FetchMode::WaitForRefresh(WAIT_BUDGET)
        };
        Ok(catalog.list(&catalog_client(&backend, key), mode).await)
    }
}

/// Writes the snapshot and prints ids and counts only, because the file itself is for review.
fn write_snapshot(
    file: &Path,
    listing: &ModelList,
    windows: &ContextWindows,
) -> Result<(), ModelsError> {
    if listing.source != ListSource::Live {
        return Err(ModelsError::NotLive(listing.warnings.join("; ")));
    }
    std::fs::write(file, render_snapshot(&listing.models, windows))?;
    let mut out = std::io::stdout();
    for model in listing.models.iter() {
        writeln!(out, "{}", clean(&model.id))?;
    }
    let (models, learned) = (listing.models.len(), windows.learned().len());
    writeln!(out, "{models} models, {learned} learned context windows")?;
    Ok(())
}

fn summary(listing: &ModelList, rows: &[HostModel]) -> String {
    let models: BTreeSet<&str> = rows.iter().map(HostModel::base_id).collect();
    let source = match listing.source {
        ListSource::Live => "from Cursor",
        ListSource::Cache => "from the cache (use --refresh to update)",
        ListSource::Bundled => "bundled with cursor-sidecar",
    };
    format!(
        "{} entries for {} models, {source}",
        rows.len(),
        models.len()
    )
}

/// A server's text for one cell of the table: one line without control characters.
fn for_cell(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

const HEADINGS: [&str; 5] = ["MODEL", "CONTEXT", "THINKING", "FAST", "NAME"];

fn table(rows: &[HostModel], use_color: bool) -> String {
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                for_cell(&row.id),
                tokens(row.context_window),
                for_cell(&thinking(row)),
                match row.speed() {
                    Some(Speed::Fast) => "on".into(),
                    Some(Speed::Normal) => "off".into(),
                    None => "-".into(),
                },
                for_cell(&row.name),
            ]
        })
        .collect();
    let width = |column: usize| {
        let cells = cells.iter().map(|cells| cells[column].chars().count());
        cells.max().unwrap_or(0).max(HEADINGS[column].len())
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |cells: [&str; 5]| {
        let [id, context, thinking, fast, name] = cells;
        let [a, b, c, d] = widths;
        format!("{id:<a$}  {context:>b$}  {thinking:<c$}  {fast:<d$}  {name}")
    };
    let mut table = if use_color {
        format!("\x1b[1m{}\x1b[0m\n", line(HEADINGS))
    } else {
        line(HEADINGS) + "\n"
    };
    for cells in &cells {
        table.push_str(&line(cells.each_ref().map(String::as_str)));
        table.push('\n');
    }
    table
}

/// Returns the supported thinking levels.
fn thinking(row: &HostModel) -> String {
    let Some(levels) = &row.levels else {
        return "-".into();
    };
    let names: Vec<&str> = levels
        .iter()
        .filter(|(_, value)| value.is_some())
        .map(|(level, _)| level.name())
        .collect();
    names.join(" ")
}

/// Formats a token count, such as `272k` or `1m`.
fn tokens(count: u32) -> String {
    match count {
        count if count % 1_000_000 == 0 => format!("{}m", count / 1_000_000),
        count if count % 1_000 == 0 => format!("{}k", count / 1_000),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::catalog::CatalogModel;

    #[test]
    fn columns_are_aligned_and_colored_on_request() {
        let items = serde_json::json!({"items": [
            {"id": "composer", "parameters": [{"id": "fast", "values": ["false", "true"]}],
             "variants": [{"params": [{"id": "fast", "value": "true"}]}]},
            {"id": "gpt", "displayName": "GPT", "parameters": [
                {"id": "context", "values": ["272k", "1m"]},
                {"id": "reasoning", "values": ["none", "low", "max"]}]},
        ]});
        let items = CatalogModel::list_from_json(&items).unwrap();
        let rows = HostModels::build(&items, LevelRange::UpToMax, &ContextWindows::default());
        insta::assert_snapshot!(table(&rows, false), @r"
        MODEL     CONTEXT  THINKING     FAST  NAME
        composer     200k  -            on    composer
        gpt@272k     272k  off low max  -     GPT @ 272k
        gpt@1m         1m  off low max  -     GPT @ 1m
        ");
        assert!(table(&rows, true).starts_with("\u{1b}[1mMODEL"));
    }

    #[test]
    fn names_have_one_line_without_control_characters() {
        let items = serde_json::json!({"items": [
            {"id": "gpt", "displayName": "G\u{1b}]52;c;c3J2\u{7}P\nT\u{202e}"}]});
        let items = CatalogModel::list_from_json(&items).unwrap();
        let rows = HostModels::build(&items, LevelRange::UpToMax, &ContextWindows::default());
        insta::assert_snapshot!(table(&rows, false), @r"
        MODEL  CONTEXT  THINKING  FAST  NAME
        gpt       200k  -         -     G␛]52;c;c3J2␇P T�
        ");
    }
}
