//! Plays the steps that cause faults.

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::json;

use super::Player;
use crate::exchange::ResponsePart;
use crate::scenario::ServerFault;
use crate::schema;
use crate::server_run::{RunStop, envelope_prefix};
use cursor_proto::envelope::{self, Kind};

impl Player<'_> {
    pub(super) async fn fault(&mut self, fault: &ServerFault) -> Result<ControlFlow<()>, RunStop> {
        let run = &mut *self.run;
        match fault {
            ServerFault::Reset(code) => {
                run.fault("reset", json!({ "code": code }), ResponsePart::Reset(*code))
                    .await?;
            }
            ServerFault::GoAway(code) => {
                run.fault(
                    "goaway",
                    json!({ "code": code }),
                    ResponsePart::GoAway(*code),
                )
                .await?;
            }
            ServerFault::Cut => run.fault("cut", json!({}), ResponsePart::Cut).await?,
            ServerFault::HalfClose => run.half_close().await?,
            ServerFault::Stall => {
                run.set_heartbeats(false);
                loop {
                    if run.wait_for_disconnect(Duration::from_secs(3600)).await? {
                        return Err(RunStop::ClientLeft);
                    }
                }
            }
            ServerFault::Truncate(bytes) => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": "this envelope is cut short" } } });
                let payload = schema::encode(schema::SERVER_MESSAGE, &message)
                    .map_err(|error| RunStop::Failed(error.to_string()))?;
                let wire = envelope::encode(Kind::Message, &payload);
                let keep = (*bytes).min(wire.len() - 1);
                run.send_raw("truncate", wire.slice(..keep)).await?;
                run.half_close().await?;
            }
            ServerFault::Garbage(bytes) => {
                run.send_raw("garbage", bytes.clone()).await?;
                return Ok(ControlFlow::Continue(()));
            }
            ServerFault::Oversized(size) => {
                run.send_raw("oversized", envelope_prefix(*size)).await?;
                return Ok(ControlFlow::Continue(()));
            }
            ServerFault::Drip { text, bytes, every } => {
                let message = json!({ "interactionUpdate": { "textDelta": { "text": text } } });
                run.drip(&message, *bytes, *every).await?;
                return Ok(ControlFlow::Continue(()));
            }
            ServerFault::HoldWindow => {
                run.hold_window();
                return Ok(ControlFlow::Continue(()));
            }
        }
        Ok(ControlFlow::Break(()))
    }
}
