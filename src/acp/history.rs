//! The history of a session. The client sends only prompts, so the history is kept here, and on
//! disk for `session/load`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::session_models::SessionModeChoice;
use agent::conversation::transcript::{Tool, Transcript};
use agent::message::{Answer, AnswerPart, Content, Message, MessageKind, ToolCall, ToolResult};
use foundation::private_files::{self, PrivateFileError};

/// The version of the files.
const VERSION: u32 = 1;
/// How many sessions are listed.
const MAX_LISTED: usize = 100;
/// How many files are read to find them.
const MAX_READ: usize = 500;
/// How many characters of a prompt a title has.
const MAX_TITLE: usize = 80;

/// Everything that is stored of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SessionRecord {
    version: u32,
    pub(super) cwd: PathBuf,
    /// The chosen model.
    #[serde(default)]
    pub(super) model: Option<String>,
    /// The chosen thinking level.
    #[serde(default)]
    pub(super) level: Option<String>,
    #[serde(default)]
    pub(super) mode: SessionModeChoice,
    pub(super) items: Vec<HistoryItem>,
}

/// One message of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum HistoryItem {
    User {
        content: Vec<StoredContent>,
    },
    Answer {
        text: String,
        #[serde(default)]
        calls: Vec<StoredCall>,
        /// Whether it ends its turn.
        is_complete: bool,
    },
    ToolResult {
        call_id: String,
        tool: String,
        content: Vec<StoredContent>,
        is_error: bool,
    },
}

/// Text or an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredContent {
    Text(String),
    Image { data: String, mime_type: String },
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Json,
}

impl SessionRecord {
    /// Returns the record of a session without messages.
    pub(super) fn new(cwd: PathBuf) -> Self {
        Self {
            version: VERSION,
            cwd,
            model: None,
            level: None,
            mode: SessionModeChoice::default(),
            items: Vec::new(),
        }
    }

    /// Returns the beginning of the first prompt.
    fn title(&self) -> Option<String> {
        let first = self.items.iter().find_map(|item| match item {
            HistoryItem::User { content } => content.iter().find_map(|part| match part {
                StoredContent::Text(text) => text.lines().find(|line| !line.trim().is_empty()),
                StoredContent::Image { .. } => None,
            }),
            HistoryItem::Answer { .. } | HistoryItem::ToolResult { .. } => None,
        })?;
        Some(first.trim().chars().take(MAX_TITLE).collect())
    }

    /// Returns the history as the engine reads it.
    pub(super) fn transcript(&self, tools: Vec<Tool>) -> Transcript {
        Transcript {
            system: String::new(),
            tools,
            messages: self.items.iter().map(message).collect(),
        }
    }
}

fn contents(content: &[StoredContent]) -> Vec<Content> {
    let content = content.iter().cloned();
    content
        .map(|part| match part {
            StoredContent::Text(text) => Content::Text(text),
            StoredContent::Image { data, mime_type } => Content::Image { data, mime_type },
        })
        .collect()
}

fn message(item: &HistoryItem) -> Message {
    Message::new(match item {
        HistoryItem::User { content } => MessageKind::User(contents(content)),
        HistoryItem::Answer {
            text,
            calls,
            is_complete,
        } => {
            let text = Some(text).filter(|text| !text.is_empty());
            let calls = calls.iter().cloned().map(|call| {
                AnswerPart::Call(ToolCall {
                    id: call.id,
                    name: call.name,
                    arguments: call.arguments,
                })
            });
            let text = text.cloned().map(AnswerPart::Text);
            MessageKind::Assistant(Answer {
                parts: text.into_iter().chain(calls).collect(),
                is_complete: *is_complete,
            })
        }
        HistoryItem::ToolResult {
            call_id,
            tool,
            content,
            is_error,
        } => MessageKind::ToolResult(ToolResult {
            call_id: call_id.clone(),
            tool: tool.clone(),
            content: contents(content),
            is_error: *is_error,
            details: Json::Null,
            structured: None,
        }),
    })
}

/// A stored session in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedSession {
    pub(super) id: String,
    pub(super) cwd: PathBuf,
    pub(super) title: Option<String>,
}

/// Why a session cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// There is no such session.
    #[error("sessionId: there is no stored session {0:?}")]
    Unknown(String),
    /// Its file cannot be read.
    #[error("the stored session cannot be read: {0}")]
    File(#[from] PrivateFileError),
    /// Its file is not valid.
    #[error("the stored session is damaged or of another version")]
    Invalid,
}

/// Where histories are stored.
#[derive(Debug, Clone)]
pub(super) struct HistoryStore {
    folder: Option<PathBuf>,
}

impl HistoryStore {
    /// Returns a store below the state folder; without one nothing is stored.
    pub(super) fn new(state: Option<&Path>) -> Self {
        Self {
            folder: state.map(|state| state.join("acp-sessions")),
        }
    }

    /// Returns the file of a session. Ids are ours, so any other name is unknown.
    fn file(&self, id: &str) -> Option<PathBuf> {
        let id = uuid::Uuid::parse_str(id).ok()?;
        Some(self.folder.as_ref()?.join(format!("{id}.json")))
    }

    /// Returns a stored session.
    pub(super) fn load(&self, id: &str) -> Result<SessionRecord, LoadError> {
        let unknown = || LoadError::Unknown(id.to_owned());
        let file = self.file(id).ok_or_else(unknown)?;
        let text = private_files::read(&file)?.ok_or_else(unknown)?;
        let record: SessionRecord = serde_json::from_str(&text).map_err(|_| LoadError::Invalid)?;
        if record.version != VERSION {
            return Err(LoadError::Invalid);
        }
        Ok(record)
    }

    /// Returns the stored sessions, the latest first; with a folder only those that worked in it.
    /// A file that cannot be read is left out.
    pub(super) fn list(&self, cwd: Option<&Path>) -> Vec<ListedSession> {
        let Some(Ok(entries)) = self.folder.as_ref().map(std::fs::read_dir) else {
            return Vec::new();
        };
        let mut files: Vec<_> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let id = name.strip_suffix(".json")?.to_owned();
                Some((entry.metadata().ok()?.modified().ok()?, id))
            })
            .collect();
        files.sort_unstable_by(|a, b| b.cmp(a));
        let records = files.into_iter().take(MAX_READ).filter_map(|(_, id)| {
            let record = self.load(&id).ok()?;
            cwd.is_none_or(|cwd| cwd == record.cwd)
                .then(|| ListedSession {
                    title: record.title(),
                    cwd: record.cwd,
                    id,
                })
        });
        records.take(MAX_LISTED).collect()
    }

    /// Deletes a session, and returns whether it was stored.
    pub(super) fn delete(&self, id: &str) -> std::io::Result<bool> {
        let Some(file) = self.file(id) else {
            return Ok(false);
        };
        match std::fs::remove_file(file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stores a session. A failure is logged, because the session itself can continue.
    pub(super) fn save(&self, id: &str, record: &SessionRecord) {
        let Some(file) = self.file(id) else {
            return;
        };
        let saved = serde_json::to_vec(record)
            .map_err(|error| error.to_string())
            .and_then(|text| private_files::write(&file, &text).map_err(|error| error.to_string()));
        if let Err(error) = saved {
            tracing::warn!("the session cannot be stored: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_session_is_loaded_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let store = HistoryStore::new(Some(folder.path()));
        let id = uuid::Uuid::new_v4().to_string();
        let mut record = SessionRecord::new("/w".into());
        record.model = Some("auto".into());
        record.items = vec![
            HistoryItem::User {
                content: vec![
                    StoredContent::Text("look".into()),
                    StoredContent::Image {
                        data: "AAAA".into(),
                        mime_type: "image/png".into(),
                    },
                ],
            },
            HistoryItem::Answer {
                text: "I see".into(),
                calls: vec![StoredCall {
                    id: "c".into(),
                    name: "read".into(),
                    arguments: serde_json::json!({"path": "a"}),
                }],
                is_complete: false,
            },
        ];
        store.save(&id, &record);
        assert_eq!(store.load(&id).unwrap(), record);
        assert_eq!(record.transcript(Vec::new()).messages.len(), 2);
        let listed = ListedSession {
            id: id.clone(),
            cwd: "/w".into(),
            title: Some("look".into()),
        };
        std::fs::write(folder.path().join("acp-sessions/damaged.json"), "{").unwrap();
        assert_eq!(store.list(None), std::slice::from_ref(&listed));
        assert_eq!(store.list(Some(Path::new("/w"))), [listed]);
        assert_eq!(store.list(Some(Path::new("/other"))), []);
        for unknown in ["../../etc/passwd", &uuid::Uuid::new_v4().to_string()] {
            assert!(matches!(store.load(unknown), Err(LoadError::Unknown(_))));
        }
    }
}
