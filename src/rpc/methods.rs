//! The method table: one entry per method, with its handler, its schema and its types.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{Extensions, RpcModule};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;

use super::account::{self, Logins};
use super::early_params::EarlyParams;
use super::error::{self, INVALID_PARAMS};
use super::message_type::MessageType;
#[cfg(test)]
use super::method_types::MethodTypes;
use super::models::{ListFreshness, ModelService};
use super::peer::Peer;
use super::protocol::*;
use super::slash_commands::{self, ShownNotices};
use super::turns::{TurnContext, Turns};
use super::{bridge_endpoint, host_info, host_watch, user_choices};
use crate::config::parse::{DisplaySurface, NativeDisplay};
use crate::config::{CardOptions, Config, EffectiveValue, Setting, ValueSource};
use agent::catalog::ModelList;
use agent_tools::bridge::endpoint::McpEndpoint;
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
    pub(super) tools: Mutex<HostToolTiming>,
    /// Whether the host displays what a turn waits for.
    pub(super) shows_waits: AtomicBool,
    pub(super) native_tools: Mutex<HostPolicy>,
    pub(super) turns: Turns,
    /// The MCP endpoints through which other agents call the host's tools.
    pub(super) endpoints: McpEndpoint,
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

    pub(super) fn native_tools(&self) -> HostPolicy {
        let stated = self.native_tools.lock();
        stated.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns Cursor's models for a key.
    pub(super) async fn listing(&self, key: Option<&str>, freshness: ListFreshness) -> ModelList {
        let backend = || {
            let found = self.turns.backend(key);
            found.map(|(_, backend)| backend)
        };
        self.models.list(key, freshness, backend).await
    }
}

/// Adds a method to the registry.
type Register = dyn FnOnce(&mut RpcModule<Context>) -> Result<(), RegisterMethodError>;

/// A method of ours and its handler.
pub(super) struct RegisteredMethod {
    pub(super) name: &'static str,
    /// What the reference of the protocol is generated from.
    #[cfg(test)]
    pub(super) types: MethodTypes,
    register: Box<Register>,
}

/// Describes a method of ours, whose parameters are validated before its handler is called.
fn method<Params, Answer, Handling>(
    name: &'static str,
    handler: impl Fn(Params, Arc<Context>, Extensions) -> Handling + Clone + Send + Sync + 'static,
) -> RegisteredMethod
where
    Params: DeserializeOwned + MessageType + Send,
    Answer: Serialize + Clone + MessageType,
    Handling: Future<Output = Result<Answer, ErrorObjectOwned>> + Send + 'static,
{
    RegisteredMethod {
        name,
        #[cfg(test)]
        types: MethodTypes::request::<Params, Answer>(name),
        register: Box::new(move |module| {
            let register =
                module.register_async_method(name, move |params, context, extensions| {
                    let handler = handler.clone();
                    async move {
                        let params = match EarlyParams::take(&extensions) {
                            Some(params) => params,
                            None => error::params(&params)?,
                        };
                        handler(params, context, extensions).await
                    }
                });
            register.map(|_| ())
        }),
    }
}

/// Returns every method of ours.
pub(super) fn methods() -> Vec<RegisteredMethod> {
    vec![
        method(
            "initialize",
            |params: InitializeParams, context, _| async move { initialize(&context, params) },
        ),
        method(
            "models/list",
            |params: ModelsListParams, context, _| async move {
                let freshness = if params.refresh {
                    ListFreshness::Live
                } else {
                    ListFreshness::Cached
                };
                let list = context.listing(params.api_key.as_deref(), freshness).await;
                Ok(context.models.to_result(list))
            },
        ),
        method("prefs/get", |PrefsGetParams {}, context, _| async move {
            context.models.prefs().map_err(|p| error::internal(&p))
        }),
        method(
            "prefs/set",
            |params: PrefsSetParams, context, _| async move {
                let set = context.models.set_speed(&params);
                set.map_err(|p| error::internal(&p))
            },
        ),
        method(
            "turn/start",
            |params: TurnStartParams, context, extensions| async move {
                let Some(peer) = extensions.get::<Peer>() else {
                    return Err(error::internal("a turn without a connection"));
                };
                let turn = TurnContext {
                    peer,
                    cwd: context.cwd(),
                    models: &context.models,
                    tools: *context.tools.lock().unwrap_or_else(PoisonError::into_inner),
                    native_tools: context.native_tools(),
                    shows_waits: context.shows_waits.load(Ordering::Relaxed),
                };
                context.turns.start(params, turn).await
            },
        ),
        method(
            "turn/cancel",
            |params: TurnCancelParams, context, _| async move {
                let found = context.turns.sessions().cancel(&params.turn_id).await;
                Ok(TurnCancelResult { found })
            },
        ),
        method(
            "turn/inject",
            |params: TurnInjectParams, context, _| async move { context.turns.inject(params).await },
        ),
        method(
            "replay/result",
            |params: ReplayResultParams, context, _| async move { context.turns.recorded(&params) },
        ),
        method(
            "session/invalidate",
            |params: SessionParams, context, _| async move {
                let sessions = context.turns.sessions();
                sessions.invalidate(&params.session_id).await;
                Ok(())
            },
        ),
        method(
            "session/close",
            |params: SessionParams, context, _| async move {
                context.turns.sessions().close(&params.session_id);
                Ok(())
            },
        ),
        method(
            "session/command",
            |params: SessionCommandParams, context, _| async move {
                Ok(slash_commands::run(&context, params).await)
            },
        ),
        method(
            "question/next",
            |params: QuestionNextParams, _, _| async move { next_question(&params) },
        ),
        method(
            "bridge/endpoint",
            |params: BridgeEndpointParams, context, _| async move {
                let session = context.turns.sessions().find(&params.session_id);
                bridge_endpoint::endpoint(&context.endpoints, session).await
            },
        ),
        method(
            "login/start",
            |LoginStartParams {}, context, _| async move {
                context.logins.start(&context.config.client)
            },
        ),
        method(
            "login/wait",
            |params: LoginWaitParams, context, _| async move {
                let options = &context.config.client;
                context.logins.wait(&params, options).await
            },
        ),
        method(
            "login/cancel",
            |params: LoginCancelParams, context, _| async move {
                let found = context.logins.cancel(&params);
                Ok(LoginCancelResult { found })
            },
        ),
        method(
            "login/refresh",
            |params: LoginRefreshParams, context, _| async move {
                account::refresh(&params, &context.config.client).await
            },
        ),
        method(
            "account/status",
            |params: AccountStatusParams, context, _| async move {
                let backend = || {
                    let found = context.turns.backend(params.api_key.as_deref());
                    found.map(|(_, backend)| backend)
                };
                Ok(account::status(&params, &context.config.client, backend).await)
            },
        ),
        method(
            "diagnostics/report",
            |ReportParams {}, context, _| async move { Ok(report(&context)) },
        ),
        method("shutdown", |ShutdownParams {}, _, _| async move { Ok(()) }),
    ]
}

/// Returns the method registry.
pub(super) fn register(context: Context) -> Result<RpcModule<Context>, RegisterMethodError> {
    let mut module = RpcModule::new(context);
    for method in methods() {
        (method.register)(&mut module)?;
    }
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
        let own = json!({
            "name": env!("CARGO_PKG_NAME"),
            "version": env!("CARGO_PKG_VERSION"),
            "protocolVersion": PROTOCOL_VERSION,
        });
        return Err(ErrorObjectOwned::owned(INVALID_PARAMS, problem, Some(own)));
    }
    tracing::debug!(
        host = params.host.name,
        pid = params.host.process_id,
        host_version = host_info::version(&params.host),
        version = env!("CARGO_PKG_VERSION"),
        "rpc.initialize"
    );
    // A process we cannot see, for example in another container, cannot be watched.
    let host_process = params
        .host
        .process_id
        .filter(|id| host_watch::is_alive(*id));
    context.host_process.send_replace(host_process);
    context
        .models
        .set_host(&host_info::thinking_levels(&params.host), params.host.mode);
    let _ = context.host.set(params.host.name); // it says so once
    let cwd = params.host.cwd.map(PathBuf::from);
    *context.cwd.lock().unwrap_or_else(PoisonError::into_inner) = cwd;
    let policy = context.turns.policy();
    // Settings are read before the first turn needs them. git is not: no process is started
    // before there is a turn.
    let library = context.turns.library();
    library.prefetch(&policy.cursor, &context.cwd());
    let asks = policy.offers_tools && policy.asks_questions;
    let tools = params.capabilities.tools;
    let shows_waits = params.capabilities.waiting;
    context.shows_waits.store(shows_waits, Ordering::Relaxed);
    *context.tools.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    let stated = HostPolicy::from(&params.native_tools);
    let native_tools = context.native_tools.lock();
    *native_tools.unwrap_or_else(PoisonError::into_inner) = stated;
    Ok(InitializeResult {
        name: env!("CARGO_PKG_NAME").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol_version: PROTOCOL_VERSION,
        methods: methods().iter().map(|method| method.name.into()).collect(),
        cards: wants_cards(params.host.mode, context.config.cards),
        commands: slash_commands::specs(),
        flags: user_choices::flags(),
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

fn next_question(params: &QuestionNextParams) -> Result<QuestionNextResult, ErrorObjectOwned> {
    let step = if params.has_ui {
        question_dialog::next(&params.arguments, &params.answers)
    } else {
        Err(question_dialog::DialogError::NoUser)
    };
    let refused = |error: question_dialog::DialogError| {
        ErrorObjectOwned::owned(INVALID_PARAMS, error.to_string(), None::<()>)
    };
    let put = |title, options| QuestionNextResult {
        put: Some(QuestionPrompt { title, options }),
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
