/** Cursor's models as pi's rows. */
import type { ProviderModelConfig } from "@earendil-works/pi-coding-agent";
import type { ModelsListResult } from "./protocol.ts";

/** Stands for a key so that pi shows the models before there is one, and `/login` with them. */
export const KEYLESS = "cursor-key-not-given-to-pi";

/** Neither tokens nor money. */
export const NOTHING = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

/** A key pi gave us, if it is one. */
export const realKey = (key: string | undefined) => (key === KEYLESS ? undefined : key);

/** The rows as pi takes them; what it does not know, it does not mind. */
export const toRows = ({ models }: ModelsListResult) => models as ProviderModelConfig[];

/** One row where there is no sidecar to ask: the first turn with it tells what is wrong. */
export function fallback(problem: string): ModelsListResult {
  const model = { id: "auto", name: "Cursor Auto", base: "auto" };
  const abilities = { reasoning: false, supportsFast: false, input: ["text" as const] };
  const limits = { contextWindow: 200_000, maxTokens: 64_000 };
  const models = [{ ...model, ...abilities, ...limits, cost: NOTHING }];
  return { source: "bundled", warnings: [problem], models };
}
