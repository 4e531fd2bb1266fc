//! The settings of a front end's sessions.

use std::path::Path;

use agent::conversation::store::Store;
use agent::session_manager::SessionOptions;
use agent::turn::Policy;
use agent_tools::leash::Leash;
use foundation::place;

/// Returns the settings; without a store on a machine without a home directory.
pub(super) fn session_options(
    env: &impl Fn(&str) -> Option<String>,
    home: Option<&Path>,
    policy: &Policy,
    leash: Leash,
) -> SessionOptions {
    let folder = place::state_dir(env, home);
    SessionOptions {
        store: folder.map(|folder| Store::at(folder.join("conversations")).within(folder)),
        max_parked: policy.most_parked,
        park_timeout: policy.park,
        leash,
    }
}
