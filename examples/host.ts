// A host of cursor-sidecar in one page: asks a question, executes the tool calls, prints the answer.
//
// Usage: node host.ts "What is in README.md?" [path of cursor-sidecar]
// (Node 24, or Node 22.18 and later; there is nothing to install.)
// The key is taken from CURSOR_API_KEY, or from `cursor-sidecar login`.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

type Json = any;
type Waiting = { resolve: (result: Json) => void; reject: (error: Error) => void };

/** One sidecar process. Any number of requests may be open. */
class Sidecar {
  private process: ChildProcess;
  private buffer = Buffer.alloc(0);
  private lastId = 0;
  private open = new Map<number, Waiting>();
  onEvent: (event: Json) => void = () => {};

  constructor(binary: string) {
    this.process = spawn(binary, [], { stdio: ['pipe', 'pipe', 'inherit'] });
    this.process.stdout!.on('data', (data: Buffer) => {
      this.buffer = Buffer.concat([this.buffer, data]);
      for (let message = this.take(); message; message = this.take()) this.receive(message);
    });
    this.process.on('exit', () => {
      for (const { reject } of this.open.values()) reject(new Error('cursor-sidecar ended'));
    });
  }

  /** Returns the next complete message: a header with its length, an empty line, the body. */
  private take(): Json {
    const end = this.buffer.indexOf('\r\n\r\n');
    if (end < 0) return undefined;
    const length = Number(/content-length: *(\d+)/i.exec(this.buffer.toString('latin1', 0, end))![1]);
    const body = this.buffer.subarray(end + 4, end + 4 + length);
    if (body.length < length) return undefined;
    this.buffer = this.buffer.subarray(end + 4 + length);
    return JSON.parse(body.toString());
  }

  private receive(message: Json) {
    if (message.method === 'turn/event') message.params.events.forEach(this.onEvent);
    else if (message.method === 'log/message') console.error(message.params.message);
    else if (this.open.has(message.id)) {
      const { resolve, reject } = this.open.get(message.id)!;
      this.open.delete(message.id);
      if (message.error) reject(new Error(message.error.message));
      else resolve(message.result);
    }
  }

  /** Sends a request and returns its result. */
  request(method: string, params: Json): Promise<Json> {
    const id = ++this.lastId;
    const body = JSON.stringify({ jsonrpc: '2.0', id, method, params });
    this.process.stdin!.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
    return new Promise((resolve, reject) => this.open.set(id, { resolve, reject }));
  }

  /** Ends the sidecar: it exits when its input ends. */
  close(): Promise<void> {
    this.process.stdin!.end();
    return new Promise((resolve) => this.process.once('exit', () => resolve()));
  }
}

const READ = {
  name: 'read',
  description: 'Read a text file',
  parameters: { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] },
};

/** Executes a call of the tool `read`. */
function read(args: { path: string }): { text: string; failed: boolean } {
  try {
    return { text: readFileSync(args.path, 'utf8'), failed: false };
  } catch (error) {
    return { text: String(error), failed: true };
  }
}

const [question, binary = 'cursor-sidecar'] = process.argv.slice(2);
const sidecar = new Sidecar(binary);
await sidecar.request('initialize', {
  protocolVersion: 1,
  host: { name: 'example', cwd: process.cwd(), processId: process.pid },
  capabilities: { tools: 'between' },
  nativeTools: { default: 'host' },
});
const { models } = await sidecar.request('models/list', { refresh: false });
const sessionId = randomUUID();
const messages: Json[] = [{ role: 'user', content: question }];
let result: Json;
for (let turn = 0; turn < 20; turn++) {
  let text = '';
  const calls: Json[] = [];
  sidecar.onEvent = (event) => {
    if (event.type === 'text') {
      text += event.text;
      process.stdout.write(event.text);
    } else if (event.type === 'toolCall') calls.push(event);
  };
  const model = { id: models[0].id };
  result = await sidecar.request('turn/start', { turnId: `turn-${turn}`, sessionId, messages, tools: [READ], model });
  if (result.stopReason !== 'toolUse') break;
  // The calls and their results go to the end of the history; the run continues there.
  const made = calls.map(({ id, name, arguments: args }) => ({ type: 'toolCall', id, name, arguments: args }));
  messages.push({ role: 'assistant', content: [{ type: 'text', text }, ...made] });
  for (const call of calls) {
    const { text, failed } = read(call.arguments);
    const content = [{ type: 'text', text }];
    messages.push({ role: 'toolResult', toolCallId: call.id, toolName: call.name, content, isError: failed });
  }
}
console.log();
await sidecar.close();
if (result.stopReason === 'error') {
  console.error(result.errorMessage);
  process.exitCode = 1;
}
