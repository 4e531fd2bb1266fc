//! The account and endpoints that a front end's turns use, built once per key.

use std::sync::{Mutex, PoisonError};

use agent::run::{AssembleError, Backend};
use cursor_client::ClientOptions;
use cursor_client::account::{Credential, CredentialSource, find_credential};

/// The backend in use.
#[derive(Default)]
pub(super) struct Backends(Mutex<Option<CachedBackend>>);

struct CachedBackend {
    credential: Credential,
    source: CredentialSource,
    backend: Backend,
}

impl Backends {
    /// Returns the backend for the host's credential, else for the user's own.
    pub(super) fn get(
        &self,
        given: Option<&str>,
        options: &ClientOptions,
    ) -> Result<(Credential, Backend), AssembleError> {
        let (credential, source) = find_credential(given, options)?;
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = &*cached {
            // A login of this machine renews its tokens itself.
            let is_renewed = source == CredentialSource::Login
                && cached.source == source
                && cached.credential.fingerprint() == credential.fingerprint();
            if is_renewed || cached.credential.same(&credential) {
                return Ok((credential, cached.backend.clone()));
            }
        }
        let backend = Backend::with_credential(credential.clone(), source, options)?;
        *cached = Some(CachedBackend {
            credential: credential.clone(),
            source,
            backend: backend.clone(),
        });
        Ok((credential, backend))
    }

    /// Returns whether the credential that was used last was sent by the host.
    pub(super) fn uses_host_credential(&self) -> bool {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached
            .as_ref()
            .is_some_and(|cached| cached.source == CredentialSource::Host)
    }

    /// Returns the backend that was requested last.
    pub(super) fn in_use(&self) -> Option<Backend> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().map(|cached| cached.backend.clone())
    }
}
