//! A wire that breaks once, at a chosen place of what the server says.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Where it breaks, counted over everything the server sends on runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before the frame with this number.
    Frame(usize),
    /// Behind this many bytes.
    Byte(usize),
}

/// How it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    Reset,
    GoAway,
    HalfClose,
    Stall,
    Garbage,
    /// Something else happens than on the wire; see [`Proxy::new`].
    Aside,
}

/// What a wire has carried, and what is still to happen to it.
struct Wire {
    frames: usize,
    bytes: usize,
    fault: Option<(Place, Break)>,
    aside: Box<dyn FnMut() + Send>,
}

/// A wire in front of a server.
pub struct Proxy {
    pub port: u16,
    wire: Arc<Mutex<Wire>>,
}

const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const HEAD: usize = 9;

impl Proxy {
    /// In front of `server`; `aside` is called where a [`Break::Aside`] happens.
    pub fn new(
        server: SocketAddr,
        fault: Option<(Place, Break)>,
        aside: impl FnMut() + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let wire = Arc::new(Mutex::new(Wire {
            frames: 0,
            bytes: 0,
            fault,
            aside: Box::new(aside),
        }));
        let shared = Arc::clone(&wire);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let wire = Arc::clone(&shared);
                std::thread::spawn(move || carry(client, server, &wire));
            }
        });
        Self { port, wire }
    }

    /// Frames and bytes of runs that were carried.
    pub fn carried(&self) -> (usize, usize) {
        let wire = self.wire.lock().unwrap();
        (wire.frames, wire.bytes)
    }

    /// Whether what was to happen has happened.
    pub fn broke(&self) -> bool {
        self.wire.lock().unwrap().fault.is_none()
    }
}

fn carry(mut client: TcpStream, server: SocketAddr, wire: &Mutex<Wire>) {
    let Ok(mut server) = TcpStream::connect(server) else {
        return reset(&client);
    };
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
        true => frames(&mut server, &mut client, wire),
        false => std::io::copy(&mut server, &mut client).map(drop),
    };
    if ended.is_err() {
        reset(&client);
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// Carries frames until one end is gone or the wire breaks.
fn frames(
    server: &mut TcpStream,
    client: &mut TcpStream,
    wire: &Mutex<Wire>,
) -> std::io::Result<()> {
    loop {
        let mut frame = vec![0; HEAD];
        server.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
        frame.resize(HEAD + length, 0);
        server.read_exact(&mut frame[HEAD..])?;
        if frame[3] != DATA || length == 0 {
            client.write_all(&frame)?;
            continue;
        }
        let stream = [frame[5], frame[6], frame[7], frame[8]];
        let mut wire = wire.lock().unwrap();
        let here = match wire.fault {
            Some((Place::Frame(number), how)) if wire.frames == number => Some((0, how)),
            Some((Place::Byte(number), how)) if number < wire.bytes + frame.len() => {
                Some((number - wire.bytes.min(number), how))
            }
            _ => None,
        };
        wire.frames += 1;
        wire.bytes += frame.len();
        let Some((whole, how)) = here else {
            drop(wire);
            client.write_all(&frame)?;
            continue;
        };
        wire.fault = None;
        client.write_all(&frame[..whole])?;
        match how {
            Break::Aside => {
                (wire.aside)();
                drop(wire);
                client.write_all(&frame[whole..])?;
            }
            Break::Reset => return Err(std::io::Error::other("reset")),
            Break::GoAway => {
                // A frame must be whole before another can follow it.
                if whole > 0 {
                    client.write_all(&frame[whole..])?;
                }
                let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
                client.write_all(&goaway)?;
                return Ok(());
            }
            Break::HalfClose => {
                if whole > 0 {
                    return Ok(());
                }
                let mut end = vec![0, 0, 0, DATA, END_STREAM];
                end.extend(stream);
                client.write_all(&end)?;
                drop(wire);
                // The connection stays; this run has nothing more to say.
                return hold(server);
            }
            Break::Stall => {
                drop(wire);
                return hold(server);
            }
            Break::Garbage => {
                client.write_all(&[0xa5; 64])?;
                drop(wire);
                return hold(server);
            }
        }
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
