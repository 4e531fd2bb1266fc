//! Skills: folders with instructions that the model uses when it needs them.

use std::path::{Path, PathBuf};

use super::front_matter;
use super::rules::{self, RuleActivation, RuleFile};
use cursor_proto::agent::v1::AgentSkill;

/// The file that makes a folder a skill.
pub(super) const FILE: &str = "SKILL.md";

/// Folders that hold skills, in order; of two skills with the same name the first wins.
pub(super) const FOLDERS: [(&str, &str); 5] = [
    (".cursor", "skills"),
    (".claude", "skills"),
    (".codex", "skills"),
    (".grok", "skills"),
    (".agents", "skills"),
];

/// The parse error sent for a skill without a description: the official client's value, which
/// the server may recognize.
const UNDESCRIBED: &str = "Description is required";

/// One skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its file.
    pub path: PathBuf,
    /// The content of the whole file.
    pub content: String,
    /// Its description; a missing one is reported to the server as a parse error.
    pub description: Option<String>,
    /// Globs of the files it is for.
    pub globs: Vec<String>,
    /// When it applies, and who may invoke it.
    pub activation: SkillActivation,
    /// The skill as a rule, because the model finds skills among the rules.
    pub(super) rule: RuleFile,
}

/// When a skill applies, and who may invoke it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillActivation {
    /// When the user or the model invokes it.
    UserOrModel,
    /// When the user invokes it.
    UserOnly,
    /// Always, so it is sent only as a rule.
    AlwaysOn,
}

impl Skill {
    /// Reads a skill's file.
    pub(super) fn read(path: &Path, text: String) -> Self {
        let document = front_matter::parse(&text).unwrap_or_default();
        let description = rules::description(&document);
        let activation = if document.is_true("alwaysApply") {
            SkillActivation::AlwaysOn
        } else if document.is_true("disable-model-invocation") {
            SkillActivation::UserOnly
        } else {
            SkillActivation::UserOrModel
        };
        let when = match activation {
            SkillActivation::AlwaysOn => RuleActivation::Always,
            _ => RuleActivation::Asked(description.clone().unwrap_or_default()),
        };
        let mut globs = document.list("paths");
        if globs.is_empty() {
            globs = document.list("globs");
        }
        let mut rule = RuleFile::of(path, &document, when);
        if description.is_some() || activation == SkillActivation::AlwaysOn {
            rule.content = text.clone();
        } else {
            rule.problem = Some(UNDESCRIBED);
        }
        let own = |key: &str| document.list(key);
        if rule.environments.is_empty() {
            rule.environments = own("environments");
        }
        if rule.disabled_environments.is_empty() {
            rule.disabled_environments = own("disabled-environments");
        }
        Self {
            path: path.to_owned(),
            description,
            globs,
            activation,
            rule,
            content: text,
        }
    }

    /// Makes it a skill of a plugin.
    pub(super) fn in_plugin(mut self, plugin: &str) -> Self {
        let content = std::mem::take(&mut self.rule.content);
        self.rule = self.rule.in_plugin(plugin, content);
        self
    }

    /// Returns the skill as a Cursor message; `None` for one that is only a rule.
    pub(crate) fn proto(&self) -> Option<AgentSkill> {
        if self.activation == SkillActivation::AlwaysOn {
            return None;
        }
        Some(AgentSkill {
            full_path: self.path.to_string_lossy().into_owned(),
            content: self.content.clone(),
            description: self.description.clone().unwrap_or_default(),
            parse_error: self.description.is_none().then(|| UNDESCRIBED.into()),
            environments: self.rule.environments.clone(),
            disabled_environments: self.rule.disabled_environments.clone(),
            disable_model_invocation: self.activation == SkillActivation::UserOnly,
            globs: self.globs.clone(),
            scoped_to: self.rule.scoped_to.clone(),
            git_remote_origin: self.rule.plugin.as_deref().map(rules::plugin_origin),
            plugin: self.rule.plugin.clone(),
            ..AgentSkill::default()
        })
    }

    pub(crate) fn as_rule(&self) -> &RuleFile {
        &self.rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Skill {
        Skill::read(Path::new("/s/SKILL.md"), text.into())
    }

    #[test]
    fn a_skill_is_listed_in_both_forms() {
        let skill = read("---\nname: fly\ndescription: How to fly\npaths: '*.wing'\n---\nJump.");
        let proto = skill.proto().unwrap();
        assert_eq!(proto.description, "How to fly");
        assert_eq!(proto.globs, ["*.wing"]);
        assert!(proto.content.ends_with("Jump.") && proto.content.starts_with("---"));
        assert_eq!(
            skill.as_rule().when,
            RuleActivation::Asked("How to fly".into())
        );
        assert_eq!(skill.as_rule().content, skill.content);
    }

    #[test]
    fn odd_skills() {
        let bare = read("Jump.").proto().unwrap();
        assert_eq!(bare.parse_error.unwrap(), "Description is required");
        let always = read("---\nalwaysApply: true\n---\nJump.");
        assert_eq!(
            (always.proto(), &always.as_rule().when),
            (None, &RuleActivation::Always)
        );
        let person = read("---\ndescription: d\ndisable-model-invocation: true\n---\n");
        assert!(person.proto().unwrap().disable_model_invocation);
    }
}
