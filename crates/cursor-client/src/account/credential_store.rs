//! Logins stored on this machine, in files that only their owner can read: the login of
//! `cursor-sidecar login`, and renewed tokens of logins that a host stores itself.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value as Json, json};

use super::credential::{Credential, LoginTokens};
use super::key::ApiKey;
use super::keyring::{Keyring, KeyringError};
use super::refresh::RefreshEndpoint;
use crate::ClientOptions;
use crate::endpoint::Endpoints;
use foundation::private_files::{self, PrivateFileError};

const OWN_FILE: &str = "login.json";
/// How the names of files begin that replace it.
const OWN_PREFIX: &str = "login.";
/// No login is longer.
const PROBE_BYTES: usize = 16 * 1024;
const HOST_FILES: &str = "host-login-";
/// The version of files with tokens; files of version 1 contain an API key.
const VERSION: u64 = 2;
const KEY_VERSION: u64 = 1;
/// The version of files whose secrets are sealed with a key of the keyring.
const SEALED_VERSION: u64 = 3;
/// The members of a file that are secrets.
const SECRETS: [&str; 3] = ["accessToken", "refreshToken", "apiKey"];

/// A login on this machine.
#[derive(Debug, Clone)]
pub struct StoredLogin {
    /// The server that issued the credential; no other server accepts it.
    pub backend: String,
    /// The credential.
    pub credential: Credential,
    /// The email address of the user.
    pub email: Option<String>,
    /// When the user signed in, in milliseconds since 1970.
    pub created_ms: u64,
    /// When the tokens were issued, in milliseconds since 1970.
    pub issued_ms: u64,
    /// When an API key of an older version expires, in milliseconds since 1970. Tokens contain
    /// their expiry.
    pub key_expires_ms: Option<u64>,
    /// Where the tokens were renewed last.
    pub(super) refresh_endpoint: Option<RefreshEndpoint>,
    /// Whether the file is sealed with a key of the keyring.
    pub(super) is_sealed: bool,
}

/// A file with a login.
#[derive(Debug, Clone)]
pub(super) struct LoginFile {
    path: PathBuf,
    keyring: Keyring,
}

/// Why a login could not be read, written or deleted.
#[derive(Debug, thiserror::Error)]
pub enum LoginFileError {
    /// The file.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// A newer version wrote it.
    #[error(
        "{} was written by a newer version of cursor-sidecar; use that version, or sign in again with `cursor-sidecar login`",
        .0.display()
    )]
    Newer(PathBuf),
    /// The keyring that has the key of the file.
    #[error("{error}; without PI_CURSOR_KEYRING=on, a login is stored in a private file alone")]
    Keyring {
        /// What is wrong with it.
        error: KeyringError,
    },
}

impl From<KeyringError> for LoginFileError {
    fn from(error: KeyringError) -> Self {
        Self::Keyring { error }
    }
}

impl LoginFile {
    /// Returns the file of `cursor-sidecar login`; `None` without a state directory.
    pub(super) fn own(options: &ClientOptions) -> Option<Self> {
        Self::named(OWN_FILE, options)
    }

    /// Returns the file for renewed tokens of an account whose login a host stores.
    pub(super) fn of_host(options: &ClientOptions, account: &str) -> Option<Self> {
        Self::named(&format!("{HOST_FILES}{account}.json"), options)
    }

    fn named(name: &str, options: &ClientOptions) -> Option<Self> {
        Some(Self {
            path: options.state_dir.as_ref()?.join(name),
            keyring: options.keyring.clone(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Returns the login in the file; `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<StoredLogin>, LoginFileError> {
        let Some(text) = private_files::read_secret(&self.path)? else {
            return Ok(None);
        };
        let damaged = |problem: &str| PrivateFileError::Damaged {
            path: self.path.clone(),
            problem: problem.into(),
        };
        let mut json: Json =
            serde_json::from_str(&text).map_err(|_| damaged("not a login file"))?;
        let is_sealed = json["version"] == SEALED_VERSION;
        if is_sealed {
            self.unseal(&mut json)?;
        } else if json["version"].as_u64() > Some(SEALED_VERSION) {
            return Err(LoginFileError::Newer(self.path.clone()));
        }
        let mut login = StoredLogin::parse(&json).ok_or_else(|| damaged("not a login file"))?;
        login.is_sealed = is_sealed;
        login.credential.learn();
        Ok(Some(login))
    }

    pub(super) fn write(&self, login: &StoredLogin) -> Result<(), LoginFileError> {
        let mut json = login.to_json();
        if login.is_sealed {
            self.seal(&mut json)?;
        }
        private_files::write(&self.path, format!("{json:#}\n").as_bytes())?;
        Ok(())
    }

    /// Replaces the secrets by one sealed text.
    fn seal(&self, json: &mut Json) -> Result<(), KeyringError> {
        let mut secrets = serde_json::Map::new();
        for name in SECRETS {
            let secret = json[name].take();
            secrets.insert(name.to_owned(), secret);
        }
        let owner = json["backendUrl"].as_str().unwrap_or_default();
        let text = SecretString::from(Json::from(secrets).to_string());
        let sealed = self.keyring.seal(self.folder(), owner, &text)?;
        json["form"] = json["version"].take();
        json["version"] = json!(SEALED_VERSION);
        json["sealed"] = json!(sealed);
        Ok(())
    }

    fn unseal(&self, json: &mut Json) -> Result<(), KeyringError> {
        let owner = json["backendUrl"].as_str().unwrap_or_default();
        let sealed = json["sealed"].as_str().unwrap_or_default();
        let text = self.keyring.open(self.folder(), owner, sealed)?;
        let secrets: Json =
            serde_json::from_str(text.expose_secret()).map_err(|_| KeyringError::WrongKey)?;
        for name in SECRETS {
            json[name] = secrets[name].clone();
        }
        json["version"] = json["form"].take();
        Ok(())
    }
}

fn no_state_dir() -> PrivateFileError {
    PrivateFileError::Io {
        doing: "write",
        path: OWN_FILE.into(),
        cause: std::io::Error::other("there is no state directory; set PI_CURSOR_STATE_DIR"),
    }
}

/// Deletes a file. Returns whether there was one.
fn remove(path: &Path) -> Result<bool, PrivateFileError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(PrivateFileError::Io {
            doing: "remove",
            path: path.to_owned(),
            cause,
        }),
    }
}

pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl StoredLogin {
    /// Creates a login of now.
    pub(super) fn new(backend: String, tokens: LoginTokens, email: Option<String>) -> Self {
        let now = unix_ms(SystemTime::now());
        Self {
            backend,
            credential: Credential::Login(tokens),
            email,
            created_ms: now,
            issued_ms: now,
            key_expires_ms: None,
            refresh_endpoint: None,
            is_sealed: false,
        }
    }

    /// Returns the login of `cursor-sidecar login` for the configured server, unless it has
    /// expired and cannot be renewed.
    pub fn load(options: &ClientOptions) -> Result<Option<Self>, LoginFileError> {
        let Some(file) = LoginFile::own(options) else {
            return Ok(None);
        };
        let login = file.read()?;
        let is_current_server = |login: &Self| {
            Endpoints::resolve(&options.endpoints)
                .is_ok_and(|endpoints| endpoints.backend.to_string() == login.backend)
        };
        let now = SystemTime::now();
        Ok(login.filter(|login| is_current_server(login) && !login.has_ended(now)))
    }

    /// Whether the login has expired and cannot be renewed.
    fn has_ended(&self, now: SystemTime) -> bool {
        match &self.credential {
            Credential::Key(_) => self
                .key_expires_ms
                .is_some_and(|expires| expires <= unix_ms(now)),
            Credential::Login(tokens) => {
                tokens.refresh.is_none() && tokens.expires().is_some_and(|expiry| expiry <= now)
            }
        }
    }

    /// Returns when the login ends unless it is renewed.
    pub fn expires(&self) -> Option<SystemTime> {
        match &self.credential {
            Credential::Key(_) => {
                let expires = self.key_expires_ms?;
                UNIX_EPOCH.checked_add(Duration::from_millis(expires))
            }
            Credential::Login(tokens) => tokens.expires(),
        }
    }

    /// Returns an error if a login could not be stored, so that none is begun in vain.
    pub fn prepare(options: &ClientOptions) -> Result<(), LoginFileError> {
        let file = LoginFile::own(options).ok_or_else(no_state_dir)?;
        // Creates the folder, and a file in it. It does not matter whether another process has the lock.
        private_files::try_lock(&file.path)?;
        // A full disk takes empty files.
        let probe = file.folder().join(format!(".probe-{}", std::process::id()));
        let written = private_files::write(&probe, &[0; PROBE_BYTES]);
        // A leftover would do no harm.
        let _ = std::fs::remove_file(&probe);
        written?;
        if options.keyring.seals_logins {
            options.keyring.prepare(file.folder())?;
        }
        Ok(())
    }

    /// Stores the login and replaces an earlier one. The user's choice decides whether it is
    /// sealed; when its tokens are renewed, it stays as it is.
    pub fn save(&self, options: &ClientOptions) -> Result<(), LoginFileError> {
        let file = LoginFile::own(options).ok_or_else(no_state_dir)?;
        file.write(&Self {
            is_sealed: options.keyring.seals_logins,
            ..self.clone()
        })
    }

    /// Deletes the stored login and renewed tokens of hosts. Returns whether there was a login.
    pub fn delete(options: &ClientOptions) -> Result<bool, LoginFileError> {
        let Some(folder) = &options.state_dir else {
            return Ok(false);
        };
        let file = folder.join(OWN_FILE);
        let text = private_files::read_secret(&file).ok().flatten();
        let json: Option<Json> = text.and_then(|text| serde_json::from_str(&text).ok());
        let is_sealed = json.is_some_and(|json| json["version"] == SEALED_VERSION);
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_of_host = name.starts_with(HOST_FILES);
            // A process that was killed while it wrote leaves a file with tokens.
            let is_unfinished = name.starts_with(OWN_PREFIX) && name.ends_with(".new");
            // Locks contain nothing, and another process may hold one.
            if (is_of_host || is_unfinished) && !name.ends_with(".lock") {
                remove(&entry.path())?;
            }
        }
        let removed = remove(&file)?;
        if is_sealed && let Err(error) = options.keyring.remove(folder) {
            // Without the file, the key opens nothing.
            tracing::debug!(%error, "login.key_not_removed");
        }
        Ok(removed)
    }

    fn to_json(&self) -> Json {
        let mut json = json!({
            "version": VERSION,
            "backendUrl": self.backend,
            "email": self.email,
            "createdAtMs": self.created_ms,
        });
        match &self.credential {
            Credential::Key(key) => {
                json["version"] = json!(KEY_VERSION);
                json["apiKey"] = json!(key.secret().expose_secret());
                json["apiKeyExpiresAtMs"] = json!(self.key_expires_ms);
            }
            Credential::Login(tokens) => {
                let refresh = tokens.refresh.as_ref().map(|token| token.expose_secret());
                json["accessToken"] = json!(tokens.access.expose_secret());
                json["refreshToken"] = json!(refresh);
                json["issuedAtMs"] = json!(self.issued_ms);
                json["refreshEndpoint"] = json!(self.refresh_endpoint.map(RefreshEndpoint::path));
            }
        }
        json
    }

    fn parse(json: &Json) -> Option<Self> {
        let text = |name: &str| json[name].as_str();
        let created_ms = json["createdAtMs"].as_u64()?;
        let mut login = Self {
            backend: text("backendUrl")?.into(),
            credential: match json["version"].as_u64()? {
                KEY_VERSION => Credential::Key(ApiKey::parse(text("apiKey")?).ok()?),
                VERSION => {
                    let tokens = LoginTokens::parse(text("accessToken")?, text("refreshToken"));
                    Credential::Login(tokens.ok()?)
                }
                _ => return None,
            },
            email: text("email").map(str::to_owned),
            created_ms,
            issued_ms: json["issuedAtMs"].as_u64().unwrap_or(created_ms),
            key_expires_ms: None,
            refresh_endpoint: text("refreshEndpoint").and_then(RefreshEndpoint::find),
            is_sealed: false,
        };
        if let Credential::Key(_) = login.credential {
            login.key_expires_ms = Some(json["apiKeyExpiresAtMs"].as_u64()?);
        }
        Some(login)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SECRET_TOOL: &str = r#"#!/bin/sh
key=$(dirname "$0")/key
case $1 in
store) cat > "$key" ;;
lookup) test -e "$key" && cat "$key" ;;
esac
"#;

    #[test]
    fn a_sealed_login_stays_sealed_when_it_is_stored_again() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("secret-tool");
        std::fs::write(&program, SECRET_TOOL).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut options = ClientOptions {
            state_dir: Some(root.path().join("state")),
            ..ClientOptions::default()
        };
        let path = format!("{}:/usr/bin:/bin", root.path().display());
        options.keyring.seals_logins = true;
        options.keyring.environment = vec![
            ("PATH".into(), path),
            (
                "DBUS_SESSION_BUS_ADDRESS".into(),
                "unix:path=/nowhere".into(),
            ),
        ];
        let tokens = LoginTokens::parse("a-token", Some("r-token")).unwrap();
        let login = StoredLogin::new("https://api2.cursor.sh".into(), tokens, None);
        login.save(&options).unwrap();
        // Renewed by a process without the setting.
        options.keyring.seals_logins = false;
        let file = LoginFile::own(&options).unwrap();
        let mut stored = file.read().unwrap().unwrap();
        assert!(stored.credential.same(&login.credential));
        let renewed = LoginTokens::parse("b-token", Some("s-token")).unwrap();
        stored.credential = Credential::Login(renewed);
        file.write(&stored).unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(
            text.contains("sealed") && !text.contains("-token"),
            "{text}"
        );
        let read = file.read().unwrap().unwrap();
        assert!(read.credential.same(&stored.credential));
        // Two files of one text differ, because each has a nonce of its own.
        file.write(&stored).unwrap();
        assert_ne!(std::fs::read_to_string(file.path()).unwrap(), text);
    }
}
