//! The journal on disk: a process may be killed at any step of writing it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use agent::conversation::fingerprint::Fingerprint;
use agent::conversation::journal::JournalEntry;
use agent::conversation::store::{
    BlobCheck, LoadOutcome, LockedConversation, RetentionLimits, Store, StoreError,
};
use agent::message::Message;
use bytes::Bytes;
use sha2::Digest as _;

const SESSION: &str = "session-1";

/// The entry of a conversation after its nth turn: its state names a blob that must exist.
fn entry(turn: u8, conversation: &str) -> JournalEntry {
    let message = Message::user(turn.to_string()).at(turn);
    JournalEntry {
        conversation_id: conversation.into(),
        blob_key: "ab".repeat(32),
        account: "a".into(),
        sent: Some(Fingerprint::of("S", &[message])),
        state: Some(Bytes::from(vec![turn; 3000])),
        answer: None,
        pause: None,
        messages: Vec::new(),
        unread: None,
        blobs: None,
        blob_bytes: None,
        sums: None,
    }
}

fn write(kept: &LockedConversation, turn: u8, conversation: &str) {
    let shelf = kept.blob_store(conversation);
    shelf.set(&[turn; 32], &vec![turn; 5000]).unwrap();
    kept.write(&entry(turn, conversation), &shelf).unwrap();
}

fn read(kept: &LockedConversation) -> JournalEntry {
    match kept.read(BlobCheck::Content).unwrap() {
        LoadOutcome::Loaded(entry) => *entry,
        other => panic!("{other:?}"),
    }
}

/// Environment variables of the child: where it writes, at which step it dies, which conversation
/// it continues.
const FOLDER: &str = "JOURNAL_TEST_FOLDER";
const DIE_AT: &str = "JOURNAL_TEST_DIE_AT";
const CONVERSATION: &str = "JOURNAL_TEST_CONVERSATION";

#[test]
#[ignore = "the child of the test below"]
fn a_child_that_dies_while_writing() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let at: usize = std::env::var(DIE_AT).unwrap().parse().unwrap();
    let step = AtomicUsize::new(0);
    let store = Store::at(folder).watched(move |_| {
        if step.fetch_add(1, Ordering::SeqCst) == at {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
    });
    let kept = store.lock(SESSION).unwrap();
    read(&kept);
    write(&kept, 2, &std::env::var(CONVERSATION).unwrap());
}

/// Runs the child and returns whether it completed.
fn child(folder: &Path, at: usize, conversation: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "journal::a_child_that_dies_while_writing",
            "--ignored",
        ])
        .env(FOLDER, folder)
        .env(DIE_AT, at.to_string())
        .env(CONVERSATION, conversation)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    status.success()
}

#[test]
fn a_kill_at_any_step_leaves_the_old_turn_or_the_new_one() {
    // The next turn of the same conversation, then a history rebuilt as another conversation.
    for conversation in ["one", "two"] {
        let mut steps = 0;
        let mut seen = [0, 0];
        loop {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::at(folder.path());
            write(&store.lock(SESSION).unwrap(), 1, "one");
            let lived = child(folder.path(), steps, conversation);
            // The lock of the dead child was released with it.
            let kept = store.lock(SESSION).unwrap();
            let found = read(&kept);
            let turn = found.state.as_ref().unwrap()[0];
            let named = if turn == 1 { "one" } else { conversation };
            assert_eq!(found, entry(turn, named), "step {steps}");
            let blob = kept.blob_store(named).get(&[turn; 32]).unwrap();
            assert_eq!(blob, Some(Bytes::from(vec![turn; 5000])), "step {steps}");
            seen[usize::from(turn - 1)] += 1;
            // The journal can still be written.
            write(&kept, 3, named);
            assert_eq!(read(&kept), entry(3, named));
            if lived {
                assert_eq!(turn, 2);
                break;
            }
            steps += 1;
        }
        assert!(steps >= 8 && seen[0] > 0 && seen[1] > 0, "{steps} {seen:?}");
    }
}

#[test]
fn a_conversation_has_one_owner_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let kept = store.lock(SESSION).unwrap();
    assert!(matches!(store.lock(SESSION), Err(StoreError::Busy)));
    store.lock("another").unwrap();
    drop(kept);
    store.lock(SESSION).unwrap();
}

#[test]
fn state_files_are_private() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("deep/er");
    write(&Store::at(&root).lock(SESSION).unwrap(), 1, "one");
    let mut folders = vec![root];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            if entry.metadata().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                assert_eq!(
                    entry.metadata().unwrap().permissions().mode() & 0o777,
                    0o600
                );
                files += 1;
            }
        }
    }
    assert_eq!(files, 3);
}

#[test]
fn a_damaged_journal_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let kept = store.lock(SESSION).unwrap();
    write(&kept, 1, "one");
    let conversation = fs::read_dir(folder.path())
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let journal = conversation.path().join("journal");
    let half = fs::read(&journal).unwrap();
    fs::write(&journal, &half[..half.len() / 2]).unwrap();
    let LoadOutcome::Damaged(_, aside) = kept.read(BlobCheck::Content).unwrap() else {
        panic!("not noticed");
    };
    assert_eq!(fs::read(aside).unwrap(), half[..half.len() / 2]);
    assert!(matches!(
        kept.read(BlobCheck::Content).unwrap(),
        LoadOutcome::Nothing
    ));
    write(&kept, 2, "two");
    assert_eq!(read(&kept), entry(2, "two"));
}

#[test]
fn a_checkpoint_without_all_its_blobs_is_dropped_and_the_rest_kept() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Store::at(folder.path()).lock(SESSION).unwrap();
    write(&kept, 1, "one");
    write(&kept, 2, "one");
    assert_eq!(read(&kept), entry(2, "one"));
    let conversation = fs::read_dir(folder.path()).unwrap().next().unwrap();
    let inside = fs::read_dir(conversation.unwrap().path())
        .unwrap()
        .flatten();
    let blobs = inside.map(|entry| entry.path()).find(|path| path.is_dir());
    let blob = fs::read_dir(blobs.unwrap()).unwrap().next().unwrap();
    fs::remove_file(blob.unwrap().path()).unwrap();
    let LoadOutcome::Incomplete(found) = kept.read(BlobCheck::Content).unwrap() else {
        panic!("not noticed");
    };
    let expected = JournalEntry {
        state: None,
        sent: None,
        ..entry(2, "one")
    };
    assert_eq!(*found, expected);
    // The next write is complete again.
    write(&kept, 3, "one");
    assert_eq!(read(&kept), entry(3, "one"));
}

/// Returns the blobs of the only conversation in a folder.
fn blobs(folder: &Path) -> Vec<std::path::PathBuf> {
    let conversation = fs::read_dir(folder).unwrap().next().unwrap();
    let inside = fs::read_dir(conversation.unwrap().path())
        .unwrap()
        .flatten();
    let shelf = inside.map(|entry| entry.path()).find(|path| path.is_dir());
    let blobs = fs::read_dir(shelf.unwrap()).unwrap().flatten();
    blobs.map(|entry| entry.path()).collect()
}

#[test]
fn a_checkpoint_with_altered_blobs_is_dropped() {
    let named_by_content = sha2::Sha256::digest(b"some words").to_vec();
    for id in [named_by_content, vec![7; 32], vec![7; 100]] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let kept = store.lock(SESSION).unwrap();
        let shelf = kept.blob_store("one");
        shelf.set(&id, b"some words").unwrap();
        kept.write(&entry(1, "one"), &shelf).unwrap();
        drop(kept);
        let kept = store.lock(SESSION).unwrap();
        assert_eq!(read(&kept), entry(1, "one"));
        fs::write(&blobs(folder.path())[0], b"some wards").unwrap();
        let LoadOutcome::Incomplete(_) = kept.read(BlobCheck::Content).unwrap() else {
            panic!("not noticed");
        };
        assert!(blobs(folder.path()).is_empty(), "it is of no use");
        // A state that does not need the blob can be written.
        write(&kept, 2, "one");
        assert_eq!(read(&kept), entry(2, "one"));
    }
}

/// A journal that is a pipe is treated as damaged, because reading it would block forever.
#[test]
fn a_pipe_in_place_of_the_journal_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Store::at(folder.path()).lock(SESSION).unwrap();
    write(&kept, 1, "one");
    let conversation = fs::read_dir(folder.path()).unwrap().next().unwrap();
    let journal = conversation.unwrap().path().join("journal");
    fs::remove_file(&journal).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&journal).status();
    assert!(made.unwrap().success());
    assert!(matches!(
        kept.read(BlobCheck::Content).unwrap(),
        LoadOutcome::Damaged(..)
    ));
    write(&kept, 2, "one");
    assert_eq!(read(&kept), entry(2, "one"));
}

#[test]
fn an_invalidated_session_leaves_no_data_to_read() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Store::at(folder.path()).lock(SESSION).unwrap();
    write(&kept, 1, "one");
    kept.delete().unwrap();
    kept.delete().unwrap();
    assert!(matches!(
        kept.read(BlobCheck::Content).unwrap(),
        LoadOutcome::Nothing
    ));
    assert_eq!(kept.blob_store("one").get(&[1; 32]).unwrap(), None);
}

#[test]
fn cleaning_up_keeps_the_newest_conversations_and_those_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let all = RetentionLimits {
        unused: Duration::from_secs(3600),
        bytes: u64::MAX,
    };
    let now = SystemTime::now();
    assert_eq!(
        Store::at(folder.path().join("none"))
            .sweep(now, all)
            .unwrap(),
        0
    );
    let mut known = BTreeSet::new();
    for (session, ago) in [("a", 30), ("b", 20), ("c", 10)] {
        write(&store.lock(session).unwrap(), 1, "one");
        // Set the times explicitly, because the clock may be too coarse for consecutive writes.
        let used = now - Duration::from_secs(ago);
        let files = |folder: &Path| {
            let entries = fs::read_dir(folder).unwrap();
            entries
                .map(|entry| entry.unwrap().path())
                .collect::<Vec<_>>()
        };
        for fresh in files(folder.path()) {
            if known.insert(fresh.clone()) {
                for file in files(&fresh) {
                    fs::File::open(file).unwrap().set_modified(used).unwrap();
                }
            }
        }
    }
    assert_eq!(store.sweep(now, all).unwrap(), 0);
    // There is room for one conversation of about nine kilobytes. Of the two used longest ago one
    // is removed; the other is in use and stays.
    let kept = store.lock("a").unwrap();
    let tight = RetentionLimits {
        bytes: 12_000,
        ..all
    };
    assert_eq!(store.sweep(now, tight).unwrap(), 1);
    assert_eq!(read(&kept), entry(1, "one"));
    assert_eq!(read(&store.lock("c").unwrap()), entry(1, "one"));
    assert!(matches!(
        store.lock("b").unwrap().read(BlobCheck::Content).unwrap(),
        LoadOutcome::Nothing
    ));
    drop(kept);
    let later = now + Duration::from_secs(7200);
    assert_eq!(store.sweep(later, all).unwrap(), 3);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
