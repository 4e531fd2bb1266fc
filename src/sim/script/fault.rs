//! Steps no good server takes.

use std::time::Duration;

use serde_json::json;

use super::{Flow, Player};
use crate::sim::exchange::Reply;
use crate::sim::scenario::Fault;
use crate::sim::schema;
use crate::sim::session::{Pulse, Stop, prefix};
use crate::wire::envelope::{self, Kind};

impl Player<'_> {
    pub(super) async fn fault(&mut self, fault: &Fault) -> Result<Flow, Stop> {
        let session = &mut *self.session;
        match fault {
            Fault::Reset(code) => {
                session
                    .fault("reset", json!({ "code": code }), Reply::Reset(*code))
                    .await?;
            }
            Fault::GoAway(code) => {
                session
                    .fault("goaway", json!({ "code": code }), Reply::GoAway(*code))
                    .await?;
            }
            Fault::Cut => session.fault("cut", json!({}), Reply::Cut).await?,
            Fault::HalfClose => session.half_close().await?,
            Fault::Stall => {
                session.set_pulse(Pulse::Still);
                loop {
                    if session.until_left(Duration::from_secs(3600)).await? {
                        return Err(Stop::ClientLeft);
                    }
                }
            }
            Fault::Truncate(bytes) => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": "this envelope is cut short" } } });
                let payload = schema::encode(schema::SERVER_MESSAGE, &message)
                    .map_err(|error| Stop::Failed(error.to_string()))?;
                let wire = envelope::encode(Kind::Message, &payload);
                let keep = (*bytes).min(wire.len() - 1);
                session.send_raw("truncate", wire.slice(..keep)).await?;
                session.half_close().await?;
            }
            Fault::Garbage(bytes) => {
                session.send_raw("garbage", bytes.clone()).await?;
                return Ok(Flow::GoOn);
            }
            Fault::Oversized(size) => {
                session.send_raw("oversized", prefix(*size)).await?;
                return Ok(Flow::GoOn);
            }
            Fault::Drip { text, bytes, every } => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": text } } });
                session.drip(&message, *bytes, *every).await?;
                return Ok(Flow::GoOn);
            }
            Fault::HoldWindow => {
                session.hold_window();
                return Ok(Flow::GoOn);
            }
        }
        Ok(Flow::Over)
    }
}
