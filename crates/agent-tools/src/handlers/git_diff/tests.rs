//! Diffs of real repositories.

use super::patch::NOTHING;
use super::*;
use cursor_proto::aiserver::v1::FileDiff;
use std::fs;
use std::os::unix::fs::symlink;

struct Repository {
    _home: tempfile::TempDir,
    guard: Arc<PathGuard>,
}

impl Repository {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let guard = PathGuard::new(home.path(), None, false);
        let new = Self {
            _home: home,
            guard: Arc::new(guard),
        };
        new.git(&["init", "--quiet"]).await;
        new
    }

    fn root(&self) -> &Path {
        self.guard.workspace()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    async fn git(&self, args: &[&str]) {
        git(self.root(), args).await.unwrap();
    }

    async fn commit(&self) {
        self.git(&["add", "--all"]).await;
        let me = ["-c", "user.name=t", "-c", "user.email=t@example.org"];
        self.git(&[&me[..], &["commit", "--quiet", "-m", "x"]].concat())
            .await;
    }

    async fn ask(&self, request: GetDiffRequest) -> Result<GetDiffResponse, ExecError> {
        diff(&self.guard, request, &CancellationToken::new()).await
    }

    async fn diffs(&self, format: OutputFormat) -> Vec<FileDiff> {
        let request = GetDiffRequest {
            base_ref: "HEAD".into(),
            max_untracked_files: 99,
            output_format: Some(format as i32),
            ..GetDiffRequest::default()
        };
        self.ask(request).await.unwrap().diff.unwrap().diffs
    }
}

#[tokio::test]
async fn changes_and_new_files_are_returned() {
    let repository = Repository::new().await;
    repository.write("a", "one\ntwo\nthree\n");
    repository.commit().await;
    repository.write("a", "one\n-- 2\nthree");
    repository.write("b", "new\n");
    let request = GetDiffRequest {
        base_ref: "HEAD".into(),
        max_untracked_files: 9,
        include_space_changes: true,
        return_head_sha: Some(true),
        ..GetDiffRequest::default()
    };
    let response = repository.ask(request).await.unwrap();
    assert_eq!(response.has_uncommitted_changes, Some(true));
    assert_eq!(response.head_sha.unwrap().len(), 40);
    let diffs = response.diff.unwrap().diffs;
    let shown: Vec<_> = diffs
        .iter()
        .map(|diff| {
            (
                diff.from.as_str(),
                diff.to.as_str(),
                diff.added,
                diff.removed,
            )
        })
        .collect();
    assert_eq!(shown, [("a", "a", 2, 2), (NOTHING, "b", 1, 0)]);
    let lines = &diffs[0].chunks[0].lines;
    assert_eq!(lines.last().unwrap(), "\\ No newline at end of file");
}

/// Such links may lead to our own environment, and to pipes that never end.
#[tokio::test]
async fn the_content_of_a_link_is_its_target_path_and_the_target_is_not_opened() {
    let repository = Repository::new().await;
    repository.write("a", "kept\n");
    repository.commit().await;
    let root = repository.root();
    let made = std::process::Command::new("mkfifo")
        .arg(root.join("pipe"))
        .status();
    assert!(made.unwrap().success());
    let targets = ["/proc/self/environ", "/dev/zero", "pipe", "nowhere"];
    for (number, target) in targets.iter().enumerate() {
        symlink(target, root.join(format!("link{number}"))).unwrap();
    }
    fs::remove_file(root.join("a")).unwrap();
    symlink("pipe", root.join("a")).unwrap();
    let diffs = repository.diffs(OutputFormat::FileDiffs).await;
    let links = diffs.iter().filter(|diff| diff.to.starts_with("link"));
    let lines: Vec<_> = links.map(|diff| diff.chunks[0].lines[0].as_str()).collect();
    assert_eq!(lines, targets.map(|target| format!("+{target}")));
    let diffs = repository
        .diffs(OutputFormat::DiffsWithBeforeAndAfter)
        .await;
    let after = |name: &str| {
        let found = diffs.iter().find(|diff| diff.to == name).unwrap();
        found.after_file_contents.clone().unwrap()
    };
    assert_eq!(after("link0"), "/proc/self/environ");
    assert_eq!(after("a"), "pipe");
}

#[tokio::test]
async fn files_hidden_by_the_user_are_left_out() {
    let repository = Repository::new().await;
    repository.write(".cursorignore", "private/\n");
    repository.write("private/changed", "one\n");
    repository.write("private/gone", "one\n");
    repository.commit().await;
    repository.write("private/changed", "two\n");
    fs::remove_file(repository.root().join("private/gone")).unwrap();
    repository.write("private/new", "new\n");
    repository.write("shown", "new\n");
    for format in [
        OutputFormat::FileDiffs,
        OutputFormat::DiffsWithBeforeAndAfter,
        OutputFormat::NameStatus,
    ] {
        let diffs = repository.diffs(format).await;
        let names: Vec<_> = diffs.iter().map(|diff| diff.to.as_str()).collect();
        assert_eq!(names, ["shown"], "{format:?}");
    }
}

/// git itself would compare any two files.
#[tokio::test]
async fn a_path_is_not_accepted_as_a_revision() {
    let repository = Repository::new().await;
    repository.write("a", "one\n");
    repository.commit().await;
    repository.write("--", "two\n");
    let request = GetDiffRequest {
        base_ref: format!("/proc/{}/environ", std::process::id()),
        ..GetDiffRequest::default()
    };
    let thrown = repository.ask(request).await.unwrap_err();
    assert!(thrown.0.contains("no revision"), "{thrown}");
}

#[tokio::test]
async fn names_are_returned_unquoted() {
    let repository = Repository::new().await;
    let names = ["a b/c", "quo\"te", "ta\tb", "\u{fc}.txt"];
    for name in names {
        repository.write(name, "one\n");
    }
    repository.commit().await;
    for name in names {
        repository.write(name, "two\n");
    }
    repository.write("\u{e4}.new", "new\n");
    repository
        .git(&["config", "diff.mnemonicPrefix", "true"])
        .await;
    let diffs = repository
        .diffs(OutputFormat::DiffsWithBeforeAndAfter)
        .await;
    let shown: Vec<_> = diffs
        .iter()
        .map(|diff| (diff.from.as_str(), diff.to.as_str()))
        .collect();
    let mut expected: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
    expected.push((NOTHING, "\u{e4}.new"));
    assert_eq!(shown, expected);
    for diff in &diffs[..names.len()] {
        assert_eq!(diff.before_file_contents.as_deref(), Some("one\n"));
        assert_eq!(diff.after_file_contents.as_deref(), Some("two\n"));
    }
}

#[tokio::test]
async fn a_cancelled_diff_ends() {
    let repository = Repository::new().await;
    let abort = CancellationToken::new();
    abort.cancel();
    // There is no revision to compare with yet, so either error is fine.
    let request = GetDiffRequest::default();
    assert!(diff(&repository.guard, request, &abort).await.is_err());
}

#[tokio::test]
async fn an_option_is_not_accepted_as_a_revision() {
    let repository = Repository::new().await;
    let request = GetDiffRequest {
        base_ref: "--output=made".into(),
        ..GetDiffRequest::default()
    };
    assert!(repository.ask(request).await.is_err());
    assert!(!repository.root().join("made").exists());
}
