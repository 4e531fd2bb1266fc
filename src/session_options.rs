//! The settings of a front end's sessions.

use agent::conversation::store::Store;
use agent::session_manager::SessionOptions;
use agent_tools::shell::reaper::ChildReaper;

use crate::config::Config;

/// Returns the settings; without a store on a machine without a home directory.
pub(super) fn session_options(config: &Config, reaper: ChildReaper) -> SessionOptions {
    let folder = config.state_dir.clone();
    SessionOptions {
        store: folder.map(|folder| Store::at(folder.join("conversations")).within(folder)),
        max_parked: config.turn.most_parked,
        park_timeout: config.turn.park,
        reaper,
    }
}
