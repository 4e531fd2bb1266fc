//! Tests of modes, owners, links and pipes, which are Unix.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::geteuid;

use super::*;

#[test]
fn files_are_private_and_no_temporary_files_remain() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep/er/file.json");
    for content in ["one", "two"] {
        write(&path, content.as_bytes()).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some(content));
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&root.path().join("deep")), 0o700);
    let names = std::fs::read_dir(root.path().join("deep/er")).unwrap();
    assert_eq!(names.count(), 1);
    assert_eq!(read(&root.path().join("none")).unwrap(), None);
}

fn exposure_of<T: std::fmt::Debug>(result: Result<T, PrivateFileError>) -> Exposure {
    match result {
        Err(PrivateFileError::Exposed { exposure, .. }) => exposure,
        other => panic!("{other:?}"),
    }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn files_that_others_could_have_created_are_not_used() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("state");
    let path = folder.join("file");
    write(&path, b"x").unwrap();
    // Others may read a file that holds no secret.
    set_mode(&path, 0o644);
    assert_eq!(read(&path).unwrap().as_deref(), Some("x"));
    assert_eq!(exposure_of(read_secret(&path)), Exposure::Readable);
    set_mode(&path, 0o620);
    assert_eq!(exposure_of(read(&path)), Exposure::Writable);
    set_mode(&path, 0o600);
    // A folder that others may list is fine, one they may write to is not.
    set_mode(&folder, 0o755);
    assert!(read_secret(&path).is_ok());
    set_mode(&folder, 0o1777);
    assert_eq!(exposure_of(read_secret(&path)), Exposure::Writable);
    assert_eq!(exposure_of(write(&path, b"y")), Exposure::Writable);
    assert_eq!(exposure_of(lock(&path)), Exposure::Writable);
    set_mode(&folder, 0o700);
    let error = check_folder(&path).unwrap_err().to_string();
    assert!(error.contains("PI_CURSOR_STATE_DIR"), "{error}");
}

#[test]
fn links_and_pipes_are_not_opened() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    std::fs::write(at("mine"), "mine").unwrap();
    std::os::unix::fs::symlink("mine", at("link")).unwrap();
    std::os::unix::fs::symlink("mine", at("other.lock")).unwrap();
    let pipes = [at("pipe"), at("piped.lock")];
    let made = std::process::Command::new("mkfifo")
        .arg("-m600")
        .args(pipes)
        .status();
    assert!(made.unwrap().success());
    assert_eq!(exposure_of(read(&at("link"))), Exposure::Kind);
    assert_eq!(exposure_of(read(&at("pipe"))), Exposure::Kind);
    assert_eq!(exposure_of(lock(&at("other.json"))), Exposure::Kind);
    assert_eq!(exposure_of(lock(&at("piped.json"))), Exposure::Kind);
    assert_eq!(std::fs::read_to_string(at("mine")).unwrap(), "mine");
}

/// Only root can change the owner of a file.
#[test]
fn files_of_another_user_are_not_used() {
    if !geteuid().is_root() {
        return assert_eq!(
            exposure_of(check_folder(Path::new("/"))),
            Exposure::Owner(0),
            "the root of the disk is not ours"
        );
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("state/login.json");
    write(&path, b"x").unwrap();
    let other = Some(rustix::process::Uid::from_raw(5555));
    rustix::fs::chown(&path, other, None).unwrap();
    assert_eq!(exposure_of(read(&path)), Exposure::Owner(5555));
    std::fs::remove_file(&path).unwrap();
    let folder = path.parent().unwrap();
    rustix::fs::chown(folder, other, None).unwrap();
    assert_eq!(exposure_of(read(&path)), Exposure::Owner(5555));
    assert_eq!(exposure_of(write(&path, b"y")), Exposure::Owner(5555));
    assert!(!path.exists());
    // A link of another user is not followed either.
    let link = root.path().join("link");
    std::os::unix::fs::symlink(root.path(), &link).unwrap();
    assert!(check_folder(&link).is_ok());
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::chownat(rustix::fs::CWD, &link, other, None, flags).unwrap();
    assert_eq!(exposure_of(check_folder(&link)), Exposure::Owner(5555));
}

#[test]
fn a_write_error_names_the_path() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = write(&file.join("below"), b"x").unwrap_err().to_string();
    assert!(error.starts_with("cannot create "), "{error}");
    // A folder in place of the file is kept, and no temporary file remains.
    let folder = root.path().join("folder");
    std::fs::create_dir_all(folder.join("x")).unwrap();
    assert!(write(&folder, b"x").is_err());
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
}
