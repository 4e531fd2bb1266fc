//! Rules: files with instructions for the model.

use std::path::{Path, PathBuf};

use super::front_matter::{self, FrontMatter};
use cursor_proto::agent::v1::*;

/// The most characters of a description that are sent.
const MOST_DESCRIPTION: usize = 1536;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleFile {
    /// Its file.
    pub path: PathBuf,
    /// Its text.
    pub content: String,
    /// When it applies.
    pub when: RuleActivation,
    /// Its front matter with the `---` lines; empty if it has none.
    pub head: String,
    /// The Cursor environments it is limited to.
    pub environments: Vec<String>,
    /// The Cursor environments it is disabled in.
    pub disabled_environments: Vec<String>,
    /// The `scopedTo` list of its metadata.
    pub scoped_to: Vec<String>,
    /// A parse error to report to Cursor.
    pub problem: Option<&'static str>,
}

/// When a rule applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleActivation {
    /// Always.
    Always,
    /// When files that match these globs are in use.
    Files(Vec<String>),
    /// When the model requests it, based on this description.
    Asked(String),
    /// When the user attaches it.
    Attached,
}

/// Names of files that are rules as a whole, without front matter.
pub(super) const WHOLE: [&str; 3] = ["AGENTS.md", "CLAUDE.md", "CLAUDE.local.md"];

impl RuleFile {
    /// Creates a rule that always applies from a whole file.
    pub(super) fn whole(path: &Path, text: String) -> Self {
        Self {
            path: path.to_owned(),
            content: text,
            when: RuleActivation::Always,
            head: String::new(),
            environments: Vec::new(),
            disabled_environments: Vec::new(),
            scoped_to: Vec::new(),
            problem: None,
        }
    }

    /// Reads a file of `.cursor/rules`; returns `None` if it has no front matter.
    pub(super) fn headed(path: &Path, text: &str) -> Option<Self> {
        let document = front_matter::parse(text)?;
        let globs = document.list("globs");
        let when = if document.is_bare_true("alwaysApply") {
            RuleActivation::Always
        } else if !globs.is_empty() {
            RuleActivation::Files(globs)
        } else if let Some(text) = description(&document) {
            RuleActivation::Asked(text)
        } else {
            RuleActivation::Attached
        };
        Some(Self {
            content: document.body.trim().to_owned(),
            ..Self::of(path, &document, when)
        })
    }

    /// Creates a rule without content from the front matter of a rule or skill.
    pub(super) fn of(path: &Path, document: &FrontMatter<'_>, when: RuleActivation) -> Self {
        Self {
            path: path.to_owned(),
            content: String::new(),
            when,
            head: match document.head {
                "" => String::new(),
                head => format!("---\n{head}\n---"),
            },
            environments: document.list("metadata.environments"),
            disabled_environments: document.list("metadata.disabledEnvironments"),
            scoped_to: document.list("metadata.scopedTo"),
            problem: None,
        }
    }

    /// Returns the rule as a Cursor message.
    pub(crate) fn proto(&self) -> CursorRule {
        use cursor_rule_type::Type;
        let kind = match &self.when {
            RuleActivation::Always => Type::Global(CursorRuleTypeGlobal {}),
            RuleActivation::Files(globs) => Type::FileGlobbed(CursorRuleTypeFileGlobs {
                globs: globs.clone(),
            }),
            RuleActivation::Asked(description) => Type::AgentFetched(CursorRuleTypeAgentFetched {
                description: description.clone(),
            }),
            RuleActivation::Attached => Type::ManuallyAttached(CursorRuleTypeManuallyAttached {}),
        };
        CursorRule {
            full_path: self.path.to_string_lossy().into_owned(),
            content: self.content.clone(),
            r#type: Some(CursorRuleType { r#type: Some(kind) }),
            environments: self.environments.clone(),
            disabled_environments: self.disabled_environments.clone(),
            scoped_to: self.scoped_to.clone(),
            frontmatter: self.head.clone(),
            parse_error: self.problem.map(str::to_owned),
            ..CursorRule::default()
        }
    }

    /// Whether a text already contains an always-applied rule, because hosts include such files in
    /// their system prompt.
    pub(crate) fn is_included_in(&self, text: &str) -> bool {
        let content = self.content.trim();
        self.when == RuleActivation::Always && !content.is_empty() && text.contains(content)
    }
}

/// Returns the description, cut to [`MOST_DESCRIPTION`] characters.
pub(super) fn description(document: &FrontMatter<'_>) -> Option<String> {
    let text = document.text("description")?;
    Some(text.chars().take(MOST_DESCRIPTION).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_decides_when_a_rule_applies() {
        let rule = |head: &str| {
            let text = format!("---\n{head}\n---\n\nText\n");
            RuleFile::headed(Path::new("/r.mdc"), &text).unwrap().when
        };
        assert_eq!(
            rule("globs: *.rs\nalwaysApply: true"),
            RuleActivation::Always
        );
        assert_eq!(
            rule("description: d\nglobs: *.rs"),
            RuleActivation::Files(vec!["*.rs".into()])
        );
        assert_eq!(
            rule("description: d\nglobs:"),
            RuleActivation::Asked("d".into())
        );
        assert_eq!(rule("alwaysApply: false"), RuleActivation::Attached);
        assert_eq!(RuleFile::headed(Path::new("/r.mdc"), "no head"), None);
    }

    #[test]
    fn a_rule_in_the_host_prompt_is_recognized() {
        let rule = RuleFile::whole(Path::new("/AGENTS.md"), "\n# Use tabs\n".into());
        assert!(rule.is_included_in("Be brief.\n\n## /AGENTS.md\n\n# Use tabs\n\nMore"));
        assert!(!rule.is_included_in("Be brief."));
        assert!(
            !RuleFile::whole(Path::new("/AGENTS.md"), " \n".into()).is_included_in("Be brief.")
        );
    }
}
