/** Cursor's models as pi's rows. */
import type { ProviderModelConfig } from "@earendil-works/pi-coding-agent";
import { SidecarError } from "./connection.ts";
import type { Sidecar } from "./sidecar.ts";

/** Stands for a key so that pi shows the models before there is one, and `/login` with them. */
export const KEYLESS = "cursor-key-not-given-to-pi";

const METHOD_NOT_FOUND = -32601;

/** What `models/list` answers. */
export type Catalogue = {
  source: "live" | "cache" | "bundled";
  reason?: string | null;
  warnings: string[];
  models: ProviderModelConfig[];
};

/** One row that always works, where nothing better is known. */
export function fallback(reason: string): Catalogue {
  const auto: ProviderModelConfig = {
    id: "auto",
    name: "Cursor Auto",
    reasoning: false,
    input: ["text", "image"],
    cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    contextWindow: 200_000,
    maxTokens: 64_000,
  };
  return { source: "bundled", reason, warnings: [], models: [auto] };
}

/** Asks for the rows. Without `refresh` nothing goes over the network. */
export async function listModels(
  sidecar: Sidecar,
  refresh: boolean,
  apiKey?: string,
): Promise<Catalogue> {
  try {
    const key = apiKey === KEYLESS ? undefined : apiKey;
    const list = sidecar.call as unknown as ListModels;
    return await list.call(sidecar, "models/list", { refresh, apiKey: key });
  } catch (error) {
    if (error instanceof SidecarError && error.code === METHOD_NOT_FOUND) {
      return fallback("this cursor-sidecar cannot list models yet");
    }
    throw error;
  }
}

type ListModels = (
  method: "models/list",
  params: { refresh: boolean; apiKey: string | undefined },
) => Promise<Catalogue>;
