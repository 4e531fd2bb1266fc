//! A backend from the environment: addresses, trust, identity, key.

use std::path::Path;
use std::sync::Arc;

use http::HeaderValue;

use super::backend::Backend;
use crate::account::{Account, ApiKey, Dashboard, HttpExchange, KeyError, find_key};
use crate::diag::settings::{self, Warning};
use crate::wire::choice::{Choice, Preference};
use crate::wire::drift::Drift;
use crate::wire::endpoint::{EndpointError, Endpoints};
use crate::wire::headers::{Checksum, HttpVersion, Identity, Privacy};
use crate::wire::http::{Http, Trust};

/// Why there is no backend to talk to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// An address cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No usable key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Backend {
    /// Reads every setting a backend has. Nothing is contacted and no certificate read yet.
    /// Must be called inside a Tokio runtime.
    pub fn from_env(
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<(Self, Vec<Warning>), AssembleError> {
        let endpoints = Endpoints::resolve(env, home)?;
        let (key, _) = find_key(None, env, home)?;
        Ok(Self::assemble(endpoints, key, env))
    }

    /// The backend at `endpoints` for a key.
    pub fn with_key(
        key: ApiKey,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<(Self, Vec<Warning>), AssembleError> {
        Ok(Self::assemble(Endpoints::resolve(env, home)?, key, env))
    }

    /// What of those settings is not understood.
    pub fn misread(env: &impl Fn(&str) -> Option<String>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        preference(env, &mut warnings);
        identity(env, &mut warnings);
        warnings
    }

    fn assemble(
        endpoints: Endpoints,
        key: ApiKey,
        env: &impl Fn(&str) -> Option<String>,
    ) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        crate::diag::secrets().learn(key.secret());
        let http = Arc::new(Http::new(Trust::from_env(env)));
        let preference = preference(env, &mut warnings);
        let identity = identity(env, &mut warnings);
        let account = Account::start(HttpExchange {
            http: Arc::clone(&http),
            base: endpoints.backend.clone(),
            key,
        });
        let backend = Self {
            http,
            drift: Arc::new(Drift::default()),
            endpoints,
            identity,
            choice: Arc::new(Choice::new(preference)),
            account,
        };
        (backend, warnings)
    }

    /// The account's own service.
    pub fn dashboard(&self) -> Dashboard {
        Dashboard::new(
            Arc::clone(&self.http),
            self.endpoints.backend.clone(),
            self.identity.clone(),
        )
    }
}

/// The account's own service for somebody who has no key yet, and the addresses in force.
pub fn dashboard(
    env: &impl Fn(&str) -> Option<String>,
    home: Option<&Path>,
) -> Result<(Dashboard, Endpoints), AssembleError> {
    let endpoints = Endpoints::resolve(env, home)?;
    let http = Arc::new(Http::new(Trust::from_env(env)));
    // Settings that are not understood are told by the first turn.
    let identity = identity(env, &mut Vec::new());
    let dashboard = Dashboard::new(http, endpoints.backend.clone(), identity);
    Ok((dashboard, endpoints))
}

fn preference(env: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<Warning>) -> Preference {
    settings::choose(
        env,
        "PI_CURSOR_HTTP",
        &[
            ("auto", Preference::Auto),
            ("1", Preference::Always(HttpVersion::Http1)),
            ("2", Preference::Always(HttpVersion::Http2)),
        ],
        Preference::Auto,
        warnings,
    )
}

fn identity(env: &impl Fn(&str) -> Option<String>, warnings: &mut Vec<Warning>) -> Identity {
    let default = Identity::default();
    Identity {
        client_type: word(env, "PI_CURSOR_CLIENT_TYPE", default.client_type, warnings),
        client_version: word(
            env,
            "PI_CURSOR_CLIENT_VERSION",
            default.client_version,
            warnings,
        ),
        privacy: settings::choose(
            env,
            "PI_CURSOR_GHOST_MODE",
            &[("true", Privacy::Ghost), ("false", Privacy::Shared)],
            default.privacy,
            warnings,
        ),
        checksum: settings::choose(
            env,
            "PI_CURSOR_CHECKSUM",
            &[("off", Checksum::Off), ("on", Checksum::Token)],
            default.checksum,
            warnings,
        ),
    }
}

/// A header value of visible characters.
fn word(
    env: &impl Fn(&str) -> Option<String>,
    name: &str,
    default: HeaderValue,
    warnings: &mut Vec<Warning>,
) -> HeaderValue {
    let Some(text) = env(name).filter(|text| !text.is_empty()) else {
        return default;
    };
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    match HeaderValue::from_str(&text) {
        Ok(value) if visible => value,
        _ => {
            if let Some(setting) = settings::find(name) {
                warnings.push(Warning::Value {
                    name: setting.name,
                    value: text,
                    expected: setting.values,
                    default: setting.default,
                });
            }
            default
        }
    }
}
