use std::fs;

use super::*;

fn listed(guard: &PathGuard, root: &Path) -> LsDirectoryTreeNode {
    let args = LsArgs {
        path: root.to_string_lossy().into_owned(),
        ..LsArgs::default()
    };
    match ls(guard, &args, &CancellationToken::new()).result {
        Some(ls_result::Result::Success(success)) => success.directory_tree_root.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The files that are shown below a directory, and its counts.
fn shown(node: &LsDirectoryTreeNode) -> usize {
    node.children_files.len() + node.children_dirs.iter().map(shown).sum::<usize>()
}

fn counts(node: &LsDirectoryTreeNode) -> Vec<(&str, i32)> {
    let counts = node.full_subtree_extension_counts.iter();
    counts
        .map(|count| (count.key.as_str(), count.value))
        .collect()
}

#[test]
fn files_that_do_not_fit_are_counted_in_every_directory_above() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for number in 0..40 {
        let folder = root.join(format!("d{number:02}/inside"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..25 {
            fs::write(folder.join(format!("f{file:02}.rs")), "").unwrap();
        }
        for name in ["LICENSE", "ends."] {
            fs::write(folder.join(name), "").unwrap();
        }
    }
    fs::write(root.join("last.txt"), "").unwrap();
    // Names of one file and of a directory's files, each hidden by another rule.
    fs::write(root.join(".cursorignore"), "f03.rs\n").unwrap();
    fs::write(root.join("d39/.gitignore"), "*.rs\n").unwrap();
    fs::create_dir(root.join(".git")).unwrap();
    let guard = PathGuard::new(&root, None, false);
    let tree = listed(&guard, &root);
    assert!(!tree.children_were_processed);
    let names: Vec<&str> = tree
        .children_files
        .iter()
        .map(|file| file.name.as_str())
        .collect();
    assert_eq!(names, [".cursorignore"], "the first by name");
    assert_eq!(tree.children_dirs.len(), 40);
    let all = 39 * 24 + 40 * 2 + 3;
    let (shown, unshown) = (shown(&tree), usize::try_from(tree.num_files).unwrap());
    assert_eq!(shown + unshown, all);
    let first = &tree.children_dirs[0].children_dirs[0];
    assert!(first.children_were_processed && first.children_files.len() == 26);
    let last = &tree.children_dirs[39];
    assert_eq!(counts(last), [("", 2), (".", 1)]);
    assert_eq!(counts(&last.children_dirs[0]), [("", 1), (".", 1)]);
    let middle = &tree.children_dirs[30];
    assert_eq!(counts(middle), [("", 1), (".", 1), (".rs", 24)]);
    assert_eq!(middle.num_files, 26);
    let sum: i32 = tree.children_dirs.iter().map(|child| child.num_files).sum();
    assert_eq!(tree.num_files, sum + 1, "and last.txt");
    assert_eq!(counts(&tree).last(), Some(&(".txt", 1)));
}

#[test]
fn credentials_are_neither_shown_nor_counted() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().canonicalize().unwrap();
    let state = home.join(".local/state/cursor-sidecar");
    for folder in [&state, &home.join(".pi/agent"), &home.join("z")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(state.join("login.json"), "").unwrap();
    fs::write(home.join(".pi/agent/auth.json"), "").unwrap();
    fs::write(home.join(".pi/agent/settings.json"), "").unwrap();
    let guard = PathGuard::new(&home.join("z"), Some(home.clone()), false);
    assert_eq!(shown(&listed(&guard, &home)), 1, "only the settings");
    for number in 0..600 {
        fs::write(home.join(format!("z/file-{number}.rs")), "").unwrap();
    }
    let tree = listed(&guard, &home);
    let unshown = usize::try_from(tree.num_files).unwrap();
    assert!(unshown > 0);
    assert_eq!(shown(&tree) + unshown, 601);
}
