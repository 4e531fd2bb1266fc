//! `cursor-sidecar ask`: sends one prompt and prints the answer. The quickest way to test the
//! connection to Cursor.

use std::io::{IsTerminal as _, Read as _, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::for_stdout;
use crate::config::Config;
use crate::model_resolver::catalog_client;
use agent::catalog::{self, FetchMode, ModelCatalog};
use agent::run::{
    Action, AssembleError, Backend, BlobKey, Command, Ended, Handle, MemoryBlobs, Mode, Model,
    Outcome, RetriesUsed, RetryPolicy, RunEvent, RunSpec, Timing, ToolGates, UserMessage, start,
};
use agent_tools::Executor;
use agent_tools::cursor_config::ConfigCache;
use agent_tools::cursor_config::hooks::{HookContext, HookedExecutor};
use agent_tools::handlers;
use agent_tools::rejection::Rejector;
use agent_tools::request_context::RunContext;
use agent_tools::shell::ShellSession;
use agent_tools::shell::reaper::ChildReaper;
use cursor_client::account::find_key;
use foundation::terminal_text::clean;

/// How long a cancelled run may take to notify the server.
const PARTING: std::time::Duration = std::time::Duration::from_millis(300);
/// Cursor's id for automatic model choice; not an alias of another model.
const AUTO: &str = "default";

/// Send one prompt to Cursor and print the answer.
///
/// Cursor's native tools are refused unless `--tools` allows them in the workspace.
#[derive(Debug, clap::Args)]
pub struct AskCommand {
    /// The prompt; `-` reads it from standard input.
    prompt: String,
    /// The model id, with parameters as in `gpt-5.5:reasoning=high,fast=true`.
    #[arg(long, default_value = AUTO, value_parser = parse_model)]
    model: Model,
    /// Use plan mode: change nothing.
    #[arg(long)]
    plan: bool,
    /// The workspace folder [default: the current one].
    #[arg(long)]
    workspace: Option<PathBuf>,
    /// Enable Cursor's native tools and the user's rules, MCP servers and hooks, as the settings
    /// allow (PI_CURSOR_NATIVE_TOOLS and others).
    #[arg(long)]
    tools: bool,
    /// Print each event as a line of JSON instead of the text.
    #[arg(long)]
    json: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskCommandError {
    /// The settings are incomplete.
    #[error(transparent)]
    Settings(#[from] AssembleError),
    /// The prompt could not be read or the answer not written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// No randomness for a blob key.
    #[error("no source of randomness: {0}")]
    Random(#[from] getrandom::Error),
    /// The run failed.
    #[error("{0}")]
    Run(String),
    /// The user pressed Ctrl-C.
    #[error("cancelled")]
    Cancelled,
}

fn parse_model(text: &str) -> Result<Model, String> {
    let (id, parameters) = text.split_once(':').unwrap_or((text, ""));
    let parameters = parameters
        .split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((id, value)) => Ok((id.to_owned(), value.to_owned())),
            None => Err(format!("{pair:?} is not a parameter; expected name=value")),
        })
        .collect::<Result<_, _>>()?;
    Ok(Model {
        id: id.to_owned(),
        parameters,
        ..Model::default()
    })
}

impl AskCommand {
    /// Sends the prompt and prints the answer.
    pub async fn run(self, config: &Config, reaper: ChildReaper) -> Result<(), AskCommandError> {
        let backend = Backend::new(&config.client)?;
        config.log_warnings();
        let text = match self.prompt.as_str() {
            "-" => {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text)?;
                text
            }
            text => text.to_owned(),
        };
        let workspace = match &self.workspace {
            Some(folder) => std::path::absolute(folder)?,
            None => std::env::current_dir()?,
        };
        let mut spec = RunSpec {
            conversation_id: format!("agent-{}", Uuid::new_v4()),
            state: None,
            action: Action::UserMessage(UserMessage {
                text,
                images: Vec::new(),
                mode: self.plan.then_some(Mode::Plan),
            }),
            model: Model {
                id: model_id(&self.model.id, &backend, config).await,
                ..self.model.clone()
            },
            offers: Vec::new(),
            custom_system_prompt: None,
            blob_key: BlobKey::random()?,
            gates: ToolGates::default(),
            shown: String::new(),
            spent: RetriesUsed::default(),
            rest: std::time::Duration::ZERO,
            effects: Default::default(),
        };
        let library = ConfigCache::new(config.home.clone(), reaper);
        let library = Arc::new(library.with_state(config.state_dir.clone()));
        let facts = RunContext {
            workspace,
            home: config.home.clone(),
            shell: config.turn.shell.clone(),
            ..RunContext::default()
        };
        let executor: Arc<dyn Executor> = if self.tools {
            self.executor(facts, &mut spec, &library, config).await
        } else {
            Arc::new(Rejector {
                facts,
                ..Rejector::default()
            })
        };
        let handle = start(
            backend,
            spec,
            executor,
            Arc::new(MemoryBlobs::default()),
            // A user is waiting: an early error is better than an answer in ten minutes.
            RetryPolicy {
                transport: 3,
                idle: config.turn.idle_retries,
                ..RetryPolicy::default()
            },
            Timing {
                patience: config.turn.patience,
                ..Timing::default()
            },
        );
        let printed = self.print(handle).await;
        library.close();
        printed
    }

    /// Returns the executor of a run with tools: everything is executed here unless the settings
    /// say otherwise, because no host has tools of its own.
    async fn executor(
        &self,
        mut facts: RunContext,
        spec: &mut RunSpec,
        library: &Arc<ConfigCache>,
        config: &Config,
    ) -> Arc<dyn Executor> {
        let policy = &config.turn.native;
        let settings = library.open(&config.turn.cursor, &facts.workspace).await;
        for notice in settings.notices.iter().chain(&settings.servers.problems(0)) {
            tracing::warn!("{notice}");
        }
        spec.offers = settings.servers.offers(0);
        let bench = Arc::new(ShellSession::new(library.reaper().clone()));
        let occasion = HookContext {
            workspace: facts.workspace.clone(),
            home: facts.home.clone(),
            shell_session: Arc::clone(&bench),
            conversation: spec.conversation_id.clone(),
            model: spec.model.id.clone(),
        };
        facts.settings = Arc::clone(&settings);
        let (inner, gates) = handlers::executor_without_host(facts, policy, &bench, self.plan);
        spec.gates = gates;
        HookedExecutor::around(inner, &settings, occasion)
    }

    async fn print(&self, mut handle: Handle) -> Result<(), AskCommandError> {
        let mut out = std::io::stdout();
        let is_terminal = out.is_terminal();
        loop {
            let event = tokio::select! {
                event = handle.events.recv() => event,
                _ = tokio::signal::ctrl_c() => {
                    // Notify the server, but do not wait for its reaction.
                    let _ = handle.commands.send(Command::Cancel).await;
                    let _ = tokio::time::timeout(PARTING, handle.events.recv()).await;
                    return Err(AskCommandError::Cancelled);
                }
            };
            let Some(event) = event else {
                return Err(AskCommandError::Run(
                    "the run ended without a result".into(),
                ));
            };
            if self.json {
                if let Some(line) = json_line(&event) {
                    writeln!(out, "{}", for_stdout(line))?;
                }
            } else if let RunEvent::Text(text) = &event {
                let text = if is_terminal {
                    clean(text)
                } else {
                    text.into()
                };
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
            match event {
                RunEvent::Retrying(failure) => tracing::info!("retrying: {failure}"),
                RunEvent::Ended(Ended { outcome, .. }) => {
                    if !self.json {
                        writeln!(out)?;
                    }
                    return match outcome {
                        Outcome::Finished => Ok(()),
                        Outcome::Cancelled => Err(AskCommandError::Cancelled),
                        Outcome::Failed(failure) => Err(AskCommandError::Run(failure.to_string())),
                    };
                }
                _ => {}
            }
        }
    }
}

/// Returns the model's own id if the given one is an alias. Returns it unchanged if the list is
/// unavailable.
async fn model_id(name: &str, backend: &Backend, config: &Config) -> String {
    let key = find_key(None, &config.client);
    let (Ok((key, _)), true) = (key, name != AUTO) else {
        return name.to_owned();
    };
    let client = catalog_client(backend, key);
    let listing = ModelCatalog::new(config.model_cache.clone())
        .list(&client, FetchMode::CacheFirst)
        .await;
    catalog::base_id(&listing.models, name).to_owned()
}

/// Returns an event as JSON.
fn json_line(event: &RunEvent) -> Option<serde_json::Value> {
    Some(match event {
        RunEvent::Text(text) => json!({"type": "text", "text": text}),
        RunEvent::Thinking(text) => json!({"type": "thinking", "text": text}),
        RunEvent::ToolStarted(call) => json!({"type": "tool_started", "id": call.call_id}),
        RunEvent::ToolCompleted(call) => json!({"type": "tool_completed", "id": call.call_id}),
        RunEvent::Checkpoint(saved) => {
            json!({"type": "checkpoint", "bytes": saved.state.len()})
        }
        RunEvent::Retrying(failure) => {
            json!({"type": "retrying", "reason": failure.to_string()})
        }
        RunEvent::Ended(ended) => {
            let (status, error) = match &ended.outcome {
                Outcome::Finished => ("finished", None),
                Outcome::Cancelled => ("cancelled", None),
                Outcome::Failed(failure) => ("failed", Some(failure.to_string())),
            };
            let usage = ended.usage.map(|usage| {
                json!({
                    "input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
                    "cache_write": usage.cache_write, "reasoning": usage.reasoning,
                })
            });
            json!({"type": "ended", "status": status, "error": error, "usage": usage,
                   "attempts": ended.attempts})
        }
        _ => return None,
    })
}
