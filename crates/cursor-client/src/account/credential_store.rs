//! The login stored on this machine: an API key in a file that only its owner can read.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};

use super::key::{ApiKey, KeyError};
use crate::ClientOptions;
use crate::endpoint::Endpoints;
use foundation::private_files::{self, PrivateFileError};

const FILE: &str = "login.json";
const VERSION: u64 = 1;

/// Placeholders that hosts send when they have no key of their own; the environment's is used.
const PLACEHOLDERS: [&str; 4] = [
    "cursor-key-not-given-to-pi",
    "CURSOR_API_KEY",
    "$CURSOR_API_KEY",
    "${CURSOR_API_KEY}",
];

/// A key that a browser login created.
#[derive(Debug, Clone)]
pub struct StoredLogin {
    /// The server that issued the key; no other server accepts it.
    pub backend: String,
    /// The key.
    pub key: ApiKey,
    /// The email address of the user.
    pub email: Option<String>,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Expiry time, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// Where a key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// The host sent it.
    Host,
    /// `CURSOR_API_KEY`.
    Environment,
    /// A browser login on this machine.
    Login,
}

/// Returns the key to use: the host's, else the user's own, else that of a stored login for
/// this server.
pub fn find_key(
    given: Option<&str>,
    options: &ClientOptions,
) -> Result<(ApiKey, KeySource), KeyError> {
    let is_set = |key: &str| !key.trim().is_empty() && !PLACEHOLDERS.contains(&key);
    if let Some(key) = given.filter(|key| is_set(key)) {
        return Ok((ApiKey::parse(key)?, KeySource::Host));
    }
    let own = options.api_key.as_ref().map(|key| key.expose_secret());
    if let Some(key) = own.filter(|key| is_set(key)) {
        return Ok((ApiKey::parse(key)?, KeySource::Environment));
    }
    match StoredLogin::load(options) {
        Ok(Some(login)) => Ok((login.key, KeySource::Login)),
        Ok(None) => Err(KeyError::Missing),
        Err(error) => {
            tracing::warn!("{error}");
            Err(KeyError::Missing)
        }
    }
}

fn file(options: &ClientOptions) -> Option<PathBuf> {
    Some(options.state_dir.as_ref()?.join(FILE))
}

impl StoredLogin {
    /// Returns the login for the configured server, unless it has expired.
    pub fn load(options: &ClientOptions) -> Result<Option<Self>, PrivateFileError> {
        let Some(path) = file(options) else {
            return Ok(None);
        };
        let Some(text) = private_files::read_secret(&path)? else {
            return Ok(None);
        };
        let login = Self::parse(&text).ok_or_else(|| PrivateFileError::Damaged {
            path,
            problem: "not a login file of this version".into(),
        })?;
        foundation::secrets().learn(login.key.secret());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis() as u64);
        let is_current_server = Endpoints::resolve(&options.endpoints)
            .is_ok_and(|endpoints| endpoints.backend.to_string() == login.backend);
        Ok(Some(login).filter(|login| is_current_server && now < login.expires_ms))
    }

    /// Stores the login and replaces an earlier one.
    pub fn save(&self, options: &ClientOptions) -> Result<(), PrivateFileError> {
        let Some(path) = file(options) else {
            return Err(PrivateFileError::Io {
                doing: "write",
                path: FILE.into(),
                cause: std::io::Error::other(
                    "there is no state directory; set PI_CURSOR_STATE_DIR",
                ),
            });
        };
        let login = json!({
            "version": VERSION,
            "backendUrl": self.backend,
            "apiKey": self.key.secret().expose_secret(),
            "apiKeyExpiresAtMs": self.expires_ms,
            "email": self.email,
            "createdAtMs": self.created_ms,
        });
        private_files::write(&path, format!("{login:#}\n").as_bytes())
    }

    /// Deletes the stored login. Returns whether there was one.
    pub fn delete(options: &ClientOptions) -> Result<bool, PrivateFileError> {
        let Some(path) = file(options) else {
            return Ok(false);
        };
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(cause) => Err(PrivateFileError::Io {
                doing: "remove",
                path,
                cause,
            }),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let json: Json = serde_json::from_str(text).ok()?;
        (json["version"] == VERSION).then_some(())?;
        Some(Self {
            backend: json["backendUrl"].as_str()?.into(),
            key: ApiKey::parse(json["apiKey"].as_str()?).ok()?,
            email: json["email"].as_str().map(str::to_owned),
            created_ms: json["createdAtMs"].as_u64()?,
            expires_ms: json["apiKeyExpiresAtMs"].as_u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_used_for_its_server_until_it_expires() {
        let root = tempfile::tempdir().unwrap();
        let options = ClientOptions {
            state_dir: Some(root.path().to_owned()),
            ..ClientOptions::default()
        };
        assert_eq!(find_key(None, &options).unwrap_err(), KeyError::Missing);
        let login = StoredLogin {
            backend: "https://api2.cursor.sh".into(),
            key: ApiKey::parse("crsr_login").unwrap(),
            email: Some("a@b.c".into()),
            created_ms: 1,
            expires_ms: u64::MAX,
        };
        login.save(&options).unwrap();
        let source =
            |given, options: &ClientOptions| find_key(given, options).map(|(_, source)| source);
        assert_eq!(source(None, &options), Ok(KeySource::Login));
        assert_eq!(source(Some(" "), &options), Ok(KeySource::Login));
        assert_eq!(
            source(Some(PLACEHOLDERS[0]), &options),
            Ok(KeySource::Login)
        );
        assert_eq!(source(Some("crsr_x"), &options), Ok(KeySource::Host));
        let keyed = ClientOptions {
            api_key: Some("crsr_env".into()),
            ..options.clone()
        };
        assert_eq!(source(None, &keyed), Ok(KeySource::Environment));
        let mut elsewhere = options.clone();
        elsewhere.endpoints.backend = Some("http://127.0.0.1:9".into());
        assert_eq!(source(None, &elsewhere), Err(KeyError::Missing));
        let expired = StoredLogin {
            expires_ms: 2,
            ..login
        };
        expired.save(&options).unwrap();
        assert_eq!(source(None, &options), Err(KeyError::Missing));
        assert!(StoredLogin::delete(&options).unwrap());
        assert!(!StoredLogin::delete(&options).unwrap());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_yields_no_key() {
        let root = tempfile::tempdir().unwrap();
        let options = ClientOptions {
            state_dir: Some(root.path().to_owned()),
            ..ClientOptions::default()
        };
        private_files::write(&root.path().join(FILE), b"{}").unwrap();
        let error = StoredLogin::load(&options).unwrap_err().to_string();
        assert!(error.contains("login.json is damaged"), "{error}");
        // A key that other users can read is not used.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(root.path().join(FILE), open).unwrap();
        let error = StoredLogin::load(&options).unwrap_err().to_string();
        assert!(error.contains("other users can read it"), "{error}");
        assert_eq!(find_key(None, &options).unwrap_err(), KeyError::Missing);
    }
}
