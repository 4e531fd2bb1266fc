//! Loads the scenarios of a simulator and finds them by name.

use std::path::{Path, PathBuf};

use super::source::{self, Member, Node, NodeContent};
use super::table_reader::{self, TableReader};
use super::{
    AttemptScope, Compression, InjectionPolicy, Scenario, ScenarioError, Script, ServerSettings,
    steps,
};

/// The source of a scenario.
#[derive(Debug, Clone)]
pub enum ScenarioSource {
    /// A file, or a folder of files.
    Path(PathBuf),
    /// TOML in memory.
    Toml {
        /// Text in place of a file name.
        label: String,
        /// The scenario.
        text: String,
    },
    /// JSON in memory.
    Json {
        /// Text in place of a file name.
        label: String,
        /// The scenario.
        text: String,
    },
}

/// Scenarios by name.
#[derive(Debug, Default)]
pub(crate) struct ScenarioLibrary {
    scenarios: Vec<Scenario>,
}

impl ScenarioLibrary {
    /// Reads all sources.
    pub(crate) fn load(sources: &[ScenarioSource]) -> Result<Self, ScenarioError> {
        let mut library = Self::default();
        for source in sources {
            match source {
                ScenarioSource::Path(path) if path.is_dir() => {
                    for file in files(path)? {
                        library.add(read_file(&file)?)?;
                    }
                }
                ScenarioSource::Path(path) => library.add(read_file(path)?)?,
                ScenarioSource::Toml { label, text } => {
                    library.add(scenario(label, &source::toml(label, text)?)?)?;
                }
                ScenarioSource::Json { label, text } => {
                    library.add(scenario(label, &source::json(label, text)?)?)?;
                }
            }
        }
        if library.scenarios.len() > 1 {
            for scenario in &library.scenarios {
                if scenario.server != ServerSettings::default() {
                    tracing::debug!(file = %scenario.file, "[server] applies only to a single scenario");
                }
            }
        }
        Ok(library)
    }

    /// Returns the scenario with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Scenario> {
        self.scenarios.iter().find(|known| known.name == name)
    }

    /// Returns the scenario if there is only one, which then plays every message.
    pub(crate) fn only(&self) -> Option<&Scenario> {
        match self.scenarios.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.scenarios.iter().map(|scenario| scenario.name.as_str())
    }

    /// Returns whether a script determines the response headers, which must then wait for the
    /// run request.
    pub(crate) fn decides_headers(&self) -> bool {
        self.scenarios
            .iter()
            .flat_map(|scenario| &scenario.runs)
            .any(|script| {
                script.compression != Compression::Identity
                    || matches!(
                        script.steps.first().map(|step| &step.action),
                        Some(super::StepAction::Status(_))
                    )
            })
    }

    fn add(&mut self, scenario: Scenario) -> Result<(), ScenarioError> {
        if let Some(other) = self.named(&scenario.name) {
            let message = format!("scenario {:?} is already in {}", scenario.name, other.file);
            return Err(ScenarioError::at(&scenario.file, 1, message));
        }
        self.scenarios.push(scenario);
        Ok(())
    }
}

fn unreadable(path: &Path, reason: impl std::fmt::Display) -> ScenarioError {
    ScenarioError::Unreadable {
        file: path.display().to_string(),
        reason: reason.to_string(),
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, ScenarioError> {
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(folder, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        if matches!(extension(&path), Some("toml" | "json")) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

fn read_file(path: &Path) -> Result<Scenario, ScenarioError> {
    let label = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let tree = match extension(path) {
        Some("toml") => source::toml(&label, &text)?,
        Some("json") => source::json(&label, &text)?,
        _ => return Err(unreadable(path, "the name must end in .toml or .json")),
    };
    scenario(&label, &tree)
}

fn scenario(file: &str, tree: &Node) -> Result<Scenario, ScenarioError> {
    let mut table = TableReader::new(file, tree, "a scenario")?;
    let name = table_reader::text(file, table.require("name")?, "name")?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(ScenarioError::at(file, tree.line, "a name is one word"));
    }
    let server = match table.get("server") {
        Some(node) => ServerSettings::read(file, node)?,
        None => ServerSettings::default(),
    };
    let attempt_scope = match table.text("attempts")?.as_deref() {
        None | Some("conversation") => AttemptScope::Conversation,
        Some("all") => AttemptScope::All,
        Some(other) => {
            let message = format!("attempts is \"conversation\" or \"all\", not {other:?}");
            return Err(ScenarioError::at(file, tree.line, message));
        }
    };
    let runs = table_reader::array(file, table.require("run")?, "run")?
        .iter()
        .map(|run| script(file, run))
        .collect::<Result<Vec<_>, _>>()?;
    table.get("about");
    table.finish()?;
    if runs.is_empty() {
        return Err(ScenarioError::at(
            file,
            tree.line,
            "a scenario needs a [[run]]",
        ));
    }
    steps::check_blob_names(file, tree, &runs)?;
    Ok(Scenario {
        name,
        file: file.to_owned(),
        server,
        attempt_scope,
        runs,
    })
}

fn script(file: &str, node: &Node) -> Result<Script, ScenarioError> {
    let mut table = TableReader::new(file, node, "run")?;
    let compression = if table.flag("gzip")? {
        Compression::Gzip
    } else {
        Compression::Identity
    };
    let resumable = table.flag(table.used_name("resumable", "story"))?;
    let injections = match table.text("injections")?.as_deref() {
        None => InjectionPolicy::Unclaimed,
        Some("delivered") => InjectionPolicy::Delivered,
        Some("deferred" | "put off") => InjectionPolicy::Deferred,
        Some("rejected") => InjectionPolicy::Rejected,
        Some(other) => {
            let message = format!(
                "injections are \"delivered\", \"deferred\" or \"rejected\", not {other:?}"
            );
            return Err(ScenarioError::at(file, node.line, message));
        }
    };
    let nodes = table_reader::array(file, table.require("steps")?, "steps")?;
    let steps = steps::read(file, nodes, resumable)?;
    table.finish()?;
    Ok(Script {
        compression,
        resumable,
        injections,
        steps,
    })
}

/// Returns the members of a table; none if the node is not a table.
pub(super) fn members(node: &Node) -> &[Member] {
    match &node.content {
        NodeContent::Table(members) => members,
        _ => &[],
    }
}
