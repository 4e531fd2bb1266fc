/** `cursor_ask_question`: lets Cursor's agent ask the person at this pi. */
import type { ExtensionAPI, ExtensionUIContext } from "@earendil-works/pi-coding-agent";

const NAME = "cursor_ask_question";
const OWN_WORDS = "Type a custom answer";
const text = { type: "string" };
const list = { type: "array", items: {} };
const custom = { type: "boolean" };
const one = { question: text, prompt: text, options: list, choices: list, allowCustom: custom };
const items = { type: "object", properties: { id: text, ...one } };
const parameters = { type: "object", properties: { ...one, questions: { ...list, items } } };
type Option = { label?: string; value?: string; description?: string };
type Lists = { [name in "options" | "choices"]?: (string | Option)[] };
type Question = Lists & { id?: string; question?: string; prompt?: string; allowCustom?: boolean };
type Tool = Parameters<ExtensionAPI["registerTool"]>[0];

async function ask(ui: ExtensionUIContext, question: Question, dialog: { signal?: AbortSignal }) {
  const title = question.question ?? question.prompt ?? "";
  const choices = new Map<string, string>();
  for (const option of question.options ?? question.choices ?? []) {
    const { label, value = label, description }: Option = Object(option);
    const shown = label ?? value ?? `${option}`;
    choices.set(description ? `${shown}: ${description}` : shown, value ?? shown);
  }
  if (choices.size === 0) return ui.input(title, undefined, dialog);
  const own = question.allowCustom === false ? [] : [OWN_WORDS];
  const chosen = await ui.select(title, [...choices.keys(), ...own], dialog);
  return chosen === OWN_WORDS ? ui.input(title, undefined, dialog) : choices.get(chosen ?? "");
}

export function registerQuestion(pi: ExtensionAPI): void {
  const about = { label: "Question", description: "Ask the user one question or several" };
  const execute = async (...[, params, signal, , ctx]: Parameters<Tool["execute"]>) => {
    const { questions = [], ...single } = params as Question & { questions?: Question[] };
    const asked = questions.length > 0 ? questions : [single];
    if (!asked.every((item) => item.question ?? item.prompt)) throw new Error("Nothing is asked.");
    if (!ctx.hasUI) throw new Error("UI is unavailable: state your assumption and go on.");
    const answers: { id: string; answer: string }[] = [];
    for (const question of asked) {
      const answer = await ask(ctx.ui, question, { signal });
      if (answer === undefined) break;
      answers.push({ id: question.id ?? `${answers.length + 1}`, answer });
    }
    const lines = answers.map((one) => (asked.length > 1 ? `\n- ${one.id}: ` : "") + one.answer);
    const whole = answers.length === asked.length;
    const text = whole ? `User answered: ${lines.join("")}` : "User cancelled the question.";
    return { content: [{ type: "text" as const, text }], details: { answers } };
  };
  pi.registerTool({ name: NAME, ...about, parameters, execute });
  // Other models have no use for it; what the user turned off stays off.
  let hidden = false;
  const show = (cursor: boolean) => {
    const active = pi.getActiveTools();
    if (cursor === active.includes(NAME) || (cursor && !hidden)) return;
    hidden = !cursor;
    pi.setActiveTools(cursor ? [...active, NAME] : active.filter((name) => name !== NAME));
  };
  pi.on("session_start", (_, ctx) => show(ctx.model?.provider === "cursor"));
  pi.on("model_select", ({ model }) => show(model.provider === "cursor"));
}
