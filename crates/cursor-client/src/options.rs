//! The options of this crate. Its user reads them from its configuration.

use std::path::PathBuf;

use secrecy::SecretString;

use crate::account::Keyring;
use crate::endpoint::EndpointOptions;
use crate::headers::Identity;
use crate::http_clients::TrustRoots;
use crate::http_version::Preference;

/// How to connect to Cursor, and as whom. `Debug` does not show the key.
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    /// The servers.
    pub endpoints: EndpointOptions,
    /// Certificates trusted besides the system's.
    pub trust: TrustRoots,
    /// How the client identifies itself.
    pub identity: Identity,
    /// The HTTP version of runs.
    pub http_version: Preference,
    /// The user's API key (`CURSOR_API_KEY`), as it was given.
    pub api_key: Option<SecretString>,
    /// The user's access token (`CURSOR_ACCESS_TOKEN`), as it was given.
    pub access_token: Option<SecretString>,
    /// Files that may contain the login of the Cursor CLI; empty unless the user permits its use.
    pub cli_logins: Vec<PathBuf>,
    /// The state directory, which contains the stored login; `None` if there is none.
    pub state_dir: Option<PathBuf>,
    /// The keyring with the key of the stored login.
    pub keyring: Keyring,
}
