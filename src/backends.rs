//! The account and endpoints that a front end's turns use, built once per key.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use agent::run::{AssembleError, Backend};
use cursor_client::account::{ApiKey, find_key};

/// The backend in use.
#[derive(Default)]
pub(super) struct Backends(Mutex<Option<(ApiKey, Backend)>>);

impl Backends {
    /// Returns the backend for the host's key, else for the key of the environment or login.
    pub(super) fn get(
        &self,
        given: Option<&str>,
        env: &impl Fn(&str) -> Option<String>,
        home: Option<&Path>,
    ) -> Result<(ApiKey, Backend), AssembleError> {
        let (key, _) = find_key(given, env, home)?;
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((for_key, backend)) = &*cached
            && for_key.same(&key)
        {
            return Ok((key, backend.clone()));
        }
        // Warnings about its settings were logged when the front end started.
        let (backend, _) = Backend::with_key(key.clone(), env, home)?;
        *cached = Some((key.clone(), backend.clone()));
        Ok((key, backend))
    }

    /// Returns the backend that was requested last.
    pub(super) fn in_use(&self) -> Option<Backend> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().map(|(_, backend)| backend.clone())
    }
}
