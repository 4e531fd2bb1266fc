"""OpenAI's and Anthropic's Python libraries, which check every field of a response if asked to."""

import os

import anthropic
import openai

URL = os.environ["OPENAI_BASE_URL"]
TOKEN = os.environ["OPENAI_API_KEY"]
PROPERTIES = {"file": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["file"]}


def read(arguments):
    with open(arguments["file"], encoding="utf-8") as file:
        return file.read()


def chat(client):
    import json

    tool = {"type": "function", "function": {"name": "view_file", "description": "Reads.", "parameters": SCHEMA}}
    messages = [{"role": "user", "content": "go"}]
    while True:
        answer = client.chat.completions.create(model="composer-2", messages=messages, tools=[tool])
        message = answer.choices[0].message
        if not message.tool_calls:
            break
        messages.append(message)
        for call in message.tool_calls:
            result = read(json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    stream = client.chat.completions.create(
        model="composer-2", messages=[{"role": "user", "content": "again"}], stream=True,
        stream_options={"include_usage": True},
    )
    assert list(stream)[-1].usage.total_tokens > 0
    return message.content


def responses(client):
    import json

    tool = {"type": "function", "name": "view_file", "description": "Reads.", "parameters": SCHEMA, "strict": False}
    asked, previous = "go", None
    while True:
        with client.responses.stream(
            model="composer-2", input=asked, tools=[tool], previous_response_id=previous
        ) as stream:
            for _ in stream:
                pass
            answer = stream.get_final_response()
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            break
        previous = answer.id
        asked = [
            {"type": "function_call_output", "call_id": call.call_id, "output": read(json.loads(call.arguments))}
            for call in calls
        ]
    whole = client.responses.create(model="composer-2", input="again")
    assert whole.status == "completed"
    return answer.output_text


def messages(client):
    tool = {"name": "view_file", "description": "Reads.", "input_schema": SCHEMA}
    history = [{"role": "user", "content": "go"}]
    while True:
        with client.messages.stream(
            model="composer-2", max_tokens=20000, messages=history, tools=[tool],
            thinking={"type": "enabled", "budget_tokens": 2000},
        ) as stream:
            answer = stream.get_final_message()
        history.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": read(block.input)}
            for block in answer.content if block.type == "tool_use"
        ]
        if not results:
            break
        history.append({"role": "user", "content": results})
    whole = client.messages.create(model="composer-2", max_tokens=20000, messages=[{"role": "user", "content": "again"}])
    assert whole.stop_reason in ("end_turn", "tool_use")
    return "".join(block.text for block in answer.content if block.type == "text")


def main():
    theirs = openai.OpenAI(base_url=URL, api_key=TOKEN, max_retries=0, _strict_response_validation=True)
    other = anthropic.Anthropic(
        base_url=URL.removesuffix("/v1"), api_key=TOKEN, max_retries=0, _strict_response_validation=True
    )
    theirs.models.list()
    other.models.list()
    for run, client in ((chat, theirs), (responses, theirs), (messages, other)):
        text = run(client)
        assert text.endswith("Done."), (run.__name__, text)
        print(run.__name__, "ok")


main()
