//! The guard against all kinds of paths.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;
use rustix::fs::CWD;

use super::*;
use crate::workspace::opened_files::OpenedFiles;

struct TestWorkspace {
    home: tempfile::TempDir,
    guard: PathGuard,
}

fn scratch() -> TestWorkspace {
    let home = tempfile::tempdir().unwrap();
    let workspace = home.path().canonicalize().unwrap().join("ws");
    fs::create_dir_all(workspace.join("a/b")).unwrap();
    fs::create_dir(home.path().join("outside")).unwrap();
    fs::write(home.path().join("outside/o.txt"), "outside").unwrap();
    fs::write(workspace.join("a/f.txt"), "inside").unwrap();
    symlink("a", workspace.join("in")).unwrap();
    symlink("../outside", workspace.join("out")).unwrap();
    symlink("in", workspace.join("chain1")).unwrap();
    symlink("chain1", workspace.join("chain2")).unwrap();
    symlink("out", workspace.join("chain3")).unwrap();
    symlink("loop2", workspace.join("loop1")).unwrap();
    symlink("loop1", workspace.join("loop2")).unwrap();
    symlink("nowhere", workspace.join("dangling")).unwrap();
    symlink("/", workspace.join("root")).unwrap();
    let guard = PathGuard::new(&workspace, Some("/home/u".into()), false);
    TestWorkspace { home, guard }
}

#[test]
fn paths_resolve_as_in_the_official_client() {
    let TestWorkspace { guard, home: _home } = scratch();
    let workspace = guard.workspace().to_owned();
    for (path, expected) in [
        ("a.txt", workspace.join("a.txt")),
        ("./a/../b", workspace.join("b")),
        ("", workspace.clone()),
        ("~", PathBuf::from("/home/u")),
        ("~/x", PathBuf::from("/home/u/x")),
        ("~x", workspace.join("~x")),
        ("file:///etc/hosts", PathBuf::from("/etc/hosts")),
        ("/../../etc", PathBuf::from("/etc")),
    ] {
        assert_eq!(guard.absolute(path), expected, "{path}");
    }
}

#[test]
fn links_inside_are_followed_and_links_outside_refused() {
    let TestWorkspace { guard, home: _home } = scratch();
    let real = guard.real_workspace().to_owned();
    let write = |path: &str| {
        guard
            .write(&guard.absolute(path))
            .map(|cleared| cleared.real)
    };
    assert_eq!(write("chain2/f.txt").unwrap(), real.join("a/f.txt"));
    assert_eq!(
        write("in/new/deep.txt").unwrap(),
        real.join("a/new/deep.txt")
    );
    for path in [
        "out/o.txt",
        "chain3/new",
        "root/tmp/x",
        "../x",
        "/etc/passwd",
        "root/proc/self/mem",
    ] {
        assert!(matches!(write(path), Err(PathDenied::Outside(_))), "{path}");
    }
    assert!(matches!(write("dangling"), Err(PathDenied::Dangling(_))));
    for path in ["loop1", "loop1/x", "a/f.txt/x"] {
        assert!(
            matches!(write(path), Err(PathDenied::Unclear { .. })),
            "{path}"
        );
    }
}

#[test]
fn deleting_a_link_is_decided_by_the_directory_of_the_link() {
    let TestWorkspace { guard, home: _home } = scratch();
    let delete = |path: &str| guard.delete(&guard.absolute(path));
    assert_eq!(
        delete("out").unwrap().real,
        guard.real_workspace().join("out")
    );
    assert!(matches!(delete("out/o.txt"), Err(PathDenied::Outside(_))));
    assert!(matches!(delete("nothing"), Err(PathDenied::Missing)));
    assert!(matches!(delete("dangling"), Err(PathDenied::Dangling(_))));
}

#[test]
fn proc_directories_of_processes_are_not_read() {
    let TestWorkspace { guard, home: _home } = scratch();
    let own = format!("/proc/{}/environ", std::process::id());
    for path in ["/proc/self/environ", own.as_str(), "root/proc/self/status"] {
        let read = guard.read(&guard.absolute(path));
        if cfg!(target_os = "linux") {
            assert!(
                matches!(read, Err(PathDenied::Process(_) | PathDenied::Missing)),
                "{path}: {read:?}"
            );
        }
    }
}

#[test]
fn allowed_outside_writes_cover_the_disk_but_no_process() {
    let TestWorkspace { home, guard } = scratch();
    let free = PathGuard::new(guard.workspace(), None, true);
    assert!(free.write(&home.path().join("outside/new.txt")).is_ok());
    assert!(free.write(Path::new("/proc/self/mem")).is_err());
}

#[test]
fn pipes_and_devices_are_not_opened() {
    let TestWorkspace { guard, home: _home } = scratch();
    let pipe = guard.workspace().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in [
        pipe.as_path(),
        Path::new("/dev/null"),
        Path::new("/dev/zero"),
    ] {
        assert!(
            guard.read(path).unwrap().open().is_err(),
            "{}",
            path.display()
        );
    }
}

/// A directory is swapped for a link between the check and the write.
#[test]
fn a_link_swapped_in_after_the_check_is_not_followed() {
    let TestWorkspace { home, guard } = scratch();
    let path = guard.absolute("a/b/new.txt");
    let cleared = guard.write(&path).unwrap();
    fs::remove_dir(guard.workspace().join("a/b")).unwrap();
    symlink(home.path().join("outside"), guard.workspace().join("a/b")).unwrap();
    assert!(cleared.folder(MissingFolders::Create).is_err());

    let path = guard.absolute("a/g.txt");
    let cleared = guard.write(&path).unwrap();
    symlink(home.path().join("outside/o.txt"), &path).unwrap();
    assert!(crate::handlers::write::replace(&cleared, b"x").is_err());
    assert_eq!(
        fs::read_to_string(home.path().join("outside/o.txt")).unwrap(),
        "outside"
    );
}

/// The same race against a thread that swaps links all the time.
#[cfg(target_os = "linux")]
#[test]
fn nothing_is_written_outside_while_a_thread_keeps_swapping_links() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let TestWorkspace { home, guard } = scratch();
    let outside = home.path().join("outside");
    let before = snapshot(&outside);
    let folder = guard.workspace().join("a");
    symlink(&outside, folder.join("link")).unwrap();
    let path = guard.absolute("a/b/o.txt");
    let over = AtomicBool::new(false);
    let (mut written, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let (one, other) = (folder.join("b"), folder.join("link"));
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, one, CWD, other, exchange).unwrap();
            }
        });
        // Until both have happened, because the timing depends on the machine.
        let most = 1_000_000;
        while (written == 0 || refused == 0 || written + refused < 500) && written + refused < most
        {
            let done = guard
                .write(&path)
                .map(|cleared| crate::handlers::write::replace(&cleared, b"written"));
            match done {
                Ok(Ok(())) => written += 1,
                Ok(Err(_)) | Err(_) => refused += 1,
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(snapshot(&outside), before);
    assert!(written > 0 && refused > 0, "{written}, {refused}");
    let left = ["b", "link"].map(|name| folder.join(name).join("o.txt"));
    let text = left.map(|file| fs::read_to_string(file).unwrap());
    assert!(text.iter().any(|text| text == "written"), "{text:?}");
}

#[test]
fn settings_that_name_commands_are_not_changed() {
    let TestWorkspace { guard, home } = scratch();
    let workspace = guard.workspace().to_owned();
    fs::create_dir_all(workspace.join("conf")).unwrap();
    fs::create_dir_all(workspace.join("sub/.cursor/rules")).unwrap();
    symlink("conf", workspace.join(".cursor")).unwrap();
    symlink("conf/hooks.json", workspace.join("link")).unwrap();
    fs::write(workspace.join("conf/hooks.json"), "{}").unwrap();
    for path in [
        ".cursor/hooks.json",
        ".cursor/mcp.json",
        ".Cursor/MCP.json",
        "conf/hooks.json",
        "conf/mcp.json",
        "link",
        "sub/.cursor/hooks.json",
        "../outside/.cursor/mcp.json",
    ] {
        let refused = guard.write(&guard.absolute(path));
        assert!(
            matches!(refused, Err(PathDenied::Settings(_))),
            "{path}: {refused:?}"
        );
    }
    for path in [".cursor/hooks.json", "conf/hooks.json", "link"] {
        let refused = guard.delete(&guard.absolute(path));
        assert!(
            matches!(refused, Err(PathDenied::Settings(_))),
            "{path}: {refused:?}"
        );
    }
    for path in ["hooks.json", "sub/.cursor/rules/mcp.json", "mcp.json/x"] {
        assert!(guard.write(&guard.absolute(path)).is_ok(), "{path}");
    }
    // Other settings in that directory are protected as well, also through the link.
    let refused = guard.write(&guard.absolute("conf/other.json"));
    assert!(
        matches!(refused, Err(PathDenied::Protected { .. })),
        "{refused:?}"
    );
    // Nor are the user's own, if the workspace contains them.
    let dotfiles = PathGuard::new(&workspace, Some(home.path().into()), false);
    symlink(workspace.join("a"), home.path().join(".cursor")).unwrap();
    let refused = dotfiles.write(&dotfiles.absolute("a/mcp.json"));
    assert!(
        matches!(refused, Err(PathDenied::Settings(_))),
        "{refused:?}"
    );
    assert!(guard.write(&guard.absolute("a/mcp.json")).is_ok());
    // Whatever a plugin of the user contains may be run.
    let off = ToolPolicy {
        protected_paths: ProtectedPaths::parse("off").0,
        ..ToolPolicy::default()
    };
    let open = PathGuard::by_policy(&workspace, Some(home.path().into()), &off);
    for path in [
        "a/plugins/local/own/hooks/run.sh",
        "a/Plugins/x",
        "a/plugins",
    ] {
        let refused = open.write(&open.absolute(path));
        assert!(
            matches!(refused, Err(PathDenied::Settings(_))),
            "{path}: {refused:?}"
        );
    }
    assert!(guard.write(&guard.absolute("a/plugins/x")).is_ok());
}

#[test]
fn protected_paths_are_not_changed_through_links() {
    let TestWorkspace { guard, home: _home } = scratch();
    let workspace = guard.workspace().to_owned();
    fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
    fs::write(workspace.join(".git/config"), "[core]\n").unwrap();
    fs::write(workspace.join(".envrc"), "x").unwrap();
    symlink(".git", workspace.join("innocent")).unwrap();
    symlink(".git/config", workspace.join("notes.txt")).unwrap();
    symlink("a/f.txt", workspace.join("a/.envrc")).unwrap();
    for path in [
        ".git/config",
        ".GIT/config",
        "innocent/hooks/post-checkout",
        "notes.txt",
        "a/../.git/config",
        "in/.envrc",
        ".pi/extensions/new.ts",
        "sub/.husky/pre-commit",
    ] {
        let refused = guard.write(&guard.absolute(path));
        assert!(
            matches!(refused, Err(PathDenied::Protected { .. })),
            "{path}: {refused:?}"
        );
        let refused = guard.host_change(&guard.absolute(path));
        assert!(
            matches!(refused, Err(PathDenied::Protected { .. })),
            "{path}"
        );
    }
    for path in [
        ".git/config",
        "innocent/config",
        "notes.txt",
        ".envrc",
        "in/.envrc",
    ] {
        let refused = guard.delete(&guard.absolute(path));
        assert!(
            matches!(refused, Err(PathDenied::Protected { .. })),
            "{path}: {refused:?}"
        );
    }
    let reason = guard
        .write(&guard.absolute(".git/config"))
        .unwrap_err()
        .to_string();
    for part in ["rule .git", "PI_CURSOR_PROTECTED_PATHS"] {
        assert!(reason.contains(part), "{reason}");
    }
    // They may be read, and other files may be changed.
    assert!(guard.read(&guard.absolute(".git/config")).is_ok());
    assert!(guard.write(&guard.absolute(".gitignore")).is_ok());
    assert!(guard.host_change(&guard.absolute("../elsewhere")).is_ok());
    let off = ToolPolicy {
        protected_paths: ProtectedPaths::parse("off").0,
        ..ToolPolicy::default()
    };
    let open = PathGuard::by_policy(&workspace, None, &off);
    assert!(open.write(&open.absolute(".git/config")).is_ok());
    // Settings that name commands stay protected.
    assert!(open.write(&open.absolute(".cursor/mcp.json")).is_err());
}

#[test]
fn credentials_are_neither_read_nor_changed() {
    let TestWorkspace { guard, home } = scratch();
    let home = home.path().canonicalize().unwrap();
    let state = home.join(".local/state/cursor-sidecar");
    fs::create_dir_all(&state).unwrap();
    fs::create_dir_all(home.join(".pi/agent")).unwrap();
    for file in [state.join("login.json"), home.join(".pi/agent/auth.json")] {
        fs::write(file, "crsr_secret").unwrap();
    }
    symlink(&state, guard.workspace().join("innocent")).unwrap();
    fs::hard_link(
        home.join(".pi/agent/auth.json"),
        guard.workspace().join("second"),
    )
    .unwrap();
    let guard = PathGuard::new(guard.workspace(), Some(home.clone()), true);
    for path in [
        "~/.local/state/cursor-sidecar/login.json",
        "~/.local/state/cursor-sidecar",
        "innocent/login.json",
        "../.pi/agent/auth.json",
        "second",
    ] {
        let path = guard.absolute(path);
        let read = guard.read(&path);
        assert!(matches!(read, Err(PathDenied::Secret(_))), "{read:?}");
        assert!(guard.is_hidden(&path.canonicalize().unwrap()));
        assert!(matches!(guard.host_read(&path), Err(PathDenied::Secret(_))));
        for refused in [guard.write(&path), guard.delete(&path)] {
            assert!(matches!(refused, Err(PathDenied::Secret(_))), "{refused:?}");
        }
    }
    let new = guard.write(&guard.absolute("innocent/gateway-token"));
    assert!(matches!(new, Err(PathDenied::Secret(_))), "{new:?}");
    assert!(guard.read(&guard.absolute("a/f.txt")).is_ok());
}

/// The opened file decides, even if the path resolves to something else afterwards.
#[test]
fn what_may_be_shown_is_decided_by_the_opened_file() {
    let TestWorkspace { guard, home: _home } = scratch();
    let workspace = guard.workspace().to_owned();
    fs::write(workspace.join(".cursorignore"), "kept\n").unwrap();
    fs::write(workspace.join("kept"), "secret").unwrap();
    fs::write(workspace.join("open"), "open").unwrap();
    let link = workspace.join("swapped");
    symlink("kept", &link).unwrap();
    let kept = File::open(&link).unwrap();
    fs::remove_file(&link).unwrap();
    symlink("open", &link).unwrap();
    let open = File::open(&link).unwrap();
    let mut opened = OpenedFiles::new(&guard);
    let mut may_show = |file: &File| opened.may_show(file, &file.metadata().unwrap(), &link);
    assert!(may_show(&open));
    assert!(!may_show(&kept));
    // Nor is a file that has been unlinked.
    fs::remove_file(workspace.join("kept")).unwrap();
    assert!(!may_show(&kept));
}

/// The expected log text of an attempt, and the attempt.
type Escape<'a> = (&'static str, Box<dyn Fn() + 'a>);

/// Every refusal is logged, without the path or text it is about.
#[test]
fn refusals_are_logged_without_paths() {
    let TestWorkspace { home, guard } = scratch();
    fs::write(guard.workspace().join(".cursorignore"), "kept\n").unwrap();
    fs::write(guard.workspace().join("kept"), "x").unwrap();
    let escapes: [Escape<'_>; 8] = [
        (
            "outside the workspace",
            Box::new(|| drop(guard.write(&guard.absolute("../x")))),
        ),
        (
            "outside the workspace",
            Box::new(|| drop(guard.write(&guard.absolute("out/o.txt")))),
        ),
        (
            "outside the workspace",
            Box::new(|| drop(guard.delete(Path::new("/etc/passwd")))),
        ),
        (
            "the user keeps back",
            Box::new(|| drop(guard.read(&guard.absolute("kept")))),
        ),
        (
            "the user keeps back",
            Box::new(|| drop(guard.write(&guard.absolute("kept")))),
        ),
        (
            "what is kept back",
            Box::new(|| drop(guard.write(&guard.absolute(".cursorignore")))),
        ),
        (
            "no plain file",
            Box::new(|| drop(guard.read(Path::new("/dev/null")).unwrap().open())),
        ),
        (
            "a link that took the place",
            Box::new(|| {
                let cleared = guard.write(&guard.absolute("a/b/new")).unwrap();
                fs::remove_dir(guard.workspace().join("a/b")).unwrap();
                symlink(home.path().join("outside"), guard.workspace().join("a/b")).unwrap();
                assert!(cleared.folder(MissingFolders::Create).is_err());
            }),
        ),
    ];
    for (expected, escape) in &escapes {
        let log = logged(escape);
        assert!(
            log.contains("WARN") && log.contains(expected),
            "{expected}: {log}"
        );
        for word in ["passwd", "o.txt", "ws", "null"] {
            assert!(!log.contains(word), "{word} in {log}");
        }
    }
    if cfg!(target_os = "linux") {
        let log = logged(&|| drop(guard.read(Path::new("/proc/self/environ"))));
        assert!(
            log.contains("inside a process") && !log.contains("environ"),
            "{log}"
        );
    }
}

/// Returns what is logged while `act` runs.
fn logged(act: &dyn Fn()) -> String {
    use std::sync::{Arc, Mutex};
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// Components of generated paths.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "..", ".", "a", "b", "f.txt", "in", "out", "chain1", "chain2", "chain3", "loop1", "loop2",
        "dangling", "root", "new", "o.txt", "outside", "ws", "", " ", "~", "proc", "self", "ü",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For every path: what is approved for a change is inside the workspace, and what is written
    /// through the handle ends up there too.
    #[test]
    fn nothing_outside_is_ever_changed(
        pieces in prop::collection::vec(piece(), 1..7),
        absolute in any::<bool>(),
    ) {
        let TestWorkspace { home, guard } = scratch();
        let before = snapshot(&home.path().join("outside"));
        let path = format!("{}{}", if absolute { "/" } else { "" }, pieces.join("/"));
        let path = guard.absolute(&path);
        for cleared in [guard.write(&path), guard.delete(&path)].into_iter().flatten() {
            prop_assert!(cleared.real.starts_with(guard.real_workspace()), "{cleared:?}");
        }
        if let Ok(cleared) = guard.write(&path)
            && crate::handlers::write::replace(&cleared, b"written").is_ok()
        {
            let there = cleared.real.canonicalize().unwrap();
            prop_assert!(there.starts_with(guard.real_workspace()));
            prop_assert_eq!(fs::read(&there).unwrap(), b"written");
        }
        prop_assert_eq!(snapshot(&home.path().join("outside")), before);
        let others: Vec<_> = fs::read_dir(home.path()).unwrap().collect();
        prop_assert_eq!(others.len(), 2);
    }

    /// No text makes the guard panic.
    #[test]
    fn any_text_gets_a_decision(text in ".*") {
        let TestWorkspace { guard, home: _home } = scratch();
        let path = guard.absolute(&text);
        prop_assert!(path.is_absolute());
        let _ = guard.read(&path);
        let _ = guard.write(&path);
        let _ = guard.delete(&path);
    }
}

fn snapshot(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read(&path).unwrap_or_default()))
        .collect();
    files.sort();
    files
}
