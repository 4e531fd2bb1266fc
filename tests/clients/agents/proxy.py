"""A conversation with a tool through LiteLLM's proxy, which uses the gateway as its provider."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from openai import OpenAI

KEY = "sk-proxy-of-the-test"
config = {
    "model_list": [
        {
            "model_name": "cursor",
            "litellm_params": {
                "model": "openai/composer-2",
                "api_base": os.environ["OPENAI_BASE_URL"],
                "api_key": "os.environ/OPENAI_API_KEY",
            },
        }
    ]
}
with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    file = Path(folder, "config.yaml")
    file.write_text(json.dumps(config))
    program = Path(sys.executable).with_name("litellm")
    command = [program, "--config", file, "--host", "127.0.0.1", "--port", str(port)]
    proxy = subprocess.Popen(command, env={**os.environ, "LITELLM_MASTER_KEY": KEY}, stdout=sys.stderr)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness").close()
                break
            except OSError:
                assert proxy.poll() is None and time.monotonic() < deadline, "the proxy does not start"
                time.sleep(0.2)
        client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY)
        parameters = {"type": "object", "properties": {"file": {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": "view_file", "parameters": parameters}}]
        messages = [{"role": "user", "content": "go"}]
        answer = client.chat.completions.create(model="cursor", messages=messages, tools=tools)
        message = answer.choices[0].message
        (call,) = message.tool_calls
        text = Path(json.loads(call.function.arguments)["file"]).read_text()
        messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": text}]
        # The second request is streamed.
        parts = client.chat.completions.create(model="cursor", messages=messages, tools=tools, stream=True)
        said = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert said == "Done.", said
        print(said)
    finally:
        proxy.terminate()
        proxy.wait()
