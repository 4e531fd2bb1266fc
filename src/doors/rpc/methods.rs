//! The method table: one entry a method, from which the registry and the schema are made.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::types::ErrorObjectOwned;
use schemars::Schema;
use tokio::sync::watch;

use super::error::{self, INVALID_PARAMS};
use super::models::Models;
use super::peer::Peer;
use super::protocol::*;
use super::turns::{Origin, Turns};
use crate::diag::settings::{self, SETTINGS};
use crate::turn::Policy;

/// What methods share.
pub(super) struct Context {
    pub(super) home: Option<PathBuf>,
    /// Where the host works, once it has said so.
    pub(super) cwd: Mutex<Option<PathBuf>>,
    /// When the host executes its tools.
    pub(super) tools: Mutex<HostTools>,
    pub(super) turns: Turns,
    pub(super) models: Models,
    /// The host's process, once it has said which it is.
    pub(super) host_process: watch::Sender<Option<u32>>,
}

/// A method's name and the shape of its parameters and result.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) params: Schema,
    pub(super) result: Schema,
}

/// Every method.
pub(super) fn table() -> Vec<Entry> {
    use schemars::schema_for;
    vec![
        Entry {
            name: "initialize",
            params: schema_for!(InitializeParams),
            result: schema_for!(InitializeResult),
        },
        Entry {
            name: "models/list",
            params: schema_for!(ModelsListParams),
            result: schema_for!(ModelsListResult),
        },
        Entry {
            name: "prefs/get",
            params: schema_for!(PrefsGetParams),
            result: schema_for!(PrefsResult),
        },
        Entry {
            name: "prefs/set",
            params: schema_for!(PrefsSetParams),
            result: schema_for!(PrefsResult),
        },
        Entry {
            name: "turn/start",
            params: schema_for!(TurnStartParams),
            result: schema_for!(TurnStartResult),
        },
        Entry {
            name: "turn/cancel",
            params: schema_for!(TurnCancelParams),
            result: schema_for!(TurnCancelResult),
        },
        Entry {
            name: "turn/inject",
            params: schema_for!(TurnInjectParams),
            result: schema_for!(TurnInjectResult),
        },
        Entry {
            name: "session/invalidate",
            params: schema_for!(SessionParams),
            result: schema_for!(()),
        },
        Entry {
            name: "session/close",
            params: schema_for!(SessionParams),
            result: schema_for!(()),
        },
        Entry {
            name: "diagnostics/report",
            params: schema_for!(ReportParams),
            result: schema_for!(Report),
        },
        Entry {
            name: "shutdown",
            params: schema_for!(ShutdownParams),
            result: schema_for!(()),
        },
    ]
}

/// The registry.
pub(super) fn register(context: Context) -> Result<RpcModule<Context>, RegisterMethodError> {
    let mut module = RpcModule::new(context);
    module.register_async_method("initialize", |params, context, _| async move {
        initialize(&context, error::params(&params)?)
    })?;
    module.register_async_method("models/list", |params, context, _| async move {
        let params: ModelsListParams = error::params(&params)?;
        let home = context.home.as_deref();
        let backend = || {
            let found = context.turns.backend(params.api_key.as_deref(), home);
            found.map(|(_, backend)| backend)
        };
        Ok::<_, ErrorObjectOwned>(context.models.list(&params, backend).await)
    })?;
    module.register_async_method("prefs/get", |params, context, _| async move {
        let PrefsGetParams {} = error::params(&params)?;
        context.models.prefs().map_err(|p| error::internal(&p))
    })?;
    module.register_async_method("prefs/set", |params, context, _| async move {
        let params = error::params(&params)?;
        context
            .models
            .set_pref(&params)
            .map_err(|p| error::internal(&p))
    })?;
    module.register_async_method("turn/start", |params, context, extensions| async move {
        let params = error::params(&params)?;
        let Some(peer) = extensions.get::<Peer>() else {
            return Err(error::internal("a turn without a connection"));
        };
        let cwd = context
            .cwd
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let cwd = cwd
            .or_else(|| std::env::current_dir().ok())
            .unwrap_or_default();
        let origin = Origin {
            peer,
            home: context.home.as_deref(),
            cwd,
            models: &context.models,
            tools: *context.tools.lock().unwrap_or_else(PoisonError::into_inner),
        };
        context.turns.start(params, origin).await
    })?;
    module.register_async_method("turn/cancel", |params, context, _| async move {
        Ok::<_, ErrorObjectOwned>(context.turns.cancel(&error::params(&params)?).await)
    })?;
    module.register_async_method("turn/inject", |params, context, _| async move {
        Ok::<_, ErrorObjectOwned>(context.turns.inject(error::params(&params)?).await)
    })?;
    module.register_async_method("session/invalidate", |params, context, _| async move {
        let home = context.home.as_deref();
        context
            .turns
            .invalidate(&error::params(&params)?, home)
            .await;
        Ok::<_, ErrorObjectOwned>(())
    })?;
    module.register_async_method("session/close", |params, context, _| async move {
        context.turns.close(&error::params(&params)?);
        Ok::<_, ErrorObjectOwned>(())
    })?;
    module.register_async_method("diagnostics/report", |params, context, _| async move {
        let ReportParams {} = error::params(&params)?;
        Ok::<_, ErrorObjectOwned>(report(&context))
    })?;
    module.register_async_method("shutdown", |params, _, _| async move {
        let ShutdownParams {} = error::params(&params)?;
        Ok::<_, ErrorObjectOwned>(())
    })?;
    Ok(module)
}

fn initialize(
    context: &Arc<Context>,
    params: InitializeParams,
) -> Result<InitializeResult, ErrorObjectOwned> {
    if params.protocol_version != PROTOCOL_VERSION {
        let problem = format!(
            "protocolVersion: this sidecar speaks version {PROTOCOL_VERSION}, the host {}; install matching versions",
            params.protocol_version
        );
        return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, None::<()>));
    }
    // One we cannot see, in another container say, could not be missed either.
    let host_process = params.host.process_id.filter(|id| super::is_alive(*id));
    context.host_process.send_replace(host_process);
    context.models.host_knows(&params.host.thinking_levels);
    let cwd = params.host.cwd.map(PathBuf::from);
    *context.cwd.lock().unwrap_or_else(PoisonError::into_inner) = cwd;
    let tools = params.capabilities.tools;
    *context.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    Ok(InitializeResult {
        name: env!("CARGO_PKG_NAME").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol_version: PROTOCOL_VERSION,
        methods: table().into_iter().map(|entry| entry.name.into()).collect(),
    })
}

fn report(context: &Context) -> Report {
    let env = |name: &str| std::env::var(name).ok();
    let mut warnings = settings::unknown(std::env::vars().map(|(name, _)| name));
    let (backend, more) = context.turns.inspect(context.home.as_deref());
    warnings.extend(more);
    warnings.extend(context.models.warnings.iter().cloned());
    warnings.extend(Policy::from_env(&|name: &str| std::env::var(name).ok()).1);
    let (endpoint, drift) = match backend {
        Ok(backend) => (backend.endpoints.agent.to_string(), backend.drift.counts()),
        Err(problem) => (problem, Default::default()),
    };
    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        settings: SETTINGS
            .iter()
            .map(|setting| effective(setting, env(setting.name)))
            .collect(),
        warnings: warnings.iter().map(ToString::to_string).collect(),
        endpoint,
        wire_drift: drift,
    }
}

fn effective(setting: &settings::Setting, value: Option<String>) -> EffectiveSetting {
    let value = value.filter(|value| !value.is_empty());
    let source = match value {
        Some(_) => SettingSource::Environment,
        None => SettingSource::Default,
    };
    let value = match value {
        // Proxies carry passwords, keys are keys: that they are set is all to be told.
        Some(value)
            if setting.name.ends_with("_KEY")
                || setting.name.ends_with("_PROXY")
                || value.contains('@') =>
        {
            "(set)".into()
        }
        Some(value) => value,
        None => setting.default.into(),
    };
    EffectiveSetting {
        name: setting.name.into(),
        value,
        source,
    }
}
