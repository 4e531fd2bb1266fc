//! The settings of native tools and of the user's Cursor settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use agent_tools::cursor_config::sources::{ProjectTrust, SOURCES, SourceFilter};
use agent_tools::policy::{ExecutedBy, MODES, NativeTool, ToolPolicy};
use agent_tools::workspace::protected_paths::ProtectedPaths;
use agent_tools::workspace::secret_paths::SecretPaths;

use super::parse;
use super::values::SettingReader;

const MODE: &str = "PI_CURSOR_NATIVE_TOOLS";
const DENY: &str = "PI_CURSOR_NATIVE_TOOLS_DENY";
const OUTSIDE: &str = "PI_CURSOR_ALLOW_OUTSIDE_WRITES";
const PRIVATE: &str = "PI_CURSOR_ALLOW_PRIVATE_FETCH";
const PROTECTED: &str = "PI_CURSOR_PROTECTED_PATHS";
const SETTING_SOURCES: &str = "PI_CURSOR_SETTING_SOURCES";
const TRUST: &str = "PI_CURSOR_TRUST_PROJECT";

/// Reads the policy of native tools. A part that is not understood becomes a warning, and
/// everything it may have been meant to forbid is forbidden, because a typo must not allow an
/// effect.
pub(super) fn policy(reader: &mut SettingReader<'_>, secret_paths: SecretPaths) -> ToolPolicy {
    let (mode, overrides) = modes(reader);
    let denied = denied(reader);
    let allow_outside_writes = reader.switch(OUTSIDE);
    let allow_private_fetch = reader.switch(PRIVATE);
    let (protected_paths, invalid) =
        ProtectedPaths::parse(reader.values.get(PROTECTED).unwrap_or_default());
    for part in invalid {
        reader.invalid_item(PROTECTED, &part);
    }
    ToolPolicy {
        mode,
        overrides,
        denied,
        allow_outside_writes,
        allow_private_fetch,
        protected_paths,
        secret_paths,
    }
}

/// Reads the mode of all tools and the modes of single tools.
fn modes(reader: &mut SettingReader<'_>) -> (Option<ExecutedBy>, BTreeMap<NativeTool, ExecutedBy>) {
    let (mut mode, mut overrides) = (None, BTreeMap::new());
    let mut is_unclear = false;
    for text in parse::items(&reader.text(MODE).unwrap_or_default()) {
        let (tool, given) = match text.split_once('=') {
            None => (None, parse::named(&MODES, text)),
            Some((tool, given)) => (
                Some(parse::named(&NativeTool::ALL, tool)),
                parse::named(&MODES, given),
            ),
        };
        let instead = match (tool, given) {
            (None, Some(given)) => {
                mode = Some(given);
                continue;
            }
            (Some(Some(tool)), Some(given)) => {
                overrides.insert(tool, given);
                continue;
            }
            // It could only have allowed something.
            (Some(None), Some(ExecutedBy::Local | ExecutedBy::Ask)) => "it changes nothing",
            (Some(Some(tool)), None) => {
                overrides.insert(tool, ExecutedBy::Off);
                "that tool is refused"
            }
            (None | Some(None), _) => {
                is_unclear = true;
                "every tool without a word of its own is refused"
            }
        };
        reader.restrict(MODE, text, instead);
    }
    if is_unclear {
        mode = Some(ExecutedBy::Off);
    }
    (mode, overrides)
}

/// Reads the tools that are always refused.
fn denied(reader: &mut SettingReader<'_>) -> BTreeSet<NativeTool> {
    let mut denied = BTreeSet::new();
    for name in parse::items(&reader.text(DENY).unwrap_or_default()) {
        match parse::named(&NativeTool::ALL, name) {
            Some(tool) => {
                denied.insert(tool);
            }
            None => {
                denied.extend(NativeTool::ALL.iter().map(|(_, tool)| *tool));
                reader.restrict(DENY, name, "all of Cursor's own tools are refused");
            }
        }
    }
    denied
}

/// Reads which Cursor settings are used.
pub(super) fn cursor_settings(reader: &mut SettingReader<'_>) -> SourceFilter {
    let mut choice = SourceFilter {
        connect_timeout: parse::connect_timeout(reader.values),
        tool_timeout: parse::tool_timeout(reader.values),
        ..SourceFilter::nothing()
    };
    let sources = parse::setting_sources(reader.values.get(SETTING_SOURCES));
    for name in sources.unwrap_or_default() {
        match parse::named(&SOURCES, &name) {
            Some(source) => drop(choice.sources.insert(source)),
            None if name.eq_ignore_ascii_case("all") => {
                choice.sources = SourceFilter::default().sources
            }
            None => reader.invalid_item(SETTING_SOURCES, &name),
        }
    }
    choice.trust = trust(reader);
    for name in parse::CONNECT_TIMEOUT {
        reader.number(name);
    }
    choice
}

/// Reads the projects whose commands may be run.
fn trust(reader: &mut SettingReader<'_>) -> ProjectTrust {
    let Some(text) = reader.text(TRUST) else {
        return ProjectTrust::NoProject;
    };
    match parse::switch(Some(&text)) {
        Some(true) => ProjectTrust::EveryProject,
        Some(false) => ProjectTrust::NoProject,
        None => {
            let (folders, others): (Vec<PathBuf>, Vec<PathBuf>) =
                std::env::split_paths(&text).partition(|folder| folder.is_absolute());
            for folder in others {
                reader.invalid_item(TRUST, &folder.to_string_lossy());
            }
            ProjectTrust::Folders(folders)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::{Environment, Values};
    use super::*;
    use agent_tools::cursor_config::sources::ConfigSource;
    use std::path::Path;

    fn with_reader<T>(
        pairs: &[(&str, &str)],
        read: impl FnOnce(&mut SettingReader<'_>) -> T,
    ) -> (T, Vec<String>) {
        let pairs = pairs
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let values = Values::from(&pairs.collect::<Environment>());
        let mut reader = SettingReader {
            values: &values,
            warnings: Vec::new(),
        };
        let value = read(&mut reader);
        let warnings = reader.warnings.iter().map(ToString::to_string).collect();
        (value, warnings)
    }

    fn read(pairs: &[(&str, &str)]) -> (ToolPolicy, Vec<String>) {
        with_reader(pairs, |reader| policy(reader, SecretPaths::default()))
    }

    fn chosen(pairs: &[(&str, &str)]) -> (SourceFilter, usize) {
        let (choice, warnings) = with_reader(pairs, cursor_settings);
        (choice, warnings.len())
    }

    #[test]
    fn the_default_leaves_the_mode_to_the_host_and_keeps_to_the_workspace() {
        assert_eq!(read(&[]), (ToolPolicy::default(), Vec::new()));
        assert_eq!(ToolPolicy::default().mode, None);
        assert!(!ToolPolicy::default().allow_outside_writes);
    }

    #[test]
    fn modes_denials_and_permissions_are_read() {
        let (policy, warnings) = read(&[
            (MODE, " Off "),
            (DENY, "shell, WRITE,,"),
            (OUTSIDE, "1"),
            (PRIVATE, "true"),
        ]);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(policy.mode, Some(ExecutedBy::Off));
        assert_eq!(
            policy.denied,
            BTreeSet::from([NativeTool::Write, NativeTool::Shell])
        );
        assert!(policy.allow_outside_writes);
        assert!(policy.allow_private_fetch);
    }

    #[test]
    fn single_tools_have_modes_of_their_own() {
        let (policy, warnings) = read(&[(MODE, "host, Shell = Local,read=off,write=ask,")]);
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(policy.mode, Some(ExecutedBy::Host));
        let modes = [
            (NativeTool::Read, ExecutedBy::Off),
            (NativeTool::Write, ExecutedBy::Ask),
            (NativeTool::Shell, ExecutedBy::Local),
        ];
        assert_eq!(policy.overrides, BTreeMap::from(modes));
        // The others are left to the host.
        let (policy, warnings) = read(&[(MODE, "shell=off")]);
        assert_eq!((policy.mode, warnings.len()), (None, 0));
    }

    #[test]
    fn front_ends_without_local_execution_keep_the_denials() {
        let (policy, _) = read(&[(MODE, "local,shell=ask,read=off"), (DENY, "write")]);
        let policy = policy.without_local();
        assert_eq!(policy.mode, None);
        assert_eq!(
            policy.overrides,
            BTreeMap::from([(NativeTool::Read, ExecutedBy::Off)])
        );
        assert_eq!(policy.denied, BTreeSet::from([NativeTool::Write]));
    }

    #[test]
    fn a_part_that_is_not_understood_warns_and_forbids_what_it_may_have_forbidden() {
        const UNNAMED: &str = "every tool without a word of its own is refused";
        const ALL: &str = "all of Cursor's own tools are refused";
        let by_host = "read=host ls=host grep=host write=host delete=host shell=host fetch=host git_diff=host diagnostics=host";
        let but_shell = by_host.replace("shell=host ", "");
        for (mode, deny, executed, meanwhile) in [
            ("of", "", "", UNNAMED),
            ("remote,local,read=local", "", "read", UNNAMED),
            ("local,shel=off", "", "", UNNAMED),
            ("local,bash=host", "", "", UNNAMED),
            ("host,shell=of", "", &but_shell, "that tool is refused"),
            ("host,shel=local", "", by_host, "it changes nothing"),
            ("read=local", "delete,shel", "", ALL),
        ] {
            let (policy, warnings) = read(&[(MODE, mode), (DENY, deny)]);
            let chosen = |tool: &NativeTool| {
                let own = policy.overrides.get(tool).copied().or(policy.mode);
                own.filter(|_| !policy.denied.contains(tool))
            };
            let by = |(name, tool): &(&str, NativeTool)| match chosen(tool)? {
                ExecutedBy::Local => Some((*name).to_owned()),
                ExecutedBy::Host => Some(format!("{name}=host")),
                ExecutedBy::Ask | ExecutedBy::Off => None,
            };
            let by: Vec<String> = NativeTool::ALL.iter().filter_map(by).collect();
            assert_eq!(by.join(" "), executed, "{mode} {deny}");
            let [message] = warnings.as_slice() else {
                panic!("{mode} {deny}: {warnings:?}");
            };
            assert!(
                message.ends_with(&format!("until it is, {meanwhile}")),
                "{message}"
            );
        }
        let (policy, warnings) = read(&[(OUTSIDE, "maybe")]);
        assert_eq!((policy, warnings.len()), (ToolPolicy::default(), 1));
    }

    #[test]
    fn by_default_everything_is_loaded_and_no_project_trusted() {
        assert_eq!(chosen(&[]), (SourceFilter::default(), 0));
        assert_eq!(
            chosen(&[(SETTING_SOURCES, "none")]).0,
            SourceFilter::nothing()
        );
        assert_eq!(
            chosen(&[(SETTING_SOURCES, "all,project")]),
            (SourceFilter::default(), 0)
        );
        assert!(!SourceFilter::default().trust.covers(Path::new("/")));
    }

    #[test]
    fn unknown_sources_cause_warnings() {
        let (choice, warnings) = chosen(&[(SETTING_SOURCES, "Project, mdm,no,plug-ins")]);
        assert_eq!(warnings, 2);
        assert!(choice.has(ConfigSource::Project) && choice.has(ConfigSource::Mdm));
        assert!(!choice.has(ConfigSource::User));
    }

    #[test]
    fn trust_is_a_switch_or_folders() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let listed = folder.path().to_str().unwrap();
        let (choice, warnings) = chosen(&[(TRUST, listed)]);
        assert_eq!(warnings, 0);
        assert!(choice.trust.covers(&inside));
        assert!(!choice.trust.covers(&std::env::temp_dir()));
        assert_eq!(chosen(&[(TRUST, "on")]).0.trust, ProjectTrust::EveryProject);
        assert_eq!(chosen(&[(TRUST, "0")]).0.trust, ProjectTrust::NoProject);
        assert_eq!(chosen(&[(TRUST, "perhaps")]).1, 1);
    }
}
