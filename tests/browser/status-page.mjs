// Drives the gateway's status page in Chromium, while a client of the gateway has a turn that waits
// for one of its tools. Prints what it saw; exits with an error if something is not as it must be.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const { GATEWAY_URL: url, GATEWAY_TOKEN: token, CHROMIUM: executablePath, PICTURES: pictures } = process.env;
const root = url.replace(/\/v1$/, "");
const NAME = '<script>window.bad = 1</script><img src=x onerror="window.bad = 1">';

const messages = [{ role: "system", content: "Working directory: /home/ada/engine" }, { role: "user", content: "go" }];
const parameters = { type: "object", properties: { file: { type: "string" } } };
const tools = [{ type: "function", function: { name: "look", description: "looks", parameters } }];

/** Sends a turn of the client and returns its answer. */
async function turn() {
  const headers = { authorization: `Bearer ${token}`, "x-session-id": NAME, "user-agent": "engine-editor/1.2" };
  const body = JSON.stringify({ model: "composer-2", messages, tools });
  const answer = await (await fetch(`${url}/chat/completions`, { method: "POST", headers, body })).json();
  assert.ok(answer.choices, JSON.stringify(answer));
  messages.push(answer.choices[0].message);
  return answer.choices[0].message;
}

const folder = mkdtempSync(join(tmpdir(), "status-page-"));
const browser = await chromium.launchPersistentContext(folder, {
  executablePath,
  chromiumSandbox: false,
  viewport: { width: 1180, height: 900 },
  colorScheme: "light",
  args: ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(60000);
  const foreign = [];
  const problems = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(`${root}/`) && !request.url().startsWith("data:")) foreign.push(request.url());
    if (request.url().includes(token) || request.headers().referer?.includes(token)) foreign.push("the token");
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !message.text().includes("401")) problems.push(message.text());
  });

  // Without the token: 401, and nothing of the gateway's state.
  await turn();
  const refused = await page.goto(root);
  assert.equal(refused.status(), 401);
  assert.doesNotMatch(await page.content(), /engine|composer|opencode/);
  assert.equal((await page.evaluate(() => fetch("/status/events").then((answer) => answer.status))), 401);
  await page.getByLabel("token").fill("not-the-token-at-all");
  await page.keyboard.press("Enter");
  await page.getByText("This is not the gateway’s token.").waitFor();

  // With it: a cookie that scripts cannot read, and which opens the page only.
  await page.getByLabel("token").fill(token);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Sessions" }).waitFor();
  assert.equal(page.url(), `${root}/`);
  assert.equal(await page.evaluate(() => document.cookie), "");
  const [cookie] = await browser.cookies();
  assert.ok(cookie.httpOnly && cookie.sameSite === "Strict" && cookie.value !== token, JSON.stringify(cookie));
  assert.equal(await page.evaluate(() => fetch("/v1/models").then((answer) => answer.status)), 401);

  // The session is displayed while its turn waits for the client's tool. Its name is only text.
  const row = page.locator("#sessions tr");
  await row.getByText("waits for the client: look").waitFor();
  assert.equal(await row.locator("td").first().textContent(), NAME);
  assert.match(await row.textContent(), /engine-editor\/1\.2.*composer-2.*ada\/engine/);
  await page.getByText("1 run waits for a client").waitFor();
  assert.equal(await page.evaluate(() => window.bad), undefined);

  // It changes by itself when the turn ends.
  messages.push({ role: "tool", tool_call_id: messages.at(-1).tool_calls[0].id, content: "seen" });
  assert.equal((await turn()).content, "Done.");
  await row.getByText("answered", { exact: true }).waitFor();
  await page.getByText("0 runs wait for a client").waitFor();
  assert.equal(await page.locator("#turns tr").count(), 2);
  assert.match(await page.locator("#turns tr").last().textContent(), /called tools: look/);
  assert.match(await page.locator("#turns .bar").last().getAttribute("aria-label"), /waits for the client [\d.]+ s/);

  // The keyboard reaches every control; a choice changes the settings.
  const reached = new Set();
  await page.evaluate(() => document.activeElement?.blur());
  for (let step = 0; step < 12; step += 1) {
    await page.keyboard.press("Tab");
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute("aria-labelledby")));
  }
  for (const id of ["sign-out", "sessions-title", "turns-title", "client", "copy", "settings"]) {
    assert.ok(reached.has(id), `${id} of ${[...reached]}`);
  }
  await page.locator("#client").focus();
  await page.keyboard.type("codex");
  await page.locator("#settings", { hasText: 'wire_api = "responses"' }).waitFor();
  assert.doesNotMatch(await page.content(), new RegExp(token));

  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  if (pictures) await page.screenshot({ path: join(pictures, "light.png") });
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await background();
  assert.notEqual(dark, light);
  if (pictures) await page.screenshot({ path: join(pictures, "dark.png") });

  await page.locator("#sign-out").focus();
  await page.keyboard.press("Enter");
  await page.getByLabel("token").waitFor();
  assert.equal(await page.evaluate(() => fetch("/status/events").then((answer) => answer.status)), 401);
  assert.deepEqual({ foreign, problems }, { foreign: [], problems: [] });
  console.log(JSON.stringify({ light, dark, reached: [...reached] }));
} finally {
  await browser.close();
  rmSync(folder, { recursive: true, force: true });
}
