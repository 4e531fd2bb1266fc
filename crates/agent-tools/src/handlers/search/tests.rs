use std::fs;
use std::time::SystemTime;

use super::*;

const KB: usize = 1024;

/// Files, each with the given number of kilobytes of matching lines.
struct Files {
    _folder: tempfile::TempDir,
    candidates: Vec<Candidate>,
}

fn files(kilobytes: &[usize]) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("hit{:>1$}\n", "", KB / 2 - 4);
    let file = |(number, kilobytes): (usize, &usize)| {
        let path = folder.path().join(number.to_string());
        fs::write(&path, line.repeat(2 * kilobytes)).unwrap();
        Candidate {
            path,
            time: SystemTime::UNIX_EPOCH,
            explicit: false,
        }
    };
    let candidates = kilobytes.iter().enumerate().map(file).collect();
    Files {
        _folder: folder,
        candidates,
    }
}

/// A search for `hit`.
fn with_query<T>(follow_links_inside: bool, work: impl FnOnce(&Query) -> T) -> T {
    work(&Query {
        pattern: "hit".into(),
        ignore_case: false,
        multiline: false,
        output: SearchOutput::Content,
        before: 0,
        after: 0,
        glob: None,
        kind: None,
        order: SearchOrder::Path,
        ascending: true,
        follow_links_inside,
    })
}

/// Runs `work` with a pool whose batches may use `room` bytes.
fn with_pool<T>(room: usize, work: impl FnOnce(WorkerPool<'_>, StopCondition<'_>) -> T) -> T {
    with_query(false, |query| pool_of(room, query, work))
}

fn pool_of<T>(
    room: usize,
    query: &Query,
    work: impl FnOnce(WorkerPool<'_>, StopCondition<'_>) -> T,
) -> T {
    let guard = PathGuard::new(Path::new("/"), None, false);
    let pool = WorkerPool {
        guard: &guard,
        threads: 4,
        room,
        matcher: matcher(query).unwrap(),
        query,
    };
    let stop = StopCondition {
        deadline: Instant::now() + TIMEOUT,
        abort: &CancellationToken::new(),
    };
    work(pool, stop)
}

/// Searches files in one batch.
fn outcomes(
    pool: &WorkerPool<'_>,
    files: &[Candidate],
    stop: &StopCondition<'_>,
) -> Vec<FileOutcome> {
    let held = SharedBudget::new(pool.room);
    batch_outcomes(&mut pool.workers(&held, files.len()), &held, files, stop)
}

#[test]
fn a_batch_stays_within_its_memory_limit() {
    let files = files(&[64; 32]);
    let held = |room| {
        with_pool(room, |pool, stop| {
            let bytes = |line: &OutputLine| match line {
                OutputLine::Text { content, .. } => content.len(),
                OutputLine::Other => 0,
            };
            let searched = outcomes(&pool, &files.candidates, &stop);
            assert!(
                !matches!(searched[0], FileOutcome::Later),
                "the first file is never deferred"
            );
            let held = searched.iter().map(|searched| match searched {
                FileOutcome::Found(found) => found.lines.iter().map(bytes).sum(),
                _ => 0,
            });
            held.sum::<usize>()
        })
    };
    assert!(held(usize::MAX) > 32 * 63 * KB, "they could hold more");
    // The first file is exempt from the limit.
    assert!(held(256 * KB) < (256 + 64 + 64) * KB);
}

#[test]
fn deferred_files_are_reported_in_order() {
    let kilobytes = [1, 300, 0, 64, 64, 64, 1, 64, 64, 500, 0, 64, 64, 64, 2];
    let files = files(&kilobytes);
    with_pool(128 * KB, |pool, stop| {
        let mut reported = Vec::new();
        let take = |found: FileMatches| {
            reported.push((found.path, found.lines.len()));
            true
        };
        pool.search(&files.candidates, &stop, take).unwrap();
        let all = files.candidates.iter().zip(kilobytes);
        let all = all.filter(|(_, kilobytes)| *kilobytes > 0);
        let all = all.map(|(file, kilobytes)| (file.path.clone(), 2 * kilobytes));
        assert_eq!(reported, all.collect::<Vec<_>>());
    });
}

/// A file may be replaced by a link to a hidden one after it was listed.
#[test]
fn a_file_replaced_by_a_link_to_an_ignored_one_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at(".cursorignore"), "hidden\n").unwrap();
    fs::write(at("hidden"), "hit\n").unwrap();
    fs::write(at("shown"), "hit\n").unwrap();
    std::os::unix::fs::symlink("hidden", at("swapped")).unwrap();
    let candidates = ["shown", "swapped"].map(|name| Candidate {
        path: at(name),
        time: SystemTime::UNIX_EPOCH,
        explicit: false,
    });
    with_pool(usize::MAX, |pool, stop| {
        let outcomes = outcomes(&pool, &candidates, &stop);
        assert!(
            matches!(&outcomes[..], [FileOutcome::Found(_), FileOutcome::Nothing]),
            "{outcomes:?}"
        );
    });
}

fn found(guard: &PathGuard, target: &Path, query: &Query) -> Vec<String> {
    let mut found = Vec::new();
    let abort = CancellationToken::new();
    search(guard, target, query, &abort, |file| {
        let inside = file.path.strip_prefix(guard.workspace()).unwrap();
        found.push(inside.display().to_string());
        true
    })
    .unwrap();
    found
}

/// A repository may contain a link to the root of the disk.
#[test]
fn links_are_followed_inside_the_workspace_only() {
    use std::os::unix::fs::symlink;
    let home = tempfile::tempdir().unwrap();
    let home = home.path().canonicalize().unwrap();
    let workspace = home.join("ws");
    fs::create_dir_all(workspace.join("a")).unwrap();
    fs::create_dir_all(home.join("outside/deep")).unwrap();
    fs::write(workspace.join("a/f"), "hit\n").unwrap();
    fs::write(home.join("outside/deep/o"), "hit\n").unwrap();
    symlink("/", workspace.join("root")).unwrap();
    symlink("../outside", workspace.join("out")).unwrap();
    symlink("../outside/deep/o", workspace.join("file")).unwrap();
    symlink("a", workspace.join("in")).unwrap();
    symlink(&workspace, home.join("outside/back")).unwrap();
    let guard = PathGuard::new(&workspace, None, false);
    with_query(true, |query| {
        assert_eq!(found(&guard, &workspace, query), ["a/f", "in/f"]);
        // A link that is named explicitly is searched, with everything below its target.
        let named = found(&guard, &workspace.join("out"), query);
        assert!(named.contains(&"out/deep/o".to_owned()), "{named:?}");
    });
    with_query(false, |query| {
        assert_eq!(found(&guard, &workspace, query), ["a/f"]);
    });
}
