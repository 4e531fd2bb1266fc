//! What the doors share about the catalogue.

use crate::account::ApiKey;
use crate::catalog::{Access, Credential};
use crate::run::Backend;

/// Who asks a backend for its models.
pub(super) fn access(backend: &Backend, key: ApiKey) -> Access {
    Access {
        http: backend.http.clone(),
        endpoints: backend.endpoints.clone(),
        identity: backend.identity.clone(),
        credential: Credential::Key {
            key,
            account: backend.account.clone(),
        },
    }
}
