//! All scenarios of a simulator, found by name.

use std::path::{Path, PathBuf};

use super::fields::{self, Fields};
use super::source::{self, Content, Member, Node};
use super::{
    Compression, Counting, Injections, Scenario, ScenarioError, Script, ServerSettings, Telling,
    steps,
};

/// Where a scenario comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file, or a folder of them.
    Path(PathBuf),
    /// TOML in memory, with a name for messages.
    Toml {
        /// Shown in place of a file name.
        label: String,
        /// The scenario.
        text: String,
    },
    /// The same as JSON.
    Json {
        /// Shown in place of a file name.
        label: String,
        /// The scenario.
        text: String,
    },
}

/// Scenarios by name.
#[derive(Debug, Default)]
pub(in crate::sim) struct Library {
    scenarios: Vec<Scenario>,
}

impl Library {
    /// Reads all sources.
    pub(in crate::sim) fn load(sources: &[Source]) -> Result<Self, ScenarioError> {
        let mut library = Self::default();
        for source in sources {
            match source {
                Source::Path(path) if path.is_dir() => {
                    for file in files(path)? {
                        library.add(read_file(&file)?)?;
                    }
                }
                Source::Path(path) => library.add(read_file(path)?)?,
                Source::Toml { label, text } => {
                    library.add(scenario(label, &source::toml(label, text)?)?)?;
                }
                Source::Json { label, text } => {
                    library.add(scenario(label, &source::json(label, text)?)?)?;
                }
            }
        }
        if library.scenarios.len() > 1 {
            for scenario in &library.scenarios {
                if scenario.server != ServerSettings::default() {
                    tracing::debug!(file = %scenario.file, "[server] counts only in a lone scenario");
                }
            }
        }
        Ok(library)
    }

    /// The scenario of this name.
    pub(in crate::sim) fn named(&self, name: &str) -> Option<&Scenario> {
        self.scenarios.iter().find(|known| known.name == name)
    }

    /// The scenario that is alone and therefore plays every message.
    pub(in crate::sim) fn lone(&self) -> Option<&Scenario> {
        match self.scenarios.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// All names.
    pub(in crate::sim) fn names(&self) -> impl Iterator<Item = &str> {
        self.scenarios.iter().map(|scenario| scenario.name.as_str())
    }

    /// Whether some script decides about the response headers, which must then wait for
    /// the request.
    pub(in crate::sim) fn decides_headers(&self) -> bool {
        self.scenarios
            .iter()
            .flat_map(|scenario| &scenario.runs)
            .any(|script| {
                script.compression != Compression::Identity
                    || matches!(
                        script.steps.first().map(|step| &step.action),
                        Some(super::Action::Status(_))
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
    let mut table = Fields::new(file, tree, "a scenario")?;
    let name = fields::text(file, table.need("name")?, "name")?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err(ScenarioError::at(file, tree.line, "a name is one word"));
    }
    let server = match table.get("server") {
        Some(node) => ServerSettings::read(file, node)?,
        None => ServerSettings::default(),
    };
    let counting = match table.text("attempts")?.as_deref() {
        None | Some("conversation") => Counting::ByConversation,
        Some("all") => Counting::All,
        Some(other) => {
            let message = format!("attempts is \"conversation\" or \"all\", not {other:?}");
            return Err(ScenarioError::at(file, tree.line, message));
        }
    };
    let runs = fields::array(file, table.need("run")?, "run")?
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
        counting,
        runs,
    })
}

fn script(file: &str, node: &Node) -> Result<Script, ScenarioError> {
    let mut table = Fields::new(file, node, "run")?;
    let compression = if table.flag("gzip")? {
        Compression::Gzip
    } else {
        Compression::Identity
    };
    let telling = if table.flag("story")? {
        Telling::Onward
    } else {
        Telling::Afresh
    };
    let injections = match table.text("injections")?.as_deref() {
        None => Injections::Unclaimed,
        Some("delivered") => Injections::Delivered,
        Some("put off") => Injections::PutOff,
        Some("rejected") => Injections::Rejected,
        Some(other) => {
            let message =
                format!("injections are \"delivered\", \"put off\" or \"rejected\", not {other:?}");
            return Err(ScenarioError::at(file, node.line, message));
        }
    };
    let nodes = fields::array(file, table.need("steps")?, "steps")?;
    let steps = steps::read(file, nodes, telling)?;
    table.finish()?;
    Ok(Script {
        compression,
        telling,
        injections,
        steps,
    })
}

/// The members of a table, if it is one.
pub(super) fn members(node: &Node) -> &[Member] {
    match &node.content {
        Content::Table(members) => members,
        _ => &[],
    }
}
