//! `cursor-sidecar models`: what a host is offered, as a table.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use super::for_stdout;
use crate::account::{KeyError, find_key};
use crate::catalog::{
    BUDGET, Finder, Listing, Policy, Profile, Row, Rows, Source, Speed, Wanted, Windows,
    render_snapshot,
};
use crate::diag::terminal_text::clean;
use crate::diag::{place, settings};
use crate::doors::catalogue::access;
use crate::doors::rpc::ModelsListResult;
use crate::run::{AssembleError, Backend};

/// List the models a host is offered.
#[derive(Debug, clap::Args)]
pub struct Models {
    /// Print JSON, as `models/list` answers it.
    #[arg(long)]
    json: bool,
    /// Ask Cursor even if there is a fresh cache.
    #[arg(long)]
    refresh: bool,
    /// Ask Cursor and write its list to FILE, to be bundled with a release.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    write_snapshot: Option<PathBuf>,
    /// Write the context windows that were learned on this machine with it.
    #[arg(long, requires = "write_snapshot")]
    context_windows: bool,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// Settings.
    #[error(transparent)]
    Settings(#[from] AssembleError),
    /// The list could not be written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A snapshot of anything but Cursor's answer would be of no use.
    #[error("no snapshot was written: {0}")]
    NotLive(String),
    /// Cursor was to be asked and did not answer; an older list was printed.
    #[error("the list was not refreshed: {0}")]
    NotRefreshed(String),
}

impl Models {
    /// Lists and prints.
    pub async fn run(self, home: Option<PathBuf>) -> Result<(), ModelsError> {
        let env = |name: &str| std::env::var(name).ok();
        for warning in settings::unknown(std::env::vars().map(|(name, _)| name)) {
            tracing::warn!("{warning}");
        }
        let state = place::state_dir(&env, home.as_deref());
        let (windows, problem) = Windows::load(state.as_deref());
        let mut listing = self
            .listing(&env, home.as_deref(), state.as_deref())
            .await?;
        if let Some(file) = &self.write_snapshot {
            let learned = match self.context_windows {
                true => windows,
                false => Windows::default(),
            };
            return write_snapshot(file, &listing, &learned);
        }
        let refused = (self.refresh && listing.source != Source::Live)
            .then(|| ModelsError::NotRefreshed(listing.warnings.join("; ")));
        // What the error says is not said twice.
        let said = refused.as_ref().map_or(0, |_| listing.warnings.len());
        listing
            .warnings
            .extend(problem.map(|problem| problem.to_string()));
        // A terminal knows every level.
        let rows = Rows::build(&listing.items, Profile::UpToMax, &windows);
        let mut out = std::io::stdout();
        if self.json {
            let result = serde_json::to_value(ModelsListResult::of(listing, &rows));
            let result = result.map_err(std::io::Error::other)?;
            writeln!(out, "{:#}", for_stdout(result))?;
            return refused.map_or(Ok(()), Err);
        }
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let paint = match out.is_terminal() && !plain {
            true => Paint::Colours,
            false => Paint::None,
        };
        out.write_all(table(&rows, paint).as_bytes())?;
        for warning in listing.warnings.iter().skip(said) {
            tracing::warn!("{warning}");
        }
        tracing::info!("{}", summary(&listing, &rows));
        refused.map_or(Ok(()), Err)
    }

    async fn listing(
        &self,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
        state: Option<&Path>,
    ) -> Result<Listing, ModelsError> {
        let (policy, more) = Policy::from_env(env, state);
        let finder = Finder::new(policy);
        let (backend, warnings) = match Backend::from_env(env, home) {
            // Without a key there is still something to show.
            Err(AssembleError::Key(missing @ KeyError::Missing)) => {
                return Ok(finder.without_key(env, home, &missing.to_string()));
            }
            backend => backend?,
        };
        for warning in warnings.iter().chain(&more) {
            tracing::warn!("{warning}");
        }
        let (key, _) = find_key(None, env, home).map_err(AssembleError::from)?;
        let wanted = match self.refresh || self.write_snapshot.is_some() {
            true => Wanted::Live,
            // We end with the answer: an old list would never be renewed behind it.
            false => Wanted::Renewed(BUDGET),
        };
        Ok(finder.list(&access(&backend, key), wanted).await)
    }
}

/// Ids and counts are all that is printed: the file is for a review.
fn write_snapshot(file: &Path, listing: &Listing, windows: &Windows) -> Result<(), ModelsError> {
    if listing.source != Source::Live {
        return Err(ModelsError::NotLive(listing.warnings.join("; ")));
    }
    std::fs::write(file, render_snapshot(&listing.items, windows))?;
    let mut out = std::io::stdout();
    for item in listing.items.iter() {
        writeln!(out, "{}", clean(&item.id))?;
    }
    let (models, learned) = (listing.items.len(), windows.learned().len());
    writeln!(out, "{models} models, {learned} learned context windows")?;
    Ok(())
}

fn summary(listing: &Listing, rows: &[Row]) -> String {
    let models: BTreeSet<&str> = rows.iter().map(Row::base).collect();
    let source = match listing.source {
        Source::Live => "from Cursor",
        Source::Cache => "from the cache (--refresh asks Cursor)",
        Source::Bundled => "bundled with cursor-sidecar",
    };
    format!("{} rows of {} models, {source}", rows.len(), models.len())
}

/// Whether escape codes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paint {
    None,
    Colours,
}

/// A server's text for one cell of the table: one line without control characters.
fn for_cell(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

const HEADINGS: [&str; 5] = ["MODEL", "CONTEXT", "THINKING", "FAST", "NAME"];

fn table(rows: &[Row], paint: Paint) -> String {
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            [
                for_cell(&row.id),
                tokens(row.window),
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
    let mut table = match paint {
        Paint::Colours => format!("\x1b[1m{}\x1b[0m\n", line(HEADINGS)),
        Paint::None => line(HEADINGS) + "\n",
    };
    for cells in &cells {
        table.push_str(&line(cells.each_ref().map(String::as_str)));
        table.push('\n');
    }
    table
}

/// The levels that mean something.
fn thinking(row: &Row) -> String {
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

/// Tokens as people write them.
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
    use crate::catalog::Item;

    #[test]
    fn columns_are_aligned_and_painted_only_when_wanted() {
        let items = serde_json::json!({"items": [
            {"id": "composer", "parameters": [{"id": "fast", "values": ["false", "true"]}],
             "variants": [{"params": [{"id": "fast", "value": "true"}]}]},
            {"id": "gpt", "displayName": "GPT", "parameters": [
                {"id": "context", "values": ["272k", "1m"]},
                {"id": "reasoning", "values": ["none", "low", "max"]}]},
        ]});
        let items = Item::read_list(&items).unwrap();
        let rows = Rows::build(&items, Profile::UpToMax, &Windows::default());
        insta::assert_snapshot!(table(&rows, Paint::None), @r"
        MODEL     CONTEXT  THINKING     FAST  NAME
        composer     200k  -            on    composer
        gpt@272k     272k  off low max  -     GPT @ 272k
        gpt@1m         1m  off low max  -     GPT @ 1m
        ");
        assert!(table(&rows, Paint::Colours).starts_with("\u{1b}[1mMODEL"));
    }

    #[test]
    fn names_have_one_line_without_control_characters() {
        let items = serde_json::json!({"items": [
            {"id": "gpt", "displayName": "G\u{1b}]52;c;c3J2\u{7}P\nT\u{202e}"}]});
        let items = Item::read_list(&items).unwrap();
        let rows = Rows::build(&items, Profile::UpToMax, &Windows::default());
        insta::assert_snapshot!(table(&rows, Paint::None), @r"
        MODEL  CONTEXT  THINKING  FAST  NAME
        gpt       200k  -         -     G␛]52;c;c3J2␇P T�
        ");
    }
}
