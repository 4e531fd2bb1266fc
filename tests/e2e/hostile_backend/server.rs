//! A server for agent runs that sends arbitrary envelopes for as long as a client reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cursor_proto::agent::v1::*;
use cursor_proto::envelope::{self, Kind};
use prost::Message as _;
use tokio::net::TcpListener;

/// The envelopes of a run.
pub type Envelopes = Box<dyn Iterator<Item = Bytes> + Send>;

/// A client that reads nothing for this long is blocked.
const NO_ROOM: Duration = Duration::from_secs(1);

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    Blocked,
    Accepted,
}

/// A running server; ends with the test.
pub struct HostileServer {
    pub url: String,
    /// Bytes that clients have accepted.
    sent: Arc<AtomicUsize>,
    /// Whether a run is blocked, or has been accepted as a whole.
    states: std::sync::mpsc::Receiver<RunState>,
}

impl HostileServer {
    /// Starts a server that answers every run with these envelopes.
    pub fn start(envelopes: impl Fn() -> Envelopes + Send + Sync + 'static) -> Self {
        let (ready, url) = std::sync::mpsc::channel();
        let sent: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&sent);
        let (report, states) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                ready.send(format!("http://{address}")).unwrap();
                let envelopes = Arc::new(envelopes);
                while let Ok((socket, _)) = listener.accept().await {
                    let (envelopes, counter) = (Arc::clone(&envelopes), Arc::clone(&counter));
                    let report = report.clone();
                    tokio::spawn(async move {
                        let Ok(mut connection) = h2::server::handshake(socket).await else {
                            return;
                        };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            tokio::spawn(drain(request.into_body()));
                            let run =
                                play(respond, envelopes(), Arc::clone(&counter), report.clone());
                            // Ignored, because a client may reset the stream.
                            tokio::spawn(async move { drop(run.await) });
                        }
                    });
                }
            });
        });
        Self {
            url: url.recv().unwrap(),
            sent,
            states,
        }
    }

    /// Waits until a client has accepted nothing for [`NO_ROOM`]; panics if it accepted everything.
    #[track_caller]
    pub fn wait_until_blocked(&self) {
        assert_eq!(self.states.recv().unwrap(), RunState::Blocked);
    }

    /// Returns the bytes of all runs that clients have accepted.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

async fn drain(mut body: h2::RecvStream) {
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
}

async fn play(
    mut respond: h2::server::SendResponse<Bytes>,
    envelopes: Envelopes,
    sent: Arc<AtomicUsize>,
    report: std::sync::mpsc::Sender<RunState>,
) -> Result<(), h2::Error> {
    let head = http::Response::builder()
        .header("content-type", "application/connect+proto")
        .header("connect-content-encoding", "gzip")
        .body(())
        .unwrap();
    let mut stream = respond.send_response(head, false)?;
    for mut envelope in envelopes {
        while !envelope.is_empty() {
            stream.reserve_capacity(envelope.len());
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx));
            let mut room = std::pin::pin!(room);
            let room = match tokio::time::timeout(NO_ROOM, &mut room).await {
                Ok(room) => room,
                Err(_) => {
                    let _ = report.send(RunState::Blocked);
                    room.await
                }
            };
            let Some(room) = room else {
                return Ok(());
            };
            let piece = envelope.split_to(room?.min(envelope.len()));
            sent.fetch_add(piece.len(), Ordering::Relaxed);
            stream.send_data(piece, false)?;
        }
    }
    let _ = report.send(RunState::Accepted);
    stream.send_data(envelope::encode(Kind::EndStream, b"{}"), true)
}

/// Returns an update in its envelope.
pub fn update(message: interaction_update::Message) -> Bytes {
    let update = InteractionUpdate {
        message: Some(message),
        ..InteractionUpdate::default()
    };
    server_message(agent_server_message::Message::InteractionUpdate(update))
}

/// Returns a text delta in its envelope.
pub fn text(text: impl Into<String>) -> Bytes {
    update(interaction_update::Message::TextDelta(TextDeltaUpdate {
        text: text.into(),
        ..TextDeltaUpdate::default()
    }))
}

/// Returns a piece of thinking in its envelope.
pub fn thinking(text: impl Into<String>) -> Bytes {
    let delta = ThinkingDeltaUpdate {
        text: text.into(),
        ..ThinkingDeltaUpdate::default()
    };
    update(interaction_update::Message::ThinkingDelta(delta))
}

/// Returns the end of a turn in its envelope.
pub fn turn_ended() -> Bytes {
    update(interaction_update::Message::TurnEnded(
        TurnEndedUpdate::default(),
    ))
}

/// Returns a blob to store, in its envelope.
pub fn blob(id: u32, bytes: usize) -> Bytes {
    let args = SetBlobArgs {
        blob_id: id.to_be_bytes().to_vec().into(),
        blob_data: vec![b'b'; bytes].into(),
    };
    server_message(agent_server_message::Message::KvServerMessage(
        KvServerMessage {
            id,
            message: Some(kv_server_message::Message::SetBlobArgs(args)),
            ..KvServerMessage::default()
        },
    ))
}

/// Returns a checkpoint in its envelope.
pub fn checkpoint(state: Vec<u8>) -> Bytes {
    server_message(agent_server_message::Message::ConversationCheckpointUpdate(
        state.into(),
    ))
}

fn server_message(message: agent_server_message::Message) -> Bytes {
    let message = AgentServerMessage {
        message: Some(message),
        ..AgentServerMessage::default()
    };
    envelope::encode(Kind::Message, &message.encode_to_vec())
}

/// Returns a compressed envelope of `before` followed by `times` copies of `block`, without holding
/// all of it in memory: flushed blocks can be concatenated.
pub fn packed(before: &[u8], block: &[u8], times: usize) -> Bytes {
    let deflate = |data: &[u8]| {
        let mut packer = flate2::Compress::new(flate2::Compression::best(), false);
        let mut out = Vec::with_capacity(data.len() + 1024);
        let full = flate2::FlushCompress::Full;
        packer.compress_vec(data, &mut out, full).unwrap();
        assert_eq!(packer.total_in(), data.len() as u64);
        out
    };
    let mut crc = flate2::Crc::new();
    crc.update(before);
    let mut block_crc = flate2::Crc::new();
    block_crc.update(block);
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    gzip.extend(deflate(before));
    let packed = deflate(block);
    for _ in 0..times {
        gzip.extend(&packed);
        crc.combine(&block_crc);
    }
    gzip.extend([3, 0]); // an empty block, the last
    gzip.extend(crc.sum().to_le_bytes());
    gzip.extend(crc.amount().to_le_bytes());
    let mut envelope = vec![1];
    envelope.extend((gzip.len() as u32).to_be_bytes());
    envelope.extend(gzip);
    envelope.into()
}

/// Returns the tag and length of a field of this many bytes.
pub fn field(number: u32, bytes: usize) -> Vec<u8> {
    let mut head = Vec::new();
    prost::encoding::encode_key(
        number,
        prost::encoding::WireType::LengthDelimited,
        &mut head,
    );
    prost::encoding::encode_varint(bytes as u64, &mut head);
    head
}
