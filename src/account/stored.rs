//! The login kept on this machine: an API key in a file only its owner can read.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};

use super::key::{ApiKey, KeyError};
use crate::diag::place;
use crate::diag::private::{self, StoreError};
use crate::wire::endpoint::Endpoints;

const FILE: &str = "login.json";
const VERSION: u64 = 1;

/// What hosts put in the place of a key they do not have: the environment's is meant.
const PLACEHOLDERS: [&str; 4] = [
    "cursor-key-not-given-to-pi",
    "CURSOR_API_KEY",
    "$CURSOR_API_KEY",
    "${CURSOR_API_KEY}",
];

/// A key that a browser login made.
#[derive(Debug, Clone)]
pub struct StoredLogin {
    /// The server that made it; of no use anywhere else.
    pub backend: String,
    /// The key.
    pub key: ApiKey,
    /// Whose it is.
    pub email: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: u64,
    /// Until when it is good.
    pub expires_ms: u64,
}

/// Where a key came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySource {
    /// The host gave it.
    Host,
    /// `CURSOR_API_KEY`.
    Environment,
    /// A browser login on this machine.
    Login,
}

/// The key to use: the host's, the environment's, else that of a login for this server.
pub fn find_key(
    given: Option<&str>,
    env: &impl Fn(&str) -> Option<String>,
    home: Option<&Path>,
) -> Result<(ApiKey, KeySource), KeyError> {
    let said = |key: &str| !key.trim().is_empty() && !PLACEHOLDERS.contains(&key);
    if let Some(key) = given.filter(|key| said(key)) {
        return Ok((ApiKey::parse(key)?, KeySource::Host));
    }
    if let Some(key) = env("CURSOR_API_KEY").filter(|key| said(key)) {
        return Ok((ApiKey::parse(&key)?, KeySource::Environment));
    }
    match StoredLogin::load(env, home) {
        Ok(Some(login)) => Ok((login.key, KeySource::Login)),
        Ok(None) => Err(KeyError::Missing),
        Err(error) => {
            tracing::warn!("{error}");
            Err(KeyError::Missing)
        }
    }
}

fn file(env: &impl Fn(&str) -> Option<String>, home: Option<&Path>) -> Option<PathBuf> {
    Some(place::state_dir(env, home)?.join(FILE))
}

impl StoredLogin {
    /// The login for the server in force, unless it is over.
    pub fn load(
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<Option<Self>, StoreError> {
        let Some(path) = file(env, home) else {
            return Ok(None);
        };
        let Some(text) = private::read_secret(&path)? else {
            return Ok(None);
        };
        let login = Self::parse(&text).ok_or_else(|| StoreError::Damaged {
            path,
            problem: "it is no login of this version".into(),
        })?;
        crate::diag::secrets().learn(login.key.secret());
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis() as u64);
        let here = Endpoints::resolve(env, home)
            .is_ok_and(|endpoints| endpoints.backend.to_string() == login.backend);
        Ok(Some(login).filter(|login| here && now < login.expires_ms))
    }

    /// Keeps the login; one from before is replaced.
    pub fn save(
        &self,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<(), StoreError> {
        let Some(path) = file(env, home) else {
            return Err(StoreError::Io {
                doing: "write",
                path: FILE.into(),
                cause: std::io::Error::other("there is no state folder; set PI_CURSOR_STATE_DIR"),
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
        private::write(&path, format!("{login:#}\n").as_bytes())
    }

    /// Forgets the login of this machine. Gives whether there was one.
    pub fn forget(
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<Forgotten, StoreError> {
        let Some(path) = file(env, home) else {
            return Ok(Forgotten::Nothing);
        };
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(Forgotten::Login),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Forgotten::Nothing),
            Err(cause) => Err(StoreError::Io {
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

/// What forgetting came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// There was a login.
    Login,
    /// There was none.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_kept_for_its_server_and_its_time() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().display().to_string();
        let with = |pairs: &[(&'static str, &'static str)]| {
            let (pairs, folder) = (pairs.to_vec(), folder.clone());
            move |name: &str| match name {
                "PI_CURSOR_STATE_DIR" => Some(folder.clone()),
                name => pairs
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| (*value).to_owned()),
            }
        };
        let env = with(&[]);
        assert_eq!(find_key(None, &env, None).unwrap_err(), KeyError::Missing);
        let login = StoredLogin {
            backend: "https://api2.cursor.sh".into(),
            key: ApiKey::parse("crsr_login").unwrap(),
            email: Some("a@b.c".into()),
            created_ms: 1,
            expires_ms: u64::MAX,
        };
        login.save(&env, None).unwrap();
        let source = |given, env: &dyn Fn(&str) -> Option<String>| {
            find_key(given, &|name: &str| env(name), None).map(|(_, source)| source)
        };
        assert_eq!(source(None, &env), Ok(KeySource::Login));
        assert_eq!(source(Some(" "), &env), Ok(KeySource::Login));
        assert_eq!(source(Some(PLACEHOLDERS[0]), &env), Ok(KeySource::Login));
        assert_eq!(source(Some("crsr_x"), &env), Ok(KeySource::Host));
        let keyed = with(&[("CURSOR_API_KEY", "crsr_env")]);
        assert_eq!(source(None, &keyed), Ok(KeySource::Environment));
        let elsewhere = with(&[("CURSOR_BACKEND_URL", "http://127.0.0.1:9")]);
        assert_eq!(source(None, &elsewhere), Err(KeyError::Missing));
        let over = StoredLogin {
            expires_ms: 2,
            ..login
        };
        over.save(&env, None).unwrap();
        assert_eq!(source(None, &env), Err(KeyError::Missing));
        assert_eq!(StoredLogin::forget(&env, None).unwrap(), Forgotten::Login);
        assert_eq!(StoredLogin::forget(&env, None).unwrap(), Forgotten::Nothing);
    }

    #[test]
    fn a_damaged_file_is_told_and_is_no_key() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().display().to_string();
        let env = |name: &str| (name == "PI_CURSOR_STATE_DIR").then(|| folder.clone());
        private::write(&root.path().join(FILE), b"{}").unwrap();
        let error = StoredLogin::load(&env, None).unwrap_err().to_string();
        assert!(error.contains("login.json is damaged"), "{error}");
        // A key that others could read is not used either.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(root.path().join(FILE), open).unwrap();
        let error = StoredLogin::load(&env, None).unwrap_err().to_string();
        assert!(error.contains("other users can read it"), "{error}");
        assert_eq!(find_key(None, &env, None).unwrap_err(), KeyError::Missing);
    }
}
