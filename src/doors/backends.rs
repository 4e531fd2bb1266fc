//! The account and the hosts a door's turns use, made once for a key.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::account::{ApiKey, find_key};
use crate::run::{AssembleError, Backend};

/// The backend in use.
#[derive(Default)]
pub(super) struct Backends(Mutex<Option<(ApiKey, Backend)>>);

impl Backends {
    /// The backend for the key a host gives, else for the one there is.
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
        // What was not understood was told when the door opened.
        let (backend, _) = Backend::with_key(key.clone(), env, home)?;
        *cached = Some((key.clone(), backend.clone()));
        Ok((key, backend))
    }

    /// The last one that was asked for.
    pub(super) fn in_use(&self) -> Option<Backend> {
        let cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.as_ref().map(|(_, backend)| backend.clone())
    }
}
