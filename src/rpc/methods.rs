//! The method table: one entry per method, from which the registry and the schema are generated.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonrpsee::RpcModule;
use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::types::ErrorObjectOwned;
use schemars::{JsonSchema, schema_for};
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use ts_rs::TS;

use super::account::{self, Logins};
use super::commands::{self, ShownNotices};
use super::error::{self, INVALID_PARAMS};
use super::models::{ListFreshness, ModelService};
use super::peer::Peer;
use super::protocol::*;
use super::turns::{Origin, Turns};
use super::typescript::{Method, TypeScript};
use super::{bridge, controls, host};
use crate::config::parse::{DisplaySurface, NativeDisplay};
use crate::config::{CardOptions, Config, EffectiveValue, Setting, ValueSource};
use agent::catalog::ModelList;
use agent::turn::{Bridging, Questions};
use agent_tools::bridge::endpoint::Server;
use agent_tools::bridge::{question, question_dialog};
use agent_tools::policy::HostPolicy;

/// What all methods share.
pub(super) struct Context {
    pub(super) config: Arc<Config>,
    /// The host's name, from `initialize`.
    pub(super) host: OnceLock<String>,
    /// The host's working directory, from `initialize`.
    pub(super) cwd: Mutex<Option<PathBuf>>,
    /// When the host executes its tools.
    pub(super) tools: Mutex<HostTools>,
    /// The host's policy for native tools.
    pub(super) native_tools: Mutex<HostPolicy>,
    pub(super) turns: Turns,
    /// The MCP endpoints through which other agents call the host's tools.
    pub(super) endpoints: Server,
    /// Browser logins that have not ended.
    pub(super) logins: Logins,
    pub(super) models: ModelService,
    /// The host's process, from `initialize`.
    pub(super) host_process: watch::Sender<Option<u32>>,
    /// Notices the user was shown.
    pub(super) shown_notices: ShownNotices,
}

impl Context {
    /// Returns the host's working directory.
    pub(super) fn cwd(&self) -> PathBuf {
        let stated = self.cwd.lock().unwrap_or_else(PoisonError::into_inner);
        let stated = stated.clone();
        stated
            .or_else(|| std::env::current_dir().ok())
            .unwrap_or_default()
    }

    /// Returns the host's policy for native tools.
    pub(super) fn native_tools(&self) -> HostPolicy {
        let stated = self.native_tools.lock();
        stated.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns Cursor's models for a key.
    pub(super) async fn listing(&self, key: Option<&str>, newness: ListFreshness) -> ModelList {
        let backend = || {
            let found = self.turns.backend(key);
            found.map(|(_, backend)| backend)
        };
        self.models.list(key, newness, backend).await
    }
}

/// A method's name and the generators of its schema and types. They run on demand, because
/// `initialize` needs neither.
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) schema: fn() -> Json,
    pub(super) typescript: fn(&mut TypeScript) -> Method,
}

fn entry<Params, Answer>(name: &'static str) -> Entry
where
    Params: JsonSchema + TS + 'static,
    Answer: JsonSchema + TS + 'static,
{
    Entry {
        name,
        schema: || json!({"params": schema_for!(Params), "result": schema_for!(Answer)}),
        typescript: |types| Method {
            params: types.name::<Params>(),
            result: types.name::<Answer>(),
        },
    }
}

fn notification<Params>(name: &'static str) -> Entry
where
    Params: JsonSchema + TS + 'static,
{
    Entry {
        name,
        schema: || json!({"params": schema_for!(Params)}),
        typescript: |types| Method {
            params: types.name::<Params>(),
            result: String::new(),
        },
    }
}

/// Returns the notifications to a host.
pub(super) fn notifications() -> Vec<Entry> {
    vec![
        notification::<TurnEventParams>("turn/event"),
        notification::<LogMessageParams>("log/message"),
    ]
}

/// Returns the requests to a host that supports them.
pub(super) fn questions() -> Vec<Entry> {
    vec![
        entry::<ToolCallParams, ToolCallResult>("tool/call"),
        entry::<PermissionRequestParams, PermissionRequestResult>("permission/request"),
    ]
}

/// Returns every method.
pub(super) fn table() -> Vec<Entry> {
    vec![
        entry::<InitializeParams, InitializeResult>("initialize"),
        entry::<ModelsListParams, ModelsListResult>("models/list"),
        entry::<PrefsGetParams, PrefsResult>("prefs/get"),
        entry::<PrefsSetParams, PrefsResult>("prefs/set"),
        entry::<TurnStartParams, TurnStartResult>("turn/start"),
        entry::<TurnCancelParams, TurnCancelResult>("turn/cancel"),
        entry::<TurnInjectParams, TurnInjectResult>("turn/inject"),
        entry::<ReplayResultParams, ReplayResult>("replay/result"),
        entry::<SessionParams, ()>("session/invalidate"),
        entry::<SessionParams, ()>("session/close"),
        entry::<SessionCommandParams, SessionCommandResult>("session/command"),
        entry::<QuestionNextParams, QuestionNextResult>("question/next"),
        entry::<BridgeEndpointParams, BridgeEndpointResult>("bridge/endpoint"),
        entry::<LoginStartParams, LoginStartResult>("login/start"),
        entry::<LoginWaitParams, LoginWaitResult>("login/wait"),
        entry::<AccountStatusParams, AccountStatus>("account/status"),
        entry::<ReportParams, Report>("diagnostics/report"),
        entry::<ShutdownParams, ()>("shutdown"),
    ]
}

/// Returns the method registry.
pub(super) fn register(context: Context) -> Result<RpcModule<Context>, RegisterMethodError> {
    let mut module = RpcModule::new(context);
    module.register_async_method("initialize", |params, context, _| async move {
        initialize(&context, error::params(&params)?)
    })?;
    module.register_async_method("models/list", |params, context, _| async move {
        let params: ModelsListParams = error::params(&params)?;
        let newness = if params.refresh {
            ListFreshness::Live
        } else {
            ListFreshness::Cached
        };
        let listing = context.listing(params.api_key.as_deref(), newness).await;
        Ok::<_, ErrorObjectOwned>(context.models.to_result(listing))
    })?;
    module.register_async_method("prefs/get", |params, context, _| async move {
        let PrefsGetParams {} = error::params(&params)?;
        context.models.prefs().map_err(|p| error::internal(&p))
    })?;
    module.register_async_method("prefs/set", |params, context, _| async move {
        let params = error::params(&params)?;
        context
            .models
            .set_speed(&params)
            .map_err(|p| error::internal(&p))
    })?;
    module.register_async_method("turn/start", |params, context, extensions| async move {
        let params = error::params(&params)?;
        let Some(peer) = extensions.get::<Peer>() else {
            return Err(error::internal("a turn without a connection"));
        };
        let origin = Origin {
            peer,
            cwd: context.cwd(),
            models: &context.models,
            tools: *context.tools.lock().unwrap_or_else(PoisonError::into_inner),
            native_tools: context.native_tools(),
        };
        context.turns.start(params, origin).await
    })?;
    module.register_async_method("turn/cancel", |params, context, _| async move {
        let params: TurnCancelParams = error::params(&params)?;
        let found = context.turns.sessions().cancel(&params.turn_id).await;
        Ok::<_, ErrorObjectOwned>(TurnCancelResult { found })
    })?;
    module.register_async_method("turn/inject", |params, context, _| async move {
        context.turns.inject(error::params(&params)?).await
    })?;
    module.register_async_method("replay/result", |params, context, _| async move {
        context.turns.recorded(&error::params(&params)?)
    })?;
    module.register_async_method("session/invalidate", |params, context, _| async move {
        let params: SessionParams = error::params(&params)?;
        let sessions = context.turns.sessions();
        sessions.invalidate(&params.session_id).await;
        Ok::<_, ErrorObjectOwned>(())
    })?;
    module.register_async_method("session/close", |params, context, _| async move {
        let params: SessionParams = error::params(&params)?;
        context.turns.sessions().close(&params.session_id);
        Ok::<_, ErrorObjectOwned>(())
    })?;
    module.register_async_method("session/command", |params, context, _| async move {
        let params = error::params(&params)?;
        Ok::<_, ErrorObjectOwned>(commands::run(&context, params).await)
    })?;
    module.register_async_method("question/next", |params, _, _| async move {
        ask(&error::params(&params)?)
    })?;
    module.register_async_method("bridge/endpoint", |params, context, _| async move {
        let params: BridgeEndpointParams = error::params(&params)?;
        let session = context.turns.sessions().find(&params.session_id);
        bridge::endpoint(&context.endpoints, session).await
    })?;
    module.register_async_method("login/start", |params, context, _| async move {
        let LoginStartParams {} = error::params(&params)?;
        context.logins.start(&context.config.client)
    })?;
    module.register_async_method("login/wait", |params, context, _| async move {
        let options = &context.config.client;
        context.logins.wait(&error::params(&params)?, options).await
    })?;
    module.register_async_method("account/status", |params, context, _| async move {
        let params: AccountStatusParams = error::params(&params)?;
        let options = &context.config.client;
        let backend = || {
            let found = context.turns.backend(params.api_key.as_deref());
            found.map(|(_, backend)| backend)
        };
        Ok::<_, ErrorObjectOwned>(account::status(&params, options, backend).await)
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
    tracing::debug!(
        host = params.host.name,
        pid = params.host.process_id,
        host_version = host::version(&params.host),
        version = env!("CARGO_PKG_VERSION"),
        "rpc.initialize"
    );
    // A process we cannot see, for example in another container, cannot be watched.
    let host_process = params.host.process_id.filter(|id| super::is_alive(*id));
    context.host_process.send_replace(host_process);
    context
        .models
        .set_host(&host::thinking_levels(&params.host), params.host.mode);
    let _ = context.host.set(params.host.name); // it says so once
    let cwd = params.host.cwd.map(PathBuf::from);
    *context.cwd.lock().unwrap_or_else(PoisonError::into_inner) = cwd;
    let policy = context.turns.policy();
    let asks = policy.bridge == Bridging::On && policy.questions == Questions::Asked;
    let tools = params.capabilities.tools;
    *context.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    let stated = HostPolicy::from(&params.native_tools);
    let native_tools = context.native_tools.lock();
    *native_tools.unwrap_or_else(PoisonError::into_inner) = stated;
    Ok(InitializeResult {
        name: env!("CARGO_PKG_NAME").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol_version: PROTOCOL_VERSION,
        methods: table().into_iter().map(|entry| entry.name.into()).collect(),
        cards: wants_cards(params.host.mode, context.config.cards),
        commands: commands::offered(),
        flags: controls::flags(),
        question: asks.then(|| QuestionTool {
            name: question::TOOL.into(),
            label: question_dialog::LABEL.into(),
            description: question_dialog::DESCRIPTION.into(),
            parameters: question_dialog::parameters(),
        }),
    })
}

/// Returns whether cards are used: the user's setting, else what suits the host. A host that prints
/// a single answer cannot use turns that end at each card.
fn wants_cards(mode: HostMode, options: CardOptions) -> bool {
    let surface = match mode {
        HostMode::Print => DisplaySurface::Print,
        HostMode::Interactive | HostMode::Json | HostMode::Rpc => DisplaySurface::Cards,
    };
    NativeDisplay::resolve(surface, Some(surface), options.display, options.register).registration
}

fn ask(params: &QuestionNextParams) -> Result<QuestionNextResult, ErrorObjectOwned> {
    let step = if params.has_ui {
        question_dialog::next(&params.arguments, &params.answers)
    } else {
        Err(question_dialog::DialogError::NobodyThere)
    };
    let refused = |error: question_dialog::DialogError| {
        ErrorObjectOwned::owned(INVALID_PARAMS, error.to_string(), None::<()>)
    };
    let put = |title, options| QuestionNextResult {
        put: Some(Put { title, options }),
        ..QuestionNextResult::default()
    };
    Ok(match step.map_err(refused)? {
        question_dialog::DialogStep::Choose { title, options } => put(title, Some(options)),
        question_dialog::DialogStep::Write { title } => put(title, None),
        question_dialog::DialogStep::Done { text, details } => QuestionNextResult {
            put: None,
            text,
            details,
        },
    })
}

pub(super) fn report(context: &Context) -> Report {
    let (endpoint, drift) = match context.turns.inspect() {
        Ok(backend) => (backend.endpoints.agent.to_string(), backend.drift.counts()),
        Err(problem) => (problem, Default::default()),
    };
    let config = &context.config;
    Report {
        version: env!("CARGO_PKG_VERSION").into(),
        settings: config
            .effective()
            .map(|(setting, value)| effective_setting(setting, value))
            .collect(),
        warnings: config.warnings.iter().map(ToString::to_string).collect(),
        endpoint,
        wire_drift: drift,
        counters: foundation::metrics::counters().counts(),
        tasks: tokio::runtime::Handle::try_current()
            .map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
    }
}

fn effective_setting(setting: &Setting, value: EffectiveValue) -> EffectiveSetting {
    EffectiveSetting {
        name: setting.name.into(),
        value: value.value,
        source: match value.source {
            ValueSource::Default => SettingSource::Default,
            ValueSource::Environment => SettingSource::Environment,
            ValueSource::File => SettingSource::File,
        },
        remark: value.remark,
    }
}
