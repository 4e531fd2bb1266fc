// What the gateway sends, in the types of the official libraries. `gateway_types.rs` compiles every body
// and event with them. Everything that a library's type does not have is declared here.
import type { ErrorResponse, MessageTokensCount, RawMessageStreamEvent, Message } from "@anthropic-ai/sdk/resources";
import type { PageResponse as AnthropicPage } from "@anthropic-ai/sdk/core/pagination";
import type { ModelInfo } from "@anthropic-ai/sdk/resources/models";
import type { PageResponse as OpenAiPage } from "openai/core/pagination";
import type { ChatCompletion, ChatCompletionChunk } from "openai/resources/chat/completions";
import type { Model as OpenAiModel } from "openai/resources/models";
import type { Response, ResponseError, ResponseStreamEvent } from "openai/resources/responses/responses";
import type { ErrorObject } from "openai/resources/shared";

/** Thinking, as other providers of chat completions send it. */
interface Reasoning {
  reasoning_content?: string;
}

type Choice = ChatCompletion.Choice;
export type Chat = Omit<ChatCompletion, "choices"> & {
  choices: Array<Omit<Choice, "message"> & { message: Choice["message"] & Reasoning }>;
};

type ChunkChoice = ChatCompletionChunk.Choice;
type Chunk = Omit<ChatCompletionChunk, "choices"> & {
  choices: Array<Omit<ChunkChoice, "delta"> & { delta: ChunkChoice["delta"] & Reasoning }>;
};
export type ChatEvent = Chunk | OpenAiError | "[DONE]";

/**
 * The library adds `output_text`, and knows `store` in requests only. Codex compacts its history if the
 * code says so.
 */
type Codes = ResponseError["code"] | "context_length_exceeded";
export type ResponseBody = Omit<Response, "output_text" | "error"> & {
  error: (Omit<ResponseError, "code"> & { code: Codes }) | null;
  store: boolean;
};
type Sent<E> =
  E extends { response: Response } ? Omit<E, "response"> & { response: ResponseBody }
  // Earlier versions of the libraries require it.
  : E extends { type: "response.function_call_arguments.done" } ? E & { name: string }
  : E;
export type ResponseEvent = Sent<ResponseStreamEvent>;

export type MessageBody = Message;
/** The library reads `ping` and errors before it returns the others. */
export type MessageEvent = RawMessageStreamEvent | { type: "ping" } | AnthropicError;
export type TokenCount = MessageTokensCount;

/** `nearest` has the models with similar names. */
export type OpenAiError = { error: ErrorObject & { nearest?: string[] } };
/** The library's `ErrorObject` lacks the type for bodies that are too long, which its documentation has. */
export type AnthropicError =
  | ErrorResponse
  | (Omit<ErrorResponse, "error"> & { error: { type: "request_too_large"; message: string } });

/** One list serves the clients of both. */
export type Model = OpenAiModel & ModelInfo & { context_window: number };
export type Models = OpenAiPage<Model> & AnthropicPage<Model>;
