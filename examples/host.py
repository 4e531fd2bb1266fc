#!/usr/bin/env python3
"""A host of cursor-sidecar in one page: asks a question, executes the tool calls, prints the answer.

Usage: host.py "What is in README.md?" [path of cursor-sidecar]
The key is taken from CURSOR_API_KEY, or from `cursor-sidecar login`."""
import json
import os
import subprocess
import sys
import uuid


class Sidecar:
    """One sidecar process. Requests are sent one at a time."""

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.last_id = 0

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def receive(self):
        length = None
        while (line := self.process.stdout.readline().strip()) or length is None:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
            elif not line:
                raise EOFError("cursor-sidecar ended")
        return json.loads(self.process.stdout.read(length))

    def request(self, method, params, on_event=lambda event: None):
        """Sends a request and returns its result. Events of turns go to `on_event`."""
        self.last_id += 1
        self.send({"id": self.last_id, "method": method, "params": params})
        while True:
            message = self.receive()
            if message.get("method") == "turn/event":
                for event in message["params"]["events"]:
                    on_event(event)
            elif message.get("method") == "log/message":
                print(message["params"]["message"], file=sys.stderr)
            elif message.get("id") == self.last_id:
                if "error" in message:
                    raise RuntimeError(message["error"]["message"])
                return message["result"]


READ = {
    "name": "read",
    "description": "Read a text file",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    },
}


def read(arguments):
    """Executes a call of the tool `read`. Returns its text and whether it failed."""
    try:
        with open(arguments["path"], encoding="utf-8") as file:
            return file.read(), False
    except (OSError, KeyError) as error:
        return str(error), True


def main(question, binary="cursor-sidecar"):
    sidecar = Sidecar(binary)
    sidecar.request("initialize", {
        "protocolVersion": 1,
        "host": {"name": "example", "cwd": os.getcwd(), "processId": os.getpid()},
        "capabilities": {"tools": "between"},
        "nativeTools": {"default": "host"},
    })
    model = sidecar.request("models/list", {"refresh": False})["models"][0]["id"]
    session = str(uuid.uuid4())
    messages = [{"role": "user", "content": question}]
    for turn in range(20):
        text, calls = [], []

        def on_event(event):
            if event["type"] == "text":
                text.append(event["text"])
                print(event["text"], end="", flush=True)
            elif event["type"] == "toolCall":
                calls.append(event)

        result = sidecar.request("turn/start", {
            "turnId": f"turn-{turn}",
            "sessionId": session,
            "messages": messages,
            "tools": [READ],
            "model": {"id": model},
        }, on_event)
        if result["stopReason"] != "toolUse":
            break
        # The calls and their results go to the end of the history; the run continues there.
        messages.append({"role": "assistant", "content": [
            {"type": "text", "text": "".join(text)},
            *({"type": "toolCall", "id": call["id"], "name": call["name"], "arguments": call["arguments"]}
              for call in calls),
        ]})
        for call in calls:
            content, failed = read(call["arguments"])
            messages.append({"role": "toolResult", "toolCallId": call["id"], "toolName": call["name"],
                             "content": [{"type": "text", "text": content}], "isError": failed})
    print()
    sidecar.process.stdin.close()
    sidecar.process.wait()
    if result["stopReason"] == "error":
        sys.exit(result["errorMessage"])


if __name__ == "__main__":
    main(*sys.argv[1:])
