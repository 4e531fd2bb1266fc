//! Replies that need no executor: blob requests and interaction queries.

use super::blobs::{BlobError, Blobs};
use super::limits::LimitError;
use crate::prompts;
use cursor_proto::agent::v1::*;
use cursor_proto::drift::Drift;

/// Returns the one reply to a blob request, and the size limit it exceeded, if any.
pub(super) fn kv(
    blobs: &dyn Blobs,
    request: KvServerMessage,
    drift: &Drift,
) -> (KvClientMessage, Option<LimitError>) {
    use kv_client_message::Message as Reply;
    use kv_server_message::Message as Request;
    let failed = |error: &BlobError| Error {
        message: error.to_string(),
    };
    let mut limit = None;
    let message = match request.message {
        Some(Request::GetBlobArgs(args)) => match blobs.get(&args.blob_id) {
            Ok(blob_data) => Reply::GetBlobResult(GetBlobResult {
                blob_data,
                error: None,
            }),
            Err(error) => Reply::GetBlobResult(GetBlobResult {
                blob_data: None,
                error: Some(failed(&error)),
            }),
        },
        Some(Request::SetBlobArgs(args)) => {
            let refused = blobs.set(&args.blob_id, args.blob_data).err();
            if let Some(BlobError::Full(over)) = &refused {
                limit = Some(*over);
            }
            Reply::SetBlobResult(SetBlobResult {
                error: refused.as_ref().map(failed),
            })
        }
        None => {
            drift.count("kv: unknown request");
            Reply::GetBlobResult(GetBlobResult {
                blob_data: None,
                error: Some(Error {
                    message: "this client does not know this blob request".into(),
                }),
            })
        }
    };
    let reply = KvClientMessage {
        id: request.id,
        message: Some(message),
    };
    (reply, limit)
}

/// Returns the fixed answer to a query when the user cannot be asked: the one the official client
/// sends in local runs. An unknown query gets an empty answer, because every query needs one.
pub(super) fn question(query: InteractionQuery, drift: &Drift) -> InteractionResponse {
    use interaction_query::Query;
    use interaction_response::Result as Answer;
    let result = match query.query {
        Some(Query::WebSearchRequestQuery(_)) => {
            use web_search_request_response::{Approved, Result};
            Some(Answer::WebSearchRequestResponse(WebSearchRequestResponse {
                result: Some(Result::Approved(Approved {})),
            }))
        }
        Some(Query::WebFetchRequestQuery(_)) => {
            use web_fetch_request_response::{Approved, Result};
            Some(Answer::WebFetchRequestResponse(WebFetchRequestResponse {
                result: Some(Result::Approved(Approved {})),
            }))
        }
        Some(Query::SwitchModeRequestQuery(_)) => {
            use switch_mode_request_response::{Approved, Result};
            Some(Answer::SwitchModeRequestResponse(
                SwitchModeRequestResponse {
                    result: Some(Result::Approved(Approved {})),
                },
            ))
        }
        Some(Query::GenerateImageRequestQuery(query)) => {
            use generate_image_request_response::{Approved, Result};
            let description = query.args.map(|args| args.description).unwrap_or_default();
            Some(Answer::GenerateImageRequestResponse(
                GenerateImageRequestResponse {
                    result: Some(Result::Approved(Approved { description })),
                },
            ))
        }
        Some(Query::CreatePlanRequestQuery(_)) => Some(Answer::CreatePlanRequestResponse(
            CreatePlanRequestResponse {
                result: Some(CreatePlanResult {
                    result: Some(create_plan_result::Result::Success(CreatePlanSuccess {})),
                    plan_uri: String::new(),
                }),
            },
        )),
        Some(Query::SetupVmEnvironmentArgs(_)) => {
            Some(Answer::SetupVmEnvironmentResult(SetupVmEnvironmentResult {
                result: Some(setup_vm_environment_result::Result::Success(
                    SetupVmEnvironmentSuccess {},
                )),
            }))
        }
        Some(Query::AskQuestionInteractionQuery(_)) => Some(
            Answer::AskQuestionInteractionResponse(AskQuestionInteractionResponse {
                result: Some(AskQuestionResult {
                    result: Some(ask_question_result::Result::Rejected(AskQuestionRejected {
                        reason: prompts::NO_USER.into(),
                    })),
                }),
            }),
        ),
        Some(Query::McpAuthRequestQuery(_)) => {
            use mcp_auth_request_response::{Rejected, Result};
            Some(Answer::McpAuthRequestResponse(McpAuthRequestResponse {
                result: Some(Result::Rejected(Rejected {
                    reason: "this client cannot authorize MCP servers".into(),
                })),
            }))
        }
        Some(Query::ConnectScmRequestQuery(_)) => {
            use connect_scm_request_response::{Rejected, Result};
            Some(Answer::ConnectScmRequestResponse(
                ConnectScmRequestResponse {
                    result: Some(Result::Rejected(Rejected {
                        reason: "this client cannot connect source control".into(),
                    })),
                },
            ))
        }
        Some(Query::PrManagementRequestQuery(_)) => {
            Some(Answer::PrManagementResult(PrManagementResult {
                result: Some(pr_management_result::Result::Error(PrManagementError {
                    error: "this client does not manage pull requests".into(),
                })),
            }))
        }
        Some(Query::ReplaceEnvArgs(_)) => Some(Answer::ReplaceEnvResult(ReplaceEnvResult {
            result: Some(replace_env_result::Result::Failure(ReplaceEnvFailure {
                error_message: "this client cannot replace its environment".into(),
                ..ReplaceEnvFailure::default()
            })),
        })),
        None => {
            drift.count("query: unknown question");
            None
        }
    };
    InteractionResponse {
        id: query.id,
        result,
    }
}

/// Why a cancelled run rejects requests.
pub(super) const RUN_CANCELLED: &str = "the run was cancelled";

/// Returns the answer of a cancelled run, which permits nothing.
pub(super) fn declined(query: InteractionQuery, drift: &Drift) -> InteractionResponse {
    use interaction_response::Result as Answer;
    let reason = || RUN_CANCELLED.to_owned();
    let mut response = question(query, drift);
    match &mut response.result {
        Some(Answer::WebSearchRequestResponse(answer)) => {
            use web_search_request_response::{Rejected, Result};
            answer.result = Some(Result::Rejected(Rejected { reason: reason() }));
        }
        Some(Answer::WebFetchRequestResponse(answer)) => {
            use web_fetch_request_response::{Rejected, Result};
            answer.result = Some(Result::Rejected(Rejected { reason: reason() }));
        }
        Some(Answer::SwitchModeRequestResponse(answer)) => {
            use switch_mode_request_response::{Rejected, Result};
            answer.result = Some(Result::Rejected(Rejected { reason: reason() }));
        }
        Some(Answer::GenerateImageRequestResponse(answer)) => {
            use generate_image_request_response::{Rejected, Result};
            answer.result = Some(Result::Rejected(Rejected { reason: reason() }));
        }
        Some(Answer::CreatePlanRequestResponse(answer)) => {
            let error = CreatePlanError { error: reason() };
            answer.result = Some(CreatePlanResult {
                result: Some(create_plan_result::Result::Error(error)),
                plan_uri: String::new(),
            });
        }
        // This answer has no variant for a rejection.
        Some(Answer::SetupVmEnvironmentResult(answer)) => answer.result = None,
        // The remaining answers are rejections already.
        _ => {}
    }
    response
}
