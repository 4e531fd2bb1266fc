//! Limits the length of a server's output lines. The transport would drop a line that is too
//! long, and the call it answers would never complete; we replace it with an error response.

use std::io;

use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

/// The longest line; equal to the transport's own limit.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;
/// Bytes kept of each end of a longer line, to find out which call it answers.
const KEPT: usize = 4096;
/// The size of the buffer between the server and the transport.
const BUFFER: usize = 64 * 1024;

/// Returns the server's output with every line within [`MAX_LINE`]. It ends with the output, or
/// at a line that is too long and has no recognizable id, because its call would wait forever.
pub(super) fn bounded(output: impl AsyncRead + Send + Unpin + 'static) -> impl AsyncRead + Send {
    let (reader, writer) = tokio::io::duplex(BUFFER);
    tokio::spawn(async move {
        if let Err(error) = copy(output, writer, MAX_LINE).await {
            tracing::debug!(%error, "mcp.output_ended");
        }
    });
    reader
}

async fn copy(
    from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    limit: usize,
) -> io::Result<()> {
    let mut from = BufReader::with_capacity(BUFFER, from);
    let mut line = BoundedLine::default();
    loop {
        let piece = from.fill_buf().await?;
        if piece.is_empty() {
            to.write_all(&line.start).await?;
            return to.shutdown().await;
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(piece.len(), |end| end + 1);
        line.push(&piece[..length], limit);
        from.consume(length);
        if end.is_some() {
            let line = std::mem::take(&mut line);
            if line.is_long {
                tracing::warn!(
                    limit,
                    "an MCP server's message is too long and was not read"
                );
                to.write_all(&line.replaced(limit)?).await?;
            } else {
                to.write_all(&line.start).await?;
            }
        }
    }
}

/// A line as far as it has been read.
#[derive(Default)]
struct BoundedLine {
    /// The whole line, or the start of a long one.
    start: Vec<u8>,
    /// The last bytes of a long line.
    end: Vec<u8>,
    is_long: bool,
}

impl BoundedLine {
    fn push(&mut self, piece: &[u8], limit: usize) {
        if !self.is_long {
            self.start.extend_from_slice(piece);
            if self.start.len() <= limit {
                return;
            }
            self.is_long = true;
            self.end = self.start[self.start.len().saturating_sub(KEPT)..].to_vec();
            self.start.truncate(KEPT);
            self.start.shrink_to_fit();
            return;
        }
        self.end.extend_from_slice(piece);
        self.end.drain(..self.end.len().saturating_sub(KEPT));
    }

    /// Returns the replacement of a long line: an error for the call it answers, or nothing if the
    /// line is a request or notification of the server.
    fn replaced(&self, limit: usize) -> io::Result<Vec<u8>> {
        let head = MessageHead::read(&self.start);
        if head.has_method {
            return Ok(Vec::new());
        }
        let id = head.id.or_else(|| last_id(&self.end));
        let Some(id) = id else {
            let problem = "a message is too long and has no id of the request it answers";
            return Err(io::Error::other(problem));
        };
        let message = too_long(limit);
        let error =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32603, "message": message}});
        Ok(format!("{error}\n").into_bytes())
    }
}

/// The error message for the model when a response is over the limit.
pub(super) fn too_long(limit: usize) -> String {
    crate::prompts::tools::mcp_answer_too_long(limit.div_ceil(1024 * 1024))
}

/// The fields found at the start of a message.
#[derive(Default)]
struct MessageHead {
    id: Option<Json>,
    has_method: bool,
}

impl MessageHead {
    /// Reads the complete top-level fields of a truncated object.
    fn read(start: &[u8]) -> Self {
        let mut head = Self::default();
        let (mut depth, mut at) = (0_usize, 0);
        while let Some(byte) = start.get(at) {
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => {
                    let Some(length) = string_length(&start[at..]) else {
                        break;
                    };
                    let name = &start[at..at + length];
                    at += length;
                    let value = start[at..].trim_ascii_start();
                    if depth == 1
                        && let Some(value) = value.strip_prefix(b":")
                    {
                        head.has_method |= name == b"\"method\"";
                        if name == b"\"id\"" {
                            head.id = head.id.or_else(|| scalar(value));
                        }
                    }
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        head
    }
}

/// Returns the top-level id at the end of a message, if there is one.
fn last_id(end: &[u8]) -> Option<Json> {
    const NAME: &[u8] = b"\"id\":";
    let at = end.windows(NAME.len()).rposition(|part| part == NAME)?;
    let value = &end[at + NAME.len()..];
    let rest = value.iter().filter(|byte| **byte == b'}').count();
    // More than one closing brace means a nested object's id.
    (rest == 1).then(|| scalar(value)).flatten()
}

/// Returns the length of a JSON string with its quotes, if it is complete.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    let end = text.iter().skip(1).position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    })?;
    Some(end + 2)
}

/// Returns the number or string at the start of a text.
fn scalar(text: &[u8]) -> Option<Json> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Json>();
    let value = values.next()?.ok()?;
    (value.is_number() || value.is_string()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    async fn read(input: &str, limit: usize) -> (String, bool) {
        let (mut reader, writer) = tokio::io::duplex(64);
        let copying = copy(input.as_bytes(), writer, limit);
        let mut text = String::new();
        let (copied, read) = tokio::join!(copying, reader.read_to_string(&mut text));
        read.unwrap();
        (text, copied.is_ok())
    }

    fn answered(text: &str) -> Vec<(Json, bool)> {
        let read = |line: &str| {
            let line: Json = serde_json::from_str(line).unwrap();
            (line["id"].clone(), line.get("error").is_some())
        };
        text.lines().map(read).collect()
    }

    #[tokio::test]
    async fn a_long_answer_becomes_an_error_for_its_call() {
        let long = "x".repeat(20_000);
        let first = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"id":1,"a":"{long}"}}}}"#);
        let last = format!(r#"{{"result":{{"id":1,"a":"\"{long}"}}, "id":"q","jsonrpc":"2.0"}}"#);
        let short = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
        let (text, whole) = read(&format!("{first}\n{short}\n{last}\n{short}\n"), 10_000).await;
        let wanted = [
            (json!(7), true),
            (json!(8), false),
            (json!("q"), true),
            (json!(8), false),
        ];
        assert_eq!((answered(&text), whole), (wanted.to_vec(), true));
        assert!(text.contains("longer than 1 MiB"), "{text}");
    }

    #[tokio::test]
    async fn a_long_request_of_the_server_is_passed_over() {
        let long = "x".repeat(20_000);
        let own = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":"{long}"}}"#);
        let short = r#"{"jsonrpc":"2.0","id":8,"result":{}}"#;
        let (text, whole) = read(&format!("{own}\n{short}\n"), 10_000).await;
        assert_eq!((answered(&text), whole), (vec![(json!(8), false)], true));
    }

    #[tokio::test]
    async fn a_long_line_that_answers_nothing_known_ends_the_output() {
        let long = "x".repeat(20_000);
        let (text, whole) = read(&format!("{long}\n{{}}\n"), 10_000).await;
        assert_eq!((text.as_str(), whole), ("", false));
    }
}
