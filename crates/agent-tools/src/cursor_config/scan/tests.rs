use super::*;
use crate::cursor_config::hooks::config::HookAction;
use crate::cursor_config::mcp::config::McpTransport;
use crate::cursor_config::sources::ProjectTrust;
use std::fs;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn look(place: &ScanRoot) -> ScanResult {
    scan(place, &ScanDepth::Far(LargeWorkspace::default(), &|| ()))
}

fn found(place: &ScanRoot) -> (Vec<String>, Vec<String>) {
    let root = place.workspace.parent().unwrap().to_owned();
    let name = |path: &Path| path.strip_prefix(&root).unwrap().display().to_string();
    let scanned = look(place);
    assert!(scanned.stamps.are_current());
    (
        scanned.rules.iter().map(|rule| name(&rule.path)).collect(),
        scanned
            .skills
            .iter()
            .map(|skill| name(&skill.path))
            .collect(),
    )
}

#[test]
fn everything_in_its_place_is_found_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let rule = "---\nalwaysApply: true\n---\nx";
    for (path, text) in [
        ("AGENTS.md", "above the repository"),
        ("work/.git/HEAD", ""),
        ("work/.gitignore", "/.cursor\n/made\n"),
        ("work/.cursorignore", "kept\n"),
        ("work/.cursorrules", "old"),
        ("work/AGENTS.md", "here"),
        ("work/CLAUDE.md", "here too"),
        ("work/.cursor/rules/a/one.mdc", rule),
        ("work/.cursor/rules/notes.txt", ""),
        ("work/.cursor/rules/plain.mdc", "no head"),
        (
            "work/.cursor/skills/fly/SKILL.md",
            "---\ndescription: d\n---\n",
        ),
        ("work/.claude/CLAUDE.md", "here as well"),
        ("work/.claude/skills/fly/SKILL.md", "the same"),
        (
            "work/.agents/skills/swim/SKILL.md",
            "---\ndescription: d\n---\n",
        ),
        ("work/deep/down/AGENTS.md", "nested"),
        ("work/deep/.cursor/rules/two.mdc", rule),
        ("work/deep/.cursor/AGENTS.md", "not a rule"),
        ("work/made/AGENTS.md", "ignored by git"),
        ("work/kept/AGENTS.md", "kept from the model"),
        ("work/node_modules/x/AGENTS.md", "foreign"),
        ("home/.cursor/rules/mine.mdc", rule),
        (
            "home/.cursor/skills-cursor/own/SKILL.md",
            "---\ndescription: d\n---\n",
        ),
    ] {
        write(&root, path, text);
    }
    let mut place = ScanRoot {
        workspace: root.join("work"),
        home: Some(root.join("home")),
        choice: SourceFilter::default(),
        ..ScanRoot::default()
    };
    let (rules, skills) = found(&place);
    assert_eq!(
        rules,
        [
            "work/.cursorrules",
            "work/.cursor/rules/a/one.mdc",
            "work/AGENTS.md",
            "work/CLAUDE.md",
            "work/.claude/CLAUDE.md",
            "work/deep/.cursor/rules/two.mdc",
            "work/deep/down/AGENTS.md",
            "home/.cursor/rules/mine.mdc",
        ]
    );
    assert_eq!(
        skills,
        [
            "work/.cursor/skills/fly/SKILL.md",
            "work/.agents/skills/swim/SKILL.md",
            "home/.cursor/skills-cursor/own/SKILL.md",
        ]
    );
    place.choice = SourceFilter::nothing();
    assert_eq!(found(&place), (Vec::new(), Vec::new()));
}

#[test]
fn a_nested_file_that_appears_shows() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    write(&root, "a/b/c.txt", "");
    let place = ScanRoot {
        workspace: root.clone(),
        home: None,
        choice: SourceFilter::default(),
        ..ScanRoot::default()
    };
    let before = look(&place);
    assert!(before.stamps.are_current());
    write(&root, "a/b/AGENTS.md", "new");
    assert!(!before.stamps.are_current());
    assert_eq!(look(&place).rules[0].content, "new");
}

#[test]
fn rules_above_count_up_to_the_repository_outermost_first() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let rule = "---\nalwaysApply: true\n---\nx";
    for above in ["", "repo/", "repo/a/", "repo/a/b/"] {
        write(&root, &format!("{above}AGENTS.md"), "x");
        write(&root, &format!("{above}.cursor/rules/r.mdc"), rule);
    }
    let place = ScanRoot {
        workspace: root.join("repo/a/b"),
        home: None,
        choice: SourceFilter::default(),
        ..ScanRoot::default()
    };
    let found = || {
        let rules = look(&place).rules.into_iter();
        let name = |rule: RuleFile| rule.path.strip_prefix(&root).unwrap().display().to_string();
        rules.map(name).collect::<Vec<_>>()
    };
    let own = ["repo/a/b/.cursor/rules/r.mdc", "repo/a/b/AGENTS.md"];
    assert_eq!(found(), own, "without git nothing above counts");
    write(&root, "repo/.git/HEAD", "");
    let above = ["repo/.cursor/rules/r.mdc", "repo/AGENTS.md"];
    let between = ["repo/a/.cursor/rules/r.mdc", "repo/a/AGENTS.md"];
    assert_eq!(found(), [above, between, own].concat());
    // Any user can put a repository into a world-writable folder.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(root.join("repo"), open).unwrap();
    assert_eq!(found(), [between, own].concat());
}

#[test]
fn a_projects_commands_count_once_it_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let server =
        |program: &str| format!(r#"{{"mcpServers": {{"s": {{"command": "{program}"}}}}}}"#);
    write(&root, "work/.cursor/mcp.json", &server("theirs"));
    write(&root, "home/.cursor/mcp.json", &server("mine"));
    let hooks = r#"{"version": 1, "hooks": {"preToolUse": [{"command": "x"}]}}"#;
    write(&root, "work/.cursor/hooks.json", hooks);
    let looked = |trust: ProjectTrust| {
        let scanned = look(&ScanRoot {
            workspace: root.join("work"),
            home: Some(root.join("home")),
            choice: SourceFilter {
                trust,
                ..SourceFilter::default()
            },
            ..ScanRoot::default()
        });
        let own = |hook: &&Hook| matches!(hook.action, HookAction::Command { .. });
        let run = scanned.hooks.iter().filter(own).count();
        let McpTransport::Command { program, .. } = &scanned.servers[0].transport else {
            panic!("{scanned:?}");
        };
        (program.clone(), run, scanned.notices.len())
    };
    assert_eq!(looked(ProjectTrust::NoProject), ("mine".into(), 0, 2));
    let here = ProjectTrust::Folders(vec![root.join("work")]);
    assert_eq!(looked(here), ("theirs".into(), 1, 0));
}

#[test]
fn a_large_workspace_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a/x", "b/x", "c/x"] {
        write(folder.path(), name, "");
    }
    let place = ScanRoot {
        workspace: folder.path().canonicalize().unwrap(),
        home: None,
        choice: SourceFilter::default(),
        ..ScanRoot::default()
    };
    let notice_count = |large: LargeWorkspace| {
        let times = std::cell::Cell::new(0);
        scan(
            &place,
            &ScanDepth::Far(large, &|| times.set(times.get() + 1)),
        );
        times.get()
    };
    let time = Duration::ZERO;
    assert_eq!(notice_count(LargeWorkspace { entries: 2, time }), 1);
    assert_eq!(notice_count(LargeWorkspace { entries: 99, time }), 0);
    let time = Duration::from_secs(99);
    assert_eq!(notice_count(LargeWorkspace { entries: 2, time }), 0);
}

/// Reading a pipe or `/dev/zero` would never end.
#[test]
fn a_file_of_variables_is_read_within_bounds_and_only_where_it_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let servers = r#"{"mcpServers": {
        "a": {"command": "a", "envFile": "vars"}, "b": {"command": "b", "envFile": "long"},
        "c": {"command": "c", "envFile": "/dev/zero"}, "d": {"command": "d", "envFile": "none"}}}"#;
    write(&root, ".cursor/mcp.json", servers);
    write(&root, "vars", "A=1\n");
    write(&root, "long", &"A=1\n".repeat(200_000));
    let look = |trust: ProjectTrust| {
        look(&ScanRoot {
            workspace: root.clone(),
            home: None,
            choice: SourceFilter {
                trust,
                ..SourceFilter::default()
            },
            ..ScanRoot::default()
        })
    };
    let refused = look(ProjectTrust::NoProject);
    assert!(refused.servers.is_empty());
    let [notice] = &refused.notices[..] else {
        panic!("{:?}", refused.notices);
    };
    assert!(notice.contains("(a, b, c, d)"), "{notice}");
    let trusted = look(ProjectTrust::EveryProject);
    let names: Vec<&str> = trusted
        .servers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["a"]);
    for server in ["b", "c", "d"] {
        let expected = format!("server \"{server}\": its envFile");
        let says = |notice: &String| notice.contains(&expected);
        assert!(trusted.notices.iter().any(says), "{:?}", trusted.notices);
    }
    write(&root, "vars", "A=1\nB=2\n");
    assert!(refused.stamps.are_current() && !trusted.stamps.are_current());
    let McpTransport::Command { env, .. } = &look(ProjectTrust::EveryProject).servers[0].transport
    else {
        panic!("not a command");
    };
    assert_eq!(env.len(), 2);
}

#[test]
fn a_plugin_of_the_user_brings_rules_skills_servers_and_hooks() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let rule = "---\nalwaysApply: true\n---\nx";
    let skill = "---\ndescription: d\n---\n";
    let plugins = "home/.cursor/plugins/local";
    for (path, text) in [
        ("work/x", ""),
        ("elsewhere/rules/linked.mdc", rule),
        (&format!("{plugins}/one/rules/deep/a.mdc"), rule),
        (&format!("{plugins}/one/skills/fly/SKILL.md"), skill),
        (
            &format!("{plugins}/one/.mcp.json"),
            r#"{"mcpServers": {"s": {"command": "${CURSOR_PLUGIN_ROOT}/run", "args": ["${CLAUDE_PLUGIN_ROOT}"]}}}"#,
        ),
        (
            &format!("{plugins}/one/hooks/hooks.json"),
            r#"{"hooks": {"preToolUse": [{"command": "${CURSOR_PLUGIN_ROOT}/check"}]}}"#,
        ),
        (&format!("{plugins}/.hidden/rules/b.mdc"), rule),
    ] {
        write(&root, path, text);
    }
    std::os::unix::fs::symlink(root.join("elsewhere"), root.join(plugins).join("link")).unwrap();
    let mut place = ScanRoot {
        workspace: root.join("work"),
        home: Some(root.join("home")),
        ..ScanRoot::default()
    };
    let (rules, skills) = found(&place);
    assert_eq!(rules, [format!("{plugins}/one/rules/deep/a.mdc")]);
    assert_eq!(skills, [format!("{plugins}/one/skills/fly/SKILL.md")]);
    let scanned = look(&place);
    let plugin = root.join(plugins).join("one");
    let McpTransport::Command { program, args, .. } = &scanned.servers[0].transport else {
        panic!("{:?}", scanned.servers);
    };
    assert_eq!(*program, plugin.join("run").to_str().unwrap());
    assert_eq!(scanned.servers[0].name, "plugin-one-s");
    assert_eq!(*args, [plugin.to_str().unwrap()]);
    let HookAction::Command { command, .. } = &scanned.hooks[0].action else {
        panic!("{:?}", scanned.hooks);
    };
    assert_eq!(*command, plugin.join("check").to_str().unwrap());
    // A server that is added to the plugin later is noticed.
    write(
        &root,
        &format!("{plugins}/two/mcp.json"),
        r#"{"mcpServers": {"t": {"url": "http://127.0.0.1:1/"}}}"#,
    );
    assert!(!scanned.stamps.are_current());
    assert_eq!(look(&place).servers.len(), 2);

    place.choice.sources.remove(&ConfigSource::Plugins);
    assert_eq!(found(&place), (Vec::new(), Vec::new()));
}
