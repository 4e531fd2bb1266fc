//! A proxy to a server that breaks single streams or the connection where its [`FaultPlan`] says.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WireFault {
    /// The connection is reset.
    Reset,
    /// The connection is closed cleanly.
    GoAway,
    /// The connection stays open and carries nothing more.
    Stall,
    /// Bytes that are not frames, and then nothing.
    Garbage,
    /// The stream ends cleanly before the server has ended it.
    HalfClose,
    /// The stream is reset.
    StreamReset,
    /// The stream stays open and carries nothing more.
    StreamStall,
    /// The stream ends with a retryable error.
    ServerError,
    /// Something happens elsewhere; the wire is unaffected.
    Elsewhere,
}

/// Decides about faults in the frames of runs.
pub trait FaultPlan: Send + Sync + 'static {
    /// Returns whether a frame of this many bytes breaks: after how many of them, and how.
    fn fault_at(&self, bytes: usize) -> Option<(usize, WireFault)>;
    /// Executes [`WireFault::Elsewhere`].
    fn aside(&self) {}
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const HEAD: usize = 9;

/// Opens a wire to `server` and returns its port.
pub fn open(server: SocketAddr, faults: Arc<impl FaultPlan>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let faults = Arc::clone(&faults);
            std::thread::spawn(move || carry(client, server, &*faults));
        }
    });
    port
}

fn carry(mut client: TcpStream, server: SocketAddr, faults: &impl FaultPlan) {
    let Ok(mut server) = TcpStream::connect(server) else {
        return reset(&client);
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut start = [0; 3];
    if client.read_exact(&mut start).is_err() || server.write_all(&start).is_err() {
        return;
    }
    let (mut up, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut up, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let ended = if &start == b"PRI" {
        frames(&mut server, &mut client, faults)
    } else {
        answers(&server, &mut client, faults)
    };
    if ended.is_err() {
        reset(&client);
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

fn frame(kind: u8, flags: u8, stream: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream);
    frame.extend(payload);
    frame
}

/// Returns an end of stream with a retryable error.
fn unavailable() -> Vec<u8> {
    let body = br#"{"error":{"code":"unavailable","message":"the server is busy"}}"#;
    let mut envelope = vec![2];
    envelope.extend((body.len() as u32).to_be_bytes());
    envelope.extend(body);
    envelope
}

/// Forwards frames until one end closes or the wire breaks.
fn frames(
    server: &mut TcpStream,
    client: &mut TcpStream,
    faults: &impl FaultPlan,
) -> std::io::Result<()> {
    // Streams that are no longer forwarded.
    let mut mute = HashSet::new();
    loop {
        let mut bytes = vec![0; HEAD];
        server.read_exact(&mut bytes)?;
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        bytes.resize(HEAD + length, 0);
        server.read_exact(&mut bytes[HEAD..])?;
        let (kind, stream) = (bytes[3], [bytes[5], bytes[6], bytes[7], bytes[8]]);
        // HPACK compression depends on earlier headers, so none may be dropped.
        if mute.contains(&stream) && kind != HEADERS {
            continue;
        }
        let strike = if kind == DATA && length > 0 {
            faults.fault_at(bytes.len())
        } else {
            None
        };
        let Some((whole, how)) = strike else {
            client.write_all(&bytes)?;
            continue;
        };
        client.write_all(&bytes[..whole])?;
        match how {
            WireFault::Elsewhere => {
                faults.aside();
                client.write_all(&bytes[whole..])?;
                continue;
            }
            WireFault::Reset => return Err(std::io::Error::other("reset")),
            WireFault::GoAway => {
                // A frame must be complete before another can follow it.
                if whole > 0 {
                    client.write_all(&bytes[whole..])?;
                }
                client.write_all(&frame(GOAWAY, 0, [0; 4], &[0, 0, 0, 1, 0, 0, 0, 0]))?;
                return Ok(());
            }
            WireFault::Stall => return hold(server),
            WireFault::Garbage => {
                client.write_all(&[0xa5; 64])?;
                return hold(server);
            }
            // Within a frame, only the connection can end.
            _ if whole > 0 => return Ok(()),
            WireFault::HalfClose => client.write_all(&frame(DATA, END_STREAM, stream, &[]))?,
            WireFault::StreamReset => {
                client.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 2]))?
            }
            WireFault::ServerError => {
                client.write_all(&frame(DATA, END_STREAM, stream, &unavailable()))?;
            }
            WireFault::StreamStall => {}
        }
        mute.insert(stream);
    }
}

/// Forwards HTTP/1.1 responses; those of runs may break before or within a chunk.
fn answers(
    server: &TcpStream,
    client: &mut TcpStream,
    faults: &impl FaultPlan,
) -> std::io::Result<()> {
    let mut server = BufReader::new(server);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if server.read_line(&mut head)? == 0 {
                return client.write_all(head.as_bytes());
            }
        }
        client.write_all(head.as_bytes())?;
        let head = head.to_ascii_lowercase();
        if !head.contains("transfer-encoding: chunked") {
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
            std::io::copy(&mut (&mut server).take(length.unwrap_or(0)), client)?;
            continue;
        }
        let run = head.contains("content-type: application/connect+proto");
        loop {
            let bytes = chunk(&mut server)?;
            let last = bytes.starts_with(b"0\r\n");
            let strike = if run && !last {
                faults.fault_at(bytes.len())
            } else {
                None
            };
            let Some((whole, how)) = strike else {
                client.write_all(&bytes)?;
                if last { break } else { continue }
            };
            client.write_all(&bytes[..whole])?;
            let error = unavailable();
            match how {
                WireFault::Elsewhere => {
                    faults.aside();
                    client.write_all(&bytes[whole..])?;
                    continue;
                }
                WireFault::Reset | WireFault::StreamReset => {
                    return Err(std::io::Error::other("reset"));
                }
                WireFault::Stall | WireFault::StreamStall => return hold(&mut server),
                WireFault::Garbage => {
                    client.write_all(&[0xa5; 64])?;
                    return hold(&mut server);
                }
                // Within a chunk, only the connection can end.
                WireFault::GoAway => {}
                _ if whole > 0 => {}
                WireFault::HalfClose => client.write_all(b"0\r\n\r\n")?,
                WireFault::ServerError => {
                    write!(client, "{:x}\r\n", error.len())?;
                    client.write_all(&[&error[..], b"\r\n0\r\n\r\n"].concat())?;
                }
            }
            return Ok(());
        }
    }
}

/// Reads one chunk, unchanged.
fn chunk(server: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut size = String::new();
    server.read_line(&mut size)?;
    let Ok(length) = usize::from_str_radix(size.trim(), 16) else {
        return Err(std::io::Error::other("no chunk"));
    };
    let head = size.len();
    let mut bytes = size.into_bytes();
    bytes.resize(head + length + 2, 0);
    server.read_exact(&mut bytes[head..])?;
    Ok(bytes)
}

/// Reads the server to its end and forwards nothing.
fn hold(server: &mut impl Read) -> std::io::Result<()> {
    std::io::copy(server, &mut std::io::sink()).map(drop)
}

/// Resets a connection instead of closing it.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}
