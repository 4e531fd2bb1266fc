//! A wire that breaks again and again, by chance: single streams often, whole connections now
//! and then.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::chance::Chance;

/// One frame in so many breaks its stream, or its connection.
#[derive(Debug, Clone, Copy)]
pub struct Odds {
    pub stream: u64,
    pub connection: u64,
}

/// What all connections share.
struct Weather {
    odds: Odds,
    calm: AtomicBool,
    chance: Mutex<Chance>,
    /// What has happened so far.
    seen: Mutex<BTreeMap<&'static str, u64>>,
}

/// The wire.
pub struct Wire {
    pub port: u16,
    weather: Arc<Weather>,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const HEAD: usize = 9;
const STREAM_FAULTS: [&str; 4] = ["stream reset", "half-close", "stream stall", "server error"];
const CONNECTION_FAULTS: [&str; 4] = ["reset", "goaway", "stall", "garbage"];

impl Wire {
    pub fn new(server: SocketAddr, odds: Odds, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let weather = Arc::new(Weather {
            odds,
            calm: AtomicBool::new(false),
            chance: Mutex::new(Chance::new(seed)),
            seen: Mutex::default(),
        });
        let shared = Arc::clone(&weather);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let weather = Arc::clone(&shared);
                std::thread::spawn(move || carry(client, server, &weather));
            }
        });
        Self { port, weather }
    }

    /// Nothing breaks while it is calm.
    pub fn calm(&self, calm: bool) {
        self.weather.calm.store(calm, Ordering::Relaxed);
    }

    /// What has broken so far.
    pub fn seen(&self) -> BTreeMap<&'static str, u64> {
        self.weather.seen.lock().unwrap().clone()
    }
}

impl Weather {
    /// The fault of this frame, if any.
    fn strikes(&self) -> Option<&'static str> {
        if self.calm.load(Ordering::Relaxed) {
            return None;
        }
        let mut chance = self.chance.lock().unwrap();
        let kinds = if chance.once_in(self.odds.connection) {
            CONNECTION_FAULTS
        } else if chance.once_in(self.odds.stream) {
            STREAM_FAULTS
        } else {
            return None;
        };
        let fault = kinds[chance.below(kinds.len() as u64) as usize];
        *self.seen.lock().unwrap().entry(fault).or_default() += 1;
        Some(fault)
    }
}

fn carry(mut client: TcpStream, server: SocketAddr, weather: &Weather) {
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
    // Runs go over HTTP/2; the rest is left alone.
    let ended = match &start == b"PRI" {
        true => frames(&mut server, &mut client, weather),
        false => std::io::copy(&mut server, &mut client).map(drop),
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

/// An end of stream with an error that may pass.
fn unavailable() -> Vec<u8> {
    let body = br#"{"error":{"code":"unavailable","message":"the server is busy"}}"#;
    let mut envelope = vec![2];
    envelope.extend((body.len() as u32).to_be_bytes());
    envelope.extend(body);
    envelope
}

fn frames(
    server: &mut TcpStream,
    client: &mut TcpStream,
    weather: &Weather,
) -> std::io::Result<()> {
    // Streams of which the client hears nothing more.
    let mut mute = HashSet::new();
    loop {
        let mut bytes = vec![0; HEAD];
        server.read_exact(&mut bytes)?;
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        bytes.resize(HEAD + length, 0);
        server.read_exact(&mut bytes[HEAD..])?;
        let (kind, stream) = (bytes[3], [bytes[5], bytes[6], bytes[7], bytes[8]]);
        // Headers are packed with what went before: none may be missing.
        if mute.contains(&stream) && kind != HEADERS {
            continue;
        }
        let fault = match kind == DATA && length > 0 {
            true => weather.strikes(),
            false => None,
        };
        let Some(fault) = fault else {
            client.write_all(&bytes)?;
            continue;
        };
        match fault {
            "reset" => return Err(std::io::Error::other("reset")),
            "goaway" => {
                client.write_all(&frame(7, 0, [0; 4], &[0, 0, 0, 1, 0, 0, 0, 0]))?;
                return Ok(());
            }
            "stall" => return hold(server),
            "garbage" => {
                client.write_all(&[0xa5; 64])?;
                return hold(server);
            }
            "stream reset" => client.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 2]))?,
            "half-close" => client.write_all(&frame(DATA, END_STREAM, stream, &[]))?,
            "server error" => client.write_all(&frame(DATA, END_STREAM, stream, &unavailable()))?,
            _ => {}
        }
        mute.insert(stream);
    }
}

/// Hears the server out without passing anything on.
fn hold(server: &mut TcpStream) -> std::io::Result<()> {
    std::io::copy(server, &mut std::io::sink()).map(drop)
}

/// Drops a connection the hard way.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
}
