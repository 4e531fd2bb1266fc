//! Where credentials come from, in the order in which they are used.

use std::path::PathBuf;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Json;

use super::credential::{Credential, LoginTokens};
use super::credential_store::StoredLogin;
use super::key::{ApiKey, KeyError};
use crate::ClientOptions;

/// Placeholders that hosts send when they have no key of their own; the environment's is used.
pub(super) const PLACEHOLDERS: [&str; 4] = [
    "cursor-key-not-given-to-pi",
    "CURSOR_API_KEY",
    "$CURSOR_API_KEY",
    "${CURSOR_API_KEY}",
];

/// Where a credential came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialSource {
    /// The host sent it: its own option, or what its user stored there.
    Host,
    /// `CURSOR_API_KEY`.
    Environment,
    /// `CURSOR_ACCESS_TOKEN`.
    AccessToken,
    /// A browser login on this machine.
    Login,
    /// The login of the Cursor CLI, if the user permits it.
    CursorCli,
}

impl CredentialSource {
    /// The sources besides the host, in their order.
    pub const OWN: [Self; 4] = [
        Self::Environment,
        Self::AccessToken,
        Self::Login,
        Self::CursorCli,
    ];
}

/// Returns the credential to use: the host's, else that of the first of
/// [`CredentialSource::OWN`] that has one.
pub fn find_credential(
    given: Option<&str>,
    options: &ClientOptions,
) -> Result<(Credential, CredentialSource), KeyError> {
    if let Some(text) = given.filter(|text| is_set(text)) {
        return Ok((Credential::parse(text)?, CredentialSource::Host));
    }
    let mut unusable = None;
    for source in CredentialSource::OWN {
        match credential_of(source, options) {
            // The login of the Cursor CLI may still be there.
            Some(Err(error @ KeyError::StoredLogin(_))) => unusable = Some(error),
            Some(credential) => return Ok((credential?, source)),
            None => {}
        }
    }
    Err(unusable.unwrap_or(KeyError::Missing))
}

/// Returns the credential of one of the user's own sources; `None` if it has none.
pub fn credential_of(
    source: CredentialSource,
    options: &ClientOptions,
) -> Option<Result<Credential, KeyError>> {
    let set = |secret: &Option<SecretString>| {
        let text = secret.as_ref().map(|secret| secret.expose_secret());
        text.filter(|text| is_set(text)).map(str::to_owned)
    };
    match source {
        CredentialSource::Host => None,
        CredentialSource::Environment => {
            let key = set(&options.api_key)?;
            Some(ApiKey::parse(&key).map(Credential::Key))
        }
        CredentialSource::AccessToken => {
            let token = set(&options.access_token)?;
            Some(LoginTokens::parse(&token, None).map(Credential::Login))
        }
        CredentialSource::Login => match StoredLogin::load(options) {
            Ok(login) => Some(Ok(login?.credential)),
            Err(error) => Some(Err(KeyError::StoredLogin(error.to_string()))),
        },
        CredentialSource::CursorCli => cli_login(&options.cli_logins).map(Ok),
    }
}

fn is_set(text: &str) -> bool {
    !text.trim().is_empty() && !PLACEHOLDERS.contains(&text)
}

/// Returns the login of the Cursor CLI. Its refresh token is not used, because renewing would
/// sign the CLI out.
pub(super) fn cli_login(files: &[PathBuf]) -> Option<Credential> {
    let text = files.iter().find_map(read)?;
    let json: Json = serde_json::from_str(&text).ok()?;
    let text = |name: &str| json[name].as_str().filter(|text| !text.is_empty());
    let tokens = text("accessToken").and_then(|token| LoginTokens::parse(token, None).ok());
    let credential = match tokens {
        Some(tokens) => Credential::Login(tokens),
        None => Credential::Key(ApiKey::parse(text("apiKey")?).ok()?),
    };
    credential.learn();
    Some(credential)
}

fn read(file: &PathBuf) -> Option<String> {
    match std::fs::metadata(file) {
        Ok(about) if about.is_file() && about.len() < 1024 * 1024 => {}
        _ => return None,
    }
    std::fs::read_to_string(file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use foundation::private_files;

    fn options(root: &tempfile::TempDir) -> ClientOptions {
        ClientOptions {
            state_dir: Some(root.path().to_owned()),
            ..ClientOptions::default()
        }
    }

    fn login() -> StoredLogin {
        let tokens = LoginTokens::parse("a-token", Some("r-token")).unwrap();
        StoredLogin::new("https://api2.cursor.sh".into(), tokens, None)
    }

    fn source(given: Option<&str>, options: &ClientOptions) -> Result<CredentialSource, KeyError> {
        find_credential(given, options).map(|(_, source)| source)
    }

    #[test]
    fn the_first_source_with_a_credential_is_used() {
        let root = tempfile::tempdir().unwrap();
        let mut options = options(&root);
        let file = root.path().join("auth.json");
        std::fs::write(&file, r#"{"accessToken":"cli-token"}"#).unwrap();
        assert_eq!(source(None, &options), Err(KeyError::Missing));
        options.cli_logins = vec!["/nowhere/auth.json".into(), file];
        assert_eq!(source(None, &options), Ok(CredentialSource::CursorCli));
        login().save(&options).unwrap();
        assert_eq!(source(None, &options), Ok(CredentialSource::Login));
        options.access_token = Some("token".into());
        assert_eq!(source(None, &options), Ok(CredentialSource::AccessToken));
        options.api_key = Some("crsr_env".into());
        assert_eq!(source(None, &options), Ok(CredentialSource::Environment));
        assert_eq!(
            source(Some(" "), &options),
            Ok(CredentialSource::Environment)
        );
        let placeholder = Some(PLACEHOLDERS[0]);
        assert_eq!(
            source(placeholder, &options),
            Ok(CredentialSource::Environment)
        );
        assert_eq!(source(Some("crsr_x"), &options), Ok(CredentialSource::Host));
    }

    #[test]
    fn a_login_is_used_for_its_server_and_of_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let options = options(&root);
        login().save(&options).unwrap();
        let mut elsewhere = options.clone();
        elsewhere.endpoints.backend = Some("http://127.0.0.1:9".into());
        assert_eq!(source(None, &elsewhere), Err(KeyError::Missing));
        let key = |expires_ms| StoredLogin {
            credential: Credential::Key(ApiKey::parse("crsr_login").unwrap()),
            key_expires_ms: Some(expires_ms),
            ..login()
        };
        key(u64::MAX).save(&options).unwrap();
        let (credential, _) = find_credential(None, &options).unwrap();
        assert!(matches!(credential, Credential::Key(_)));
        key(2).save(&options).unwrap();
        assert_eq!(source(None, &options), Err(KeyError::Missing));
        assert!(StoredLogin::delete(&options).unwrap());
        assert!(!StoredLogin::delete(&options).unwrap());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_yields_no_credential() {
        let root = tempfile::tempdir().unwrap();
        let options = options(&root);
        let file = root.path().join("login.json");
        private_files::write(&file, b"{}").unwrap();
        let error = StoredLogin::load(&options).unwrap_err().to_string();
        assert!(error.contains("login.json is damaged"), "{error}");
        // A key that other users can read is not used.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        std::fs::set_permissions(&file, open).unwrap();
        let error = StoredLogin::load(&options).unwrap_err().to_string();
        assert!(error.contains("other users can read it"), "{error}");
        let problem = Err(KeyError::StoredLogin(error));
        assert_eq!(source(None, &options), problem);
        // A file of the CLI is used all the same.
        let cli = root.path().join("auth.json");
        std::fs::write(&cli, r#"{"accessToken":"cli-token"}"#).unwrap();
        let options = ClientOptions {
            cli_logins: vec![cli],
            ..options
        };
        assert_eq!(source(None, &options), Ok(CredentialSource::CursorCli));
    }
}
