//! Builds a backend from its options: endpoints, TLS trust, client identity, API key.

use std::sync::Arc;

use super::backend::Backend;
use cursor_client::ClientOptions;
use cursor_client::account::{
    Account, Credential, CredentialSource, Dashboard, HttpExchange, KeyError, LoginExchange,
    find_credential,
};
use cursor_client::endpoint::{EndpointError, Endpoints};
use cursor_client::http_clients::Http;
use cursor_client::http_version::Choice;
use cursor_proto::drift::Drift;

/// Why a backend could not be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// An endpoint is invalid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No usable key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Backend {
    /// Builds a backend for the user's own credential. Opens no connection and reads no certificate yet.
    /// Must be called inside a Tokio runtime.
    pub fn new(options: &ClientOptions) -> Result<Self, AssembleError> {
        let (credential, source) = find_credential(None, options)?;
        Self::with_credential(credential, source, options)
    }

    /// Builds a backend for the given credential, like [`new`](Self::new).
    pub fn with_credential(
        credential: Credential,
        source: CredentialSource,
        options: &ClientOptions,
    ) -> Result<Self, AssembleError> {
        let endpoints = Endpoints::resolve(&options.endpoints)?;
        credential.learn();
        let http = Arc::new(Http::new(options.trust.clone()));
        let base = endpoints.backend.clone();
        let account = match credential {
            Credential::Key(key) => Account::start(HttpExchange {
                http: Arc::clone(&http),
                base,
                key,
            }),
            Credential::Login(tokens) => {
                let http = Arc::clone(&http);
                Account::start(LoginExchange::new(http, base, tokens, source, options))
            }
        };
        Ok(Self {
            http,
            drift: Arc::new(Drift::default()),
            endpoints,
            identity: options.identity.clone(),
            choice: Arc::new(Choice::new(options.http_version)),
            account,
        })
    }

    /// Returns a client of the account service.
    pub fn dashboard(&self) -> Dashboard {
        Dashboard::new(
            Arc::clone(&self.http),
            self.endpoints.backend.clone(),
            self.identity.clone(),
        )
    }
}

/// Returns a client of the account service that needs no key, and the endpoints in use.
pub fn dashboard(options: &ClientOptions) -> Result<(Dashboard, Endpoints), AssembleError> {
    let endpoints = Endpoints::resolve(&options.endpoints)?;
    let http = Arc::new(Http::new(options.trust.clone()));
    let dashboard = Dashboard::new(http, endpoints.backend.clone(), options.identity.clone());
    Ok((dashboard, endpoints))
}
