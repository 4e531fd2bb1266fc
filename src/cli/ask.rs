//! `cursor-sidecar ask`: sends one prompt and prints the answer. The quickest way to test the
//! connection to Cursor.

use std::io::{IsTerminal as _, Read as _, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::for_stdout;
use super::markdown::Markdown;
use super::waiting::Waiting;
use crate::config::Config;
use crate::last_error;
use crate::model_resolver::{AUTO, ModelRequest, ModelResolver, catalog_client};
use agent::catalog::{LevelRange, SpeedPreferences, ThinkingLevel, UnknownModel};
use agent::run::{
    Action, AssembleError, Backend, BlobKey, Command, Ended, FailedAttempt, Handle, MemoryBlobs,
    Mode, Model, Outcome, RetriesUsed, RetryPolicy, RunEvent, RunSpec, Timing, ToolGates,
    UserMessage, start,
};
use agent::turn::{Cause, UserCommands, with_next_step, wording};
use agent_tools::Executor;
use agent_tools::cursor_config::ConfigCache;
use agent_tools::cursor_config::hooks::{HookContext, HookedExecutor};
use agent_tools::handlers;
use agent_tools::rejection::Rejector;
use agent_tools::request_context::RunContext;
use agent_tools::shell::ShellSession;
use agent_tools::shell::reaper::ChildReaper;
use agent_tools::workspace::repository_cache::RepositoryCache;
use cursor_client::account::find_credential;
use cursor_client::failure::Failure;
use foundation::terminal_text::clean;

/// How long a cancelled run may take to notify the server.
const CANCEL_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(300);

/// Send one prompt to Cursor and print the answer.
///
/// Cursor's native tools are refused unless `--tools` allows them in the workspace.
#[derive(Debug, clap::Args)]
pub struct AskCommand {
    /// The prompt; `-` reads it from standard input.
    prompt: String,
    /// The model, as `cursor-sidecar models` prints it, with a thinking level and parameters as in
    /// `gpt-5.5@1m:high,fast=true`.
    #[arg(long, default_value = AUTO, value_parser = parse_model)]
    model: ModelArgument,
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
    /// Cursor has no such model.
    #[error("{0} with `cursor-sidecar models --refresh`")]
    Model(#[from] UnknownModel),
    /// There is nothing to send.
    #[error("the prompt is empty: write it in quotes, or use `-` to read it from standard input")]
    NoPrompt,
    /// Standard input is not text.
    #[error("standard input is not UTF-8, so it cannot be sent: convert it to UTF-8 first")]
    NotUtf8,
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

/// A model as a user writes it: `gpt-5.5@1m:high,fast=true`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelArgument {
    id: String,
    level: Option<ThinkingLevel>,
    /// Parameters that replace those of the model.
    parameters: Vec<(String, String)>,
}

fn parse_model(text: &str) -> Result<ModelArgument, String> {
    let (id, options) = text.split_once(':').unwrap_or((text, ""));
    let mut model = ModelArgument {
        id: id.to_owned(),
        level: None,
        parameters: Vec::new(),
    };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match (option.split_once('='), ThinkingLevel::parse(option)) {
            (Some((id, value)), _) => model.parameters.push((id.to_owned(), value.to_owned())),
            (None, Some(level)) => model.level = Some(level),
            (None, None) => {
                return Err(format!(
                    "{option:?} is neither a thinking level (off, minimal, low, medium, high, xhigh, max) nor a parameter (name=value)"
                ));
            }
        }
    }
    Ok(model)
}

impl ModelArgument {
    /// Resolves the model as it is resolved for a host: sizes, aliases and levels. The automatic
    /// choice needs no list of models.
    async fn resolve(&self, backend: &Backend, config: &Config) -> Result<Model, AskCommandError> {
        if self.id == AUTO {
            return Ok(Model {
                id: AUTO.to_owned(),
                parameters: self.parameters.clone(),
                ..Model::default()
            });
        }
        let (key, _) = find_credential(None, &config.client).map_err(AssembleError::from)?;
        let request = ModelRequest {
            id: &self.id,
            level: self.level,
            ..ModelRequest::default()
        };
        let resolver = ModelResolver::new(config);
        let client = catalog_client(backend, key);
        let speed = SpeedPreferences::default();
        let resolved = resolver.resolve(&request, &speed, LevelRange::UpToMax, &client);
        let mut model = resolved.await?.model;
        for (id, value) in &self.parameters {
            model.parameters.retain(|(known, _)| known != id);
            model.parameters.push((id.clone(), value.clone()));
        }
        Ok(model)
    }
}

impl AskCommand {
    /// Sends the prompt and prints the answer.
    pub async fn run(self, config: &Config, reaper: ChildReaper) -> Result<(), AskCommandError> {
        let backend = Backend::new(&config.client)?;
        config.log_warnings();
        let text = match self.prompt.as_str() {
            "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes)?;
                String::from_utf8(bytes).map_err(|_| AskCommandError::NotUtf8)?
            }
            text => text.to_owned(),
        };
        if text.trim().is_empty() {
            return Err(AskCommandError::NoPrompt);
        }
        let workspace = match &self.workspace {
            Some(folder) => std::path::absolute(folder)?,
            None => std::env::current_dir()?,
        };
        let repositories = Arc::<RepositoryCache>::default();
        repositories.refresh(&workspace);
        let mut spec = RunSpec {
            conversation_id: format!("agent-{}", Uuid::new_v4()),
            state: None,
            action: Action::UserMessage(UserMessage {
                text,
                images: Vec::new(),
                mode: self.plan.then_some(Mode::Plan),
            }),
            model: self.model.resolve(&backend, config).await?,
            offers: Vec::new(),
            blob_key: BlobKey::random()?,
            gates: ToolGates::default(),
            shown: String::new(),
            spent: RetriesUsed::default(),
            delay: std::time::Duration::ZERO,
            effects: Default::default(),
        };
        let library = ConfigCache::new(config.home.clone(), reaper);
        let library = Arc::new(library.with_state(config.state_dir.clone()));
        let facts = RunContext {
            workspace,
            home: config.home.clone(),
            shell: config.turn.shell.clone(),
            repositories,
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
        let printed = self.print(handle, config).await;
        if let Err(AskCommandError::Run(error)) = &printed {
            last_error::record(config.state_dir.as_deref(), "ask", error).await;
        }
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
        let shell_session = Arc::new(ShellSession::new(library.reaper().clone()));
        let occasion = HookContext {
            workspace: facts.workspace.clone(),
            home: facts.home.clone(),
            shell_session: Arc::clone(&shell_session),
            conversation: spec.conversation_id.clone(),
            model: spec.model.id.clone(),
        };
        facts.settings = Arc::clone(&settings);
        let (inner, gates) =
            handlers::executor_without_host(facts, policy, &shell_session, self.plan);
        spec.gates = gates;
        HookedExecutor::around(inner, &settings, occasion)
    }

    async fn print(&self, mut handle: Handle, config: &Config) -> Result<(), AskCommandError> {
        let mut out = std::io::stdout();
        let is_terminal = out.is_terminal();
        let terminal = &config.terminal;
        let is_styled = is_terminal && !terminal.no_color && !terminal.is_dumb;
        let mut markdown = is_styled.then(Markdown::default);
        let mut waiting = Waiting::new(is_terminal && !self.json, &config.terminal);
        loop {
            let event = tokio::select! {
                event = handle.events.recv() => event,
                _ = tokio::signal::ctrl_c() => {
                    // Notify the server, but do not wait for its reaction.
                    let _ = handle.commands.send(Command::Cancel).await;
                    let _ = tokio::time::timeout(CANCEL_TIMEOUT, handle.events.recv()).await;
                    waiting.end();
                    // The terminal has written `^C` into the line of the answer.
                    if is_terminal {
                        writeln!(out)?;
                    }
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
            } else if let RunEvent::Thinking(text) = &event {
                waiting.thinking(&clean(text));
            } else if let RunEvent::Text(text) = &event {
                waiting.end();
                let text = match &mut markdown {
                    Some(markdown) => markdown.format(&clean(text)).into(),
                    None if is_terminal => clean(text),
                    // A pipe gets the text as it is.
                    None => text.into(),
                };
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
            match event {
                RunEvent::Retrying(attempt) => {
                    let is_displayed = waiting.wait_for(attempt.waiting_line());
                    if !is_displayed {
                        tracing::info!("retrying: {}", attempt.failure);
                    }
                }
                RunEvent::Ended(Ended { outcome, .. }) => {
                    waiting.end();
                    if !self.json {
                        let rest = markdown.as_mut().map(Markdown::end).unwrap_or_default();
                        writeln!(out, "{rest}")?;
                    }
                    return match outcome {
                        Outcome::Finished => Ok(()),
                        Outcome::Cancelled => Err(AskCommandError::Cancelled),
                        Outcome::Failed(failure) => Err(AskCommandError::Run(advised(&failure))),
                    };
                }
                _ => {}
            }
        }
    }
}

/// Returns the text of a failure with what the user can do.
fn advised(failure: &Failure) -> String {
    let cause = Cause::of(failure);
    with_next_step(&wording(failure), Some(&cause), UserCommands::PROGRAM)
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
        RunEvent::Retrying(FailedAttempt {
            failure,
            next,
            last,
        }) => {
            json!({"type": "retrying", "reason": failure.to_string(), "attempt": next, "of": last})
        }
        RunEvent::Ended(ended) => {
            let (status, error) = match &ended.outcome {
                Outcome::Finished => ("finished", None),
                Outcome::Cancelled => ("cancelled", None),
                Outcome::Failed(failure) => ("failed", Some(advised(failure))),
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
