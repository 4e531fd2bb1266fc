// An editor that uses the official SDK: starts the agent, sends prompts, executes what it asks for, and
// prints what happened as JSON. Arguments: the agent's program, and a file with the plan:
// {cwd, capabilities, prompts, sessionId?, resume?, model?, mode?, choose?, unsaved?, delete?}. A session
// that is loaded sends its history, one that is resumed does not. At the end the session is closed.
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { Readable, Writable } from 'node:stream';
import { client, methods, ndJsonStream, PROTOCOL_VERSION } from '@agentclientprotocol/sdk';

const [program, planFile] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(planFile, 'utf8'));
const agent = spawn(program, ['acp'], { stdio: ['pipe', 'pipe', 'inherit'] });
const stream = ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const seen = { updates: [], permissions: [], requests: [], answers: [] };
const terminals = new Map();
const choices = [...(plan.choose ?? [])];

const app = client({ name: 'test-editor' })
  .onNotification(methods.client.session.update, ({ params }) => {
    seen.updates.push(params.update);
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.permissions.push(params.toolCall.title);
    const kind = choices.shift() ?? 'allow_once';
    const option = params.options.find((it) => it.kind === kind);
    return { outcome: { outcome: 'selected', optionId: option.optionId } };
  })
  .onRequest(methods.client.fs.readTextFile, ({ params }) => {
    seen.requests.push(['read', params.path]);
    return { content: plan.unsaved?.[params.path] ?? readFileSync(params.path, 'utf8') };
  })
  .onRequest(methods.client.fs.writeTextFile, ({ params }) => {
    seen.requests.push(['write', params.path]);
    writeFileSync(params.path, params.content);
    return {};
  })
  .onRequest(methods.client.terminal.create, ({ params }) => {
    const terminalId = `terminal-${terminals.size}`;
    seen.requests.push(['terminal', ...params.args]);
    const child = spawn(params.command, params.args, { cwd: params.cwd });
    const terminal = { output: '' };
    for (const output of [child.stdout, child.stderr]) {
      output.on('data', (data) => (terminal.output += data));
    }
    terminal.exit = new Promise((resolve) =>
      child.on('close', (exitCode, signal) => resolve({ exitCode, signal })),
    );
    terminals.set(terminalId, terminal);
    return { terminalId };
  })
  .onRequest(methods.client.terminal.waitForExit, ({ params }) => terminals.get(params.terminalId).exit)
  .onRequest(methods.client.terminal.output, ({ params }) => ({
    output: terminals.get(params.terminalId).output,
    truncated: false,
  }))
  .onRequest(methods.client.terminal.release, () => ({}));

await app.connectWith(stream, async (context) => {
  const { agent: call } = methods;
  seen.initialized = await context.request(call.initialize, {
    protocolVersion: PROTOCOL_VERSION,
    clientCapabilities: plan.capabilities,
  });
  const place = { cwd: plan.cwd, mcpServers: plan.mcpServers ?? [] };
  let sessionId = plan.sessionId;
  if (plan.resume) {
    seen.session = await context.request(call.session.resume, { ...place, sessionId });
    seen.replayed = seen.updates.splice(0);
  } else if (sessionId) {
    seen.session = await context.request(call.session.load, { ...place, sessionId });
    seen.replayed = seen.updates.splice(0);
  } else {
    seen.session = await context.request(call.session.new, place);
    ({ sessionId } = seen.session);
  }
  seen.sessionId = sessionId;
  if (plan.model) {
    const option = { sessionId, configId: 'model', value: plan.model };
    seen.options = (await context.request(call.session.setConfigOption, option)).configOptions;
  }
  if (plan.mode) await context.request(call.session.setMode, { sessionId, modeId: plan.mode });
  for (const text of plan.prompts) {
    const prompt = [{ type: 'text', text }];
    seen.answers.push((await context.request(call.session.prompt, { sessionId, prompt })).stopReason);
  }
  await context.request(call.session.close, { sessionId });
  if (plan.delete) await context.request(call.session.delete, { sessionId });
  seen.listed = (await context.request(call.session.list, {})).sessions;
});
agent.stdin.end();
process.stdout.write(JSON.stringify(seen));
