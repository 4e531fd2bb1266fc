//! The account and endpoints that a front end's turns use, built once per key.

use std::sync::{Mutex, PoisonError};

use agent::run::{AssembleError, Backend};
use cursor_client::ClientOptions;
use cursor_client::account::{ApiKey, find_key};

/// The backend in use.
#[derive(Default)]
pub(super) struct Backends(Mutex<Option<(ApiKey, Backend)>>);

impl Backends {
    /// Returns the backend for the host's key, else for the user's own key or login.
    pub(super) fn get(
        &self,
        given: Option<&str>,
        options: &ClientOptions,
    ) -> Result<(ApiKey, Backend), AssembleError> {
        let (key, _) = find_key(given, options)?;
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((for_key, backend)) = &*cached
            && for_key.same(&key)
        {
            return Ok((key, backend.clone()));
        }
        let backend = Backend::with_key(key.clone(), options)?;
        *cached = Some((key.clone(), backend.clone()));
        Ok((key, backend))
    }

    /// Returns whether the key that was used last is another than the user's own.
    pub(super) fn uses_host_key(&self, options: &ClientOptions) -> bool {
        let own = find_key(None, options).ok();
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached
            .as_ref()
            .is_some_and(|(used, _)| own.is_none_or(|(own, _)| !own.same(used)))
    }

    /// Returns the backend that was requested last.
    pub(super) fn in_use(&self) -> Option<Backend> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().map(|(_, backend)| backend.clone())
    }
}
