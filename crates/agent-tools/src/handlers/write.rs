//! Writing a file: atomically, and in the encoding and with the line endings it had.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Cursor, Write as _};
use std::path::Path;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::io_errors;
use super::text_file::{self, Encoding, FileKind, LineEndings};
use crate::errno::Errno;
use crate::prompts::tools;
use crate::workspace::open_folder::{OpenFolder, reserve_space, take_permissions};
use crate::workspace::path_guard::{ApprovedPath, MissingFolders, PathDenied, PathGuard};
use cursor_proto::agent::v1::*;
use foundation::file_id::link_count;

/// In files larger than this the format is not detected, and text is written unchanged.
const MAX_SURVEYED: u64 = 64 * 1024 * 1024;

/// Executes one write request.
pub(super) fn write(guard: &PathGuard, args: &WriteArgs) -> WriteResult {
    let path = guard.absolute(&args.path);
    let shown = path.to_string_lossy().into_owned();
    let result = match guard.write(&path) {
        Ok(cleared) => {
            attempt(&cleared, args, &shown).unwrap_or_else(|error| failed(&path, &error))
        }
        Err(refusal @ (PathDenied::Outside(_) | PathDenied::Process(_))) => {
            write_result::Result::Rejected(WriteRejected {
                path: shown,
                reason: refusal.to_string(),
            })
        }
        Err(refusal) => write_result::Result::PermissionDenied(WritePermissionDenied {
            path: shown,
            error: refusal.to_string(),
            ..WritePermissionDenied::default()
        }),
    };
    WriteResult {
        result: Some(result),
    }
}

fn attempt(
    cleared: &ApprovedPath,
    args: &WriteArgs,
    shown: &str,
) -> io::Result<write_result::Result> {
    if cleared.real.is_dir() {
        return Err(Errno::ISDIR.into());
    }
    let bytes = if args.file_bytes.is_empty() {
        let hint = args.encoding_hint.as_deref();
        match Format::of(cleared, hint).bytes(&args.file_text) {
            Ok(bytes) => bytes,
            Err(_) if Format::is_old(cleared) && !wants_utf8(hint) => {
                return Ok(write_result::Result::Error(WriteError {
                    path: shown.to_owned(),
                    error: tools::ENCODING_CANNOT_HOLD_TEXT.into(),
                }));
            }
            // The file is new or not in an old encoding, or the request asks for UTF-8.
            Err(text) => text.into_bytes(),
        }
    } else {
        args.file_bytes.to_vec()
    };
    replace(cleared, &bytes)?;
    let written = as_read(&bytes);
    let lines = written
        .as_ref()
        .map_or(0, |text| text.matches('\n').count() + 1);
    Ok(write_result::Result::Success(WriteSuccess {
        path: shown.to_owned(),
        lines_created: i32::try_from(lines).unwrap_or(i32::MAX),
        file_size: i32::try_from(bytes.len()).unwrap_or(i32::MAX),
        file_content_after_write: written.filter(|_| args.return_file_content_after_write),
    }))
}

fn wants_utf8(hint: Option<&str>) -> bool {
    hint.is_some_and(|hint| hint.to_ascii_lowercase().starts_with("utf"))
}

/// How a file stores its text.
struct Format {
    encoding: Encoding,
    ends: LineEndings,
    marked: bool,
}

impl Format {
    const NEW: Self = Self {
        encoding: Encoding::Utf8,
        ends: LineEndings::Lf,
        marked: false,
    };

    /// Returns the format of an existing file, or the default one, changed by the hint.
    fn of(cleared: &ApprovedPath, hint: Option<&str>) -> Self {
        let Some(mut format) = Self::existing(cleared) else {
            return Self::NEW.hinted(hint);
        };
        if hint.is_some() {
            format = format.hinted(hint);
        }
        format
    }

    /// Returns whether the file exists in an encoding older than Unicode.
    fn is_old(cleared: &ApprovedPath) -> bool {
        Self::existing(cleared).is_some_and(|format| format.encoding == Encoding::Western)
    }

    fn hinted(self, hint: Option<&str>) -> Self {
        let (encoding, marked) = match hint.map(str::to_ascii_lowercase).as_deref() {
            Some("latin1" | "latin-1" | "iso-8859-1" | "windows-1252" | "cp1252") => {
                (Encoding::Western, false)
            }
            Some("utf8bom" | "utf-8-bom" | "utf-8 bom") => (Encoding::Utf8, true),
            Some("utf-16le" | "utf16le") => (Encoding::Utf16Le, self.marked),
            Some("utf-16be" | "utf16be") => (Encoding::Utf16Be, self.marked),
            _ => return self,
        };
        Self {
            encoding,
            marked,
            ..self
        }
    }

    fn existing(cleared: &ApprovedPath) -> Option<Self> {
        let mut file = cleared.open().ok()?;
        let size = file.metadata().ok()?.len();
        if size == 0 || size > MAX_SURVEYED {
            return None;
        }
        let FileKind::Text(guess) = text_file::kind(&text_file::sample(&mut file).ok()?) else {
            return None;
        };
        let scan = text_file::scan(&mut file, guess, &CancellationToken::new()).ok()?;
        Some(Self {
            encoding: scan.encoding,
            ends: scan.ends,
            marked: scan.marked,
        })
    }

    /// Encodes a text. If the encoding lacks one of its characters, returns the text with the
    /// file's line endings as the error.
    fn bytes(&self, text: &str) -> Result<Vec<u8>, String> {
        // The byte order mark is added when the text is encoded.
        let text = if self.marked {
            text.strip_prefix('\u{feff}').unwrap_or(text)
        } else {
            text
        };
        let text = match self.ends {
            LineEndings::Lf => text.to_owned(),
            LineEndings::CrLf => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        };
        text_file::encode(&text, self.encoding, self.marked).ok_or(text)
    }
}

/// Returns the text that reading the file would return, or `None` if it is binary.
fn as_read(bytes: &[u8]) -> Option<String> {
    let FileKind::Text(guess) = text_file::kind(&bytes[..bytes.len().min(8192)]) else {
        return None;
    };
    let abort = CancellationToken::new();
    let mut file = Cursor::new(bytes);
    let scan = text_file::scan(&mut file, guess, &abort).ok()?;
    let excerpt = text_file::lines(
        &mut file,
        &scan,
        0,
        scan.lines,
        text_file::MAX_UNITS,
        &abort,
    );
    Some(excerpt.ok()?.text)
}

/// Replaces a file's content. The bytes go to a new file that is renamed only when it is complete,
/// so no reader sees half of it, and other hard links of the old file keep the old content.
pub(crate) fn replace(cleared: &ApprovedPath, bytes: &[u8]) -> io::Result<()> {
    let (folder, name) = cleared.folder(MissingFolders::Create)?;
    let old = folder.write(&name)?;
    if let Some(old) = &old
        && !old.metadata()?.is_file()
    {
        return Err(Errno::INVAL.into());
    }
    match (swap(&folder, &name, old.as_ref(), bytes), old) {
        (Ok(()), _) => Ok(()),
        (Err(ReplaceError::NotHere(_)), Some(old)) => {
            // Another hard link may be outside the workspace.
            if link_count(&old)? > 1 {
                tracing::warn!("refused to overwrite a file with several hard links");
                return Err(io::Error::other(SeveralNames));
            }
            overwrite(old, bytes)
        }
        (Err(ReplaceError::NotHere(error) | ReplaceError::Failed(error)), _) => Err(error),
    }
}

/// The file could only be overwritten in place, which would change its other hard links too.
#[derive(Debug, thiserror::Error)]
#[error("{}", tools::HARD_LINKS)]
struct SeveralNames;

/// Why a file was not replaced by a new one.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    /// The directory is not writable, or the old file is a mount or belongs to another user.
    #[error("{}", tools::file_not_created(.0))]
    NotHere(io::Error),
    /// Any other error. Overwriting the old file would fail as well and lose its content.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl ReplaceError {
    /// Classifies an error of creating or renaming the new file.
    fn naming(error: impl Into<io::Error>) -> Self {
        const NOT_HERE: [Errno; 6] = [
            Errno::ACCESS,
            Errno::PERM,
            Errno::ROFS,
            Errno::BUSY,
            Errno::TXTBSY,
            Errno::XDEV,
        ];
        let error = error.into();
        if NOT_HERE.iter().any(|errno| io_errors::is(&error, *errno)) {
            Self::NotHere(error)
        } else {
            Self::Failed(error)
        }
    }
}

/// Overwrites a file that cannot be replaced. Space is allocated first, so that a full disk does
/// not destroy the old content.
fn overwrite(mut old: File, bytes: &[u8]) -> io::Result<()> {
    let (was, is) = (old.metadata()?.len(), bytes.len() as u64);
    if is > was
        && let Err(error) = reserve_space(&old, is)
    {
        old.set_len(was)?;
        return Err(error);
    }
    old.write_all(bytes)?;
    old.set_len(is)
}

fn swap(
    folder: &OpenFolder,
    name: &OsStr,
    old: Option<&File>,
    bytes: &[u8],
) -> Result<(), ReplaceError> {
    let temporary = OsString::from(format!(".{}.tmp", Uuid::new_v4().simple()));
    let mut new = folder.create(&temporary).map_err(ReplaceError::naming)?;
    let done = (|| {
        if let Some(old) = old
            && !take_permissions(&new, old).map_err(ReplaceError::naming)?
        {
            return Err(ReplaceError::naming(Errno::PERM));
        }
        new.write_all(bytes)?;
        folder
            .rename(&temporary, name)
            .map_err(ReplaceError::naming)
    })();
    if done.is_err() {
        let _ = folder.remove(&temporary);
    }
    done
}

fn failed(path: &Path, error: &io::Error) -> write_result::Result {
    let shown = path.to_string_lossy().into_owned();
    if io_errors::is(error, Errno::NOSPC) {
        write_result::Result::NoSpace(WriteNoSpace { path: shown })
    } else if io_errors::is_denied(error) || io_errors::is(error, Errno::ROFS) {
        let missing = path.parent().filter(|folder| !folder.is_dir());
        write_result::Result::PermissionDenied(WritePermissionDenied {
            path: shown,
            directory: missing
                .map(|folder| folder.to_string_lossy().into_owned())
                .unwrap_or_default(),
            operation: match missing {
                Some(_) => "create_directory".into(),
                None => "create_file".into(),
            },
            error: "Permission denied".into(),
            ..WritePermissionDenied::default()
        })
    } else {
        let own = error
            .get_ref()
            .filter(|inner| inner.is::<SeveralNames>())
            .map(ToString::to_string);
        write_result::Result::Error(WriteError {
            path: shown,
            error: own.unwrap_or_else(|| io_errors::sentence(error, "open", path)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write_text(guard: &PathGuard, path: &str, text: &str) -> write_result::Result {
        let args = WriteArgs {
            path: path.into(),
            file_text: text.into(),
            return_file_content_after_write: true,
            ..WriteArgs::default()
        };
        write(guard, &args).result.unwrap()
    }

    fn scratch() -> (tempfile::TempDir, PathGuard) {
        let home = tempfile::tempdir().unwrap();
        let workspace = home.path().join("ws");
        fs::create_dir(&workspace).unwrap();
        let guard = PathGuard::new(&workspace, None, false);
        (home, guard)
    }

    /// Other clients convert them to text: defect 22 of `docs/recovery-tests.md`.
    #[test]
    fn bytes_are_written_as_they_are() {
        let (_home, guard) = scratch();
        let bytes = [0xff, 0xfe, 0, b'\r', b'\n', 0x80];
        let args = WriteArgs {
            path: "f".into(),
            file_bytes: bytes.to_vec().into(),
            ..WriteArgs::default()
        };
        write(&guard, &args);
        assert_eq!(fs::read(guard.workspace().join("f")).unwrap(), bytes);
    }

    #[test]
    fn formats_are_kept() {
        let (_home, guard) = scratch();
        let file = guard.workspace().join("f");
        fs::write(&file, "a\r\nb\r\n").unwrap();
        write_text(&guard, "f", "x\ny\n");
        assert_eq!(fs::read(&file).unwrap(), b"x\r\ny\r\n");
        fs::write(&file, b"\xef\xbb\xbfa\n").unwrap();
        write_text(&guard, "f", "ü\n");
        assert_eq!(fs::read(&file).unwrap(), "\u{feff}ü\n".as_bytes());
        fs::write(&file, b"caf\xe9\n").unwrap();
        write_text(&guard, "f", "th\u{e9}\n");
        assert_eq!(fs::read(&file).unwrap(), b"th\xe9\n");
        fs::write(&file, b"\xef\xbb\xbfa\n").unwrap();
        write_text(&guard, "f", "\u{feff}b\n");
        assert_eq!(fs::read(&file).unwrap(), "\u{feff}b\n".as_bytes());
    }

    #[test]
    fn characters_missing_in_an_old_encoding_are_not_written() {
        let (_home, guard) = scratch();
        let file = guard.workspace().join("f");
        let old = b"\xcf\xf0\xe8\xe2\xe5\xf2\n";
        fs::write(&file, old).unwrap();
        let result = write_text(&guard, "f", "Привет\n");
        let write_result::Result::Error(no) = &result else {
            panic!("{result:?}");
        };
        assert!(no.error.contains("nothing was written"), "{no:?}");
        assert_eq!(fs::read(&file).unwrap(), old);
        let hinted = WriteArgs {
            path: "f".into(),
            file_text: "Привет\n".into(),
            encoding_hint: Some("utf-8".into()),
            ..WriteArgs::default()
        };
        write(&guard, &hinted);
        assert_eq!(fs::read(&file).unwrap(), "Привет\n".as_bytes());
    }

    #[test]
    fn permissions_stay_and_other_hard_links_keep_the_old_content() {
        use std::os::unix::fs::PermissionsExt as _;
        let (home, guard) = scratch();
        let file = guard.workspace().join("run.sh");
        let second = home.path().join("outside-name");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o750)).unwrap();
        fs::hard_link(&file, &second).unwrap();
        write_text(&guard, "run.sh", "new");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o750
        );
        assert_eq!(fs::read_to_string(&second).unwrap(), "old");
        let left: Vec<_> = fs::read_dir(guard.workspace()).unwrap().collect();
        assert_eq!(left.len(), 1, "no temporary file stays");
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_overwritten() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("f");
        for (old, new) in [
            ("old", "new and longer"),
            ("old and longer", "new"),
            ("o", ""),
        ] {
            fs::write(&file, old).unwrap();
            let opened = fs::OpenOptions::new().write(true).open(&file).unwrap();
            overwrite(opened, new.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), new);
        }
    }

    /// In a directory that accepts no new file, the old one could only be overwritten. Root may
    /// write anywhere, so a file of another group stands in for the read-only directory.
    #[test]
    fn a_file_with_several_names_is_not_written_over() {
        let (home, guard) = scratch();
        let outside = home.path().join("bashrc");
        fs::write(&outside, "old").unwrap();
        let folder = guard.workspace().join("ro");
        fs::create_dir(&folder).unwrap();
        fs::hard_link(&outside, folder.join("hard")).unwrap();
        fs::write(folder.join("single"), "old").unwrap();
        let root = rustix::process::geteuid().is_root();
        if root {
            let other = rustix::process::Gid::from_raw(4321);
            for file in ["hard", "single"] {
                rustix::fs::chown(folder.join(file), None, Some(other)).unwrap();
            }
        } else {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
        }
        let result = write_text(&guard, "ro/hard", "PWNED");
        assert!(
            matches!(&result, write_result::Result::Error(no) if no.error.contains("hard links")),
            "{result:?}"
        );
        assert_eq!(fs::read_to_string(&outside).unwrap(), "old");
        let result = write_text(&guard, "ro/single", "new");
        assert!(
            matches!(result, write_result::Result::Success(_)),
            "{result:?}"
        );
        assert_eq!(fs::read_to_string(folder.join("single")).unwrap(), "new");
        if !root {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn only_errors_of_creating_or_renaming_lead_to_overwriting() {
        let not_here =
            |errno: Errno| matches!(ReplaceError::naming(errno), ReplaceError::NotHere(_));
        assert!(not_here(Errno::ACCESS) && not_here(Errno::BUSY) && not_here(Errno::ROFS));
        for full in [Errno::NOSPC, Errno::DQUOT, Errno::FBIG, Errno::IO] {
            assert!(!not_here(full), "{full:?}");
        }
    }

    #[test]
    fn outside_is_refused_with_a_reason() {
        let (home, guard) = scratch();
        fs::write(home.path().join("o"), "o").unwrap();
        std::os::unix::fs::symlink("../o", guard.workspace().join("link")).unwrap();
        for path in ["../o", "link", "../new/deep"] {
            let result = write_text(&guard, path, "x");
            assert!(
                matches!(&result, write_result::Result::Rejected(r) if r.reason.contains("outside")),
                "{path}: {result:?}"
            );
        }
        assert_eq!(fs::read_to_string(home.path().join("o")).unwrap(), "o");
        assert!(!home.path().join("new").exists());
    }
}
