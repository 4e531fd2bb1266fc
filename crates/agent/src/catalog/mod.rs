//! Cursor's models as a host can display and select them.
//!
//! [`CatalogModel`] is one model as Cursor describes it, whichever endpoint the description came
//! from. [`HostModels`] are the entries a host registers. [`select`] converts a host model, a
//! thinking level and a speed back to what is sent to Cursor. Everything about a model is read
//! from its parameters: no model id is hard-coded here. This module opens no run, stores no secret
//! and knows no host protocol; its files in the state directory are the cached list, learned
//! context windows and preferences.

mod bundled;
mod cache;
mod client;
mod context_window;
mod fast_mode;
mod host_models;
mod last_account;
mod model;
mod model_list;
mod prefs;
mod selection;
mod service;
mod sort_key;
mod suggest;
mod thinking;

pub use bundled::render as render_snapshot;
pub use cache::{AccountFingerprint, CachePolicy};
pub use client::{CatalogClient, CatalogCredential, DiscoverError};
pub use context_window::{ContextWindows, learn, parse_context_size, positive_u32};
pub use fast_mode::{ResolvedSpeed, SpeedPreferences, SpeedSource, resolve_speed};
pub use foundation::private_files::PrivateFileError;
pub use host_models::{HostModel, HostModels, MAX_OUTPUT, ModelLookup, base_id};
pub use model::{CatalogModel, ModelVariant, Parameter, ParameterChoice, ParameterValue};
pub use model_list::{FallbackReason, ListSource, ModelList};
pub use prefs::{Prefs, save_speed};
pub use selection::{ModelSelection, Speed, select};
pub use service::{FetchMode, ModelCatalog, WAIT_BUDGET};
pub use suggest::UnknownModel;
pub use thinking::{LevelMap, LevelRange, ThinkingLevel, level_map};
