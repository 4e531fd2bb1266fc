//! The token that clients must send: the user's own, or one that is generated and stored in a
//! private file.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};

use foundation::private_files::{self, Exposure, PrivateFileError};
use foundation::state_dir::STATE_DIR;

/// The setting with the user's own token.
pub(super) const TOKEN: &str = "CURSOR_SIDECAR_GATEWAY_TOKEN";
/// Shorter tokens could be guessed.
const SHORTEST: usize = 16;
const FILE: &str = "gateway-token";

/// A token and where it is stored. `Debug` does not show it.
#[derive(Debug, Clone)]
pub struct Token {
    /// The token.
    pub secret: SecretString,
    /// The file that contains it, unless it comes from the environment.
    pub file: Option<PathBuf>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The user's own token is too weak.
    #[error("{TOKEN} must have at least {SHORTEST} visible ASCII characters and nothing else")]
    Weak,
    /// There is no folder for the file.
    #[error("there is no folder to keep a token in; set {TOKEN} or {STATE_DIR}")]
    Nowhere,
    /// The file cannot be used.
    #[error(transparent)]
    Store(#[from] private_files::PrivateFileError),
    /// No randomness to generate one.
    #[error("no source of randomness: {0}")]
    Random(#[from] getrandom::Error),
}

impl Token {
    /// Returns the user's own token, else the one in our file. Generates the file if needed, so
    /// that a client is configured once.
    pub fn find(own: Option<&SecretString>, state_dir: Option<&Path>) -> Result<Self, TokenError> {
        if let Some(own) = own {
            let secret = strong(own.expose_secret()).ok_or(TokenError::Weak)?;
            return Ok(Self::known(secret, None));
        }
        let folder = state_dir.ok_or(TokenError::Nowhere)?;
        let file = folder.join(FILE);
        let _lock = private_files::lock(&file)?;
        if let Some(secret) = kept(&file)? {
            return Ok(Self::known(secret, Some(file)));
        }
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let secret = SecretString::from(URL_SAFE_NO_PAD.encode(random));
        private_files::write(&file, format!("{}\n", secret.expose_secret()).as_bytes())?;
        Ok(Self::known(secret, Some(file)))
    }

    fn known(secret: SecretString, file: Option<PathBuf>) -> Self {
        foundation::secrets().learn(&secret);
        Self { secret, file }
    }
}

fn strong(text: &str) -> Option<SecretString> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    (visible && text.len() >= SHORTEST).then(|| text.into())
}

/// Returns the stored token, unless other users could have read it. A file of another user is an
/// error.
fn kept(file: &Path) -> Result<Option<SecretString>, TokenError> {
    match private_files::read_secret(file) {
        Ok(text) => Ok(text.as_deref().map(str::trim).and_then(strong)),
        Err(PrivateFileError::Exposed {
            path,
            exposure: Exposure::Readable | Exposure::Writable,
        }) if path == file => {
            tracing::warn!(
                "{} was readable by other users; generated a new token",
                file.display()
            );
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_generated_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        let find = || Token::find(None, Some(folder.path()));
        let first = find().unwrap();
        let file = first.file.clone().unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let same = |a: &Token, b: &Token| a.secret.expose_secret() == b.secret.expose_secret();
        assert!(same(&first, &find().unwrap()));
        assert!(!format!("{first:?}").contains(first.secret.expose_secret()));
        // A token that others could read is no longer secret.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!same(&first, &find().unwrap()));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// A pipe would block the gateway for ever; a link may lead to a file another user knows.
    #[test]
    fn a_token_file_that_is_not_a_regular_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let find = || Token::find(None, Some(folder.path()));
        let file = folder.path().join(FILE);
        std::fs::write(folder.path().join("known"), "0123456789abcdef").unwrap();
        std::os::unix::fs::symlink("known", &file).unwrap();
        let error = find().unwrap_err().to_string();
        assert!(error.contains("not a plain file"), "{error}");
        std::fs::remove_file(&file).unwrap();
        let mut made = std::process::Command::new("mkfifo");
        assert!(made.arg("-m600").arg(&file).status().unwrap().success());
        let error = find().unwrap_err().to_string();
        assert!(error.contains("not a plain file"), "{error}");
    }

    #[test]
    fn a_token_of_the_user_must_be_long_enough() {
        let find = |value: &str| Token::find(Some(&value.into()), None);
        let own = find("0123456789abcdef").unwrap();
        assert_eq!(own.secret.expose_secret(), "0123456789abcdef");
        assert_eq!(own.file, None);
        for weak in ["short", "0123456789abcde", "0123456789 abcdef"] {
            assert!(matches!(find(weak), Err(TokenError::Weak)), "{weak}");
        }
        assert!(matches!(Token::find(None, None), Err(TokenError::Nowhere)));
    }
}
