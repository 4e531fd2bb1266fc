//! Where a trial breaks, once: counted over everything the server sends on runs.

use std::sync::Mutex;

use crate::wire::{Break, Weather};

/// A place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Before the frame with this number.
    Frame(usize),
    /// Behind this many bytes.
    Byte(usize),
    /// While the host executes the tools of this round.
    Pause(usize),
}

/// Breaks once.
pub struct Once {
    wire: Mutex<Carried>,
    aside: Box<dyn Fn() + Send + Sync>,
}

struct Carried {
    frames: usize,
    bytes: usize,
    pauses: usize,
    fault: Option<(Place, Break)>,
}

impl Once {
    /// `aside` is called where a [`Break::Aside`] happens.
    pub fn new(fault: Option<(Place, Break)>, aside: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            wire: Mutex::new(Carried {
                frames: 0,
                bytes: 0,
                pauses: 0,
                fault,
            }),
            aside: Box::new(aside),
        }
    }

    /// Frames and bytes of runs that were carried.
    pub fn carried(&self) -> (usize, usize) {
        let wire = self.wire.lock().unwrap();
        (wire.frames, wire.bytes)
    }

    /// The host has tools to execute; whether something happens before it has.
    pub fn strikes_pause(&self) -> bool {
        let struck = {
            let mut wire = self.wire.lock().unwrap();
            wire.pauses += 1;
            let now = Place::Pause(wire.pauses - 1);
            wire.fault.take_if(|(place, _)| *place == now).is_some()
        };
        if struck {
            (self.aside)();
        }
        struck
    }

    /// Whether what was to happen has happened.
    pub fn broke(&self) -> bool {
        self.wire.lock().unwrap().fault.is_none()
    }
}

impl Weather for Once {
    fn strikes(&self, bytes: usize) -> Option<(usize, Break)> {
        let mut wire = self.wire.lock().unwrap();
        let here = match wire.fault {
            Some((Place::Frame(number), how)) if wire.frames == number => Some((0, how)),
            Some((Place::Byte(number), how)) if number < wire.bytes + bytes => {
                Some((number - wire.bytes.min(number), how))
            }
            _ => None,
        };
        wire.frames += 1;
        wire.bytes += bytes;
        if here.is_some() {
            wire.fault = None;
        }
        here
    }

    fn aside(&self) {
        (self.aside)();
    }
}
