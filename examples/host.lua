-- A host of cursor-sidecar in one page: asks a question, executes the tool calls, prints the answer.
--
-- Usage: lua5.4 host.lua "What is in README.md?" [path of cursor-sidecar]
-- Needs lua-cjson. Plain Lua has no pipes in two directions, so two named ones are made; in Neovim use
-- vim.system or vim.uv.spawn, and vim.json, instead.
-- The key is taken from CURSOR_API_KEY, or from `cursor-sidecar login`.
local json = require("cjson")

local question, binary = arg[1], arg[2] or "cursor-sidecar"

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

-- One sidecar process. Requests are sent one at a time.
local Sidecar = { last_id = 0 }

function Sidecar.start()
  local folder = io.popen("mktemp -d"):read("l")
  local input, output = folder .. "/in", folder .. "/out"
  assert(os.execute(("mkfifo -m 600 %s %s"):format(quoted(input), quoted(output))))
  Sidecar.process = io.popen(("%s < %s > %s"):format(quoted(binary), quoted(input), quoted(output)), "w")
  Sidecar.input = assert(io.open(input, "w"))
  Sidecar.output = assert(io.open(output, "r"))
  os.execute("rm -r " .. quoted(folder)) -- both pipes are open
end

function Sidecar.send(message)
  message.jsonrpc = "2.0"
  local body = json.encode(message)
  Sidecar.input:write(("Content-Length: %d\r\n\r\n%s"):format(#body, body))
  Sidecar.input:flush()
end

function Sidecar.receive()
  local length
  for line in Sidecar.output:lines() do
    length = tonumber(line:lower():match("^content%-length: *(%d+)")) or length
    if line == "\r" and length then
      return json.decode(Sidecar.output:read(length))
    end
  end
  error("cursor-sidecar ended")
end

-- Sends a request and returns its result. Events of turns go to `on_event`.
function Sidecar.request(method, params, on_event)
  Sidecar.last_id = Sidecar.last_id + 1
  Sidecar.send({ id = Sidecar.last_id, method = method, params = params })
  while true do
    local message = Sidecar.receive()
    if message.method == "turn/event" then
      for _, event in ipairs(message.params.events) do
        on_event(event)
      end
    elseif message.method == "log/message" then
      io.stderr:write(message.params.message, "\n")
    elseif message.id == Sidecar.last_id then
      return message.result or error(message.error.message)
    end
  end
end

local READ = {
  name = "read",
  description = "Read a text file",
  parameters = { type = "object", properties = { path = { type = "string" } }, required = { "path" } },
}

-- Executes a call of the tool `read`. Returns its text and whether it failed.
local function read(arguments)
  local file, problem = io.open(arguments.path, "r")
  if not file then
    return problem, true
  end
  local text = file:read("a")
  file:close()
  return text, false
end

Sidecar.start()
Sidecar.request("initialize", {
  protocolVersion = 1,
  host = { name = "example", cwd = os.getenv("PWD") },
  capabilities = { tools = "between" },
  nativeTools = { default = "host" },
})
local models = Sidecar.request("models/list", { refresh = false }).models
local session = ("lua-%d-%d"):format(os.time(), math.random(1 << 30))
local messages = { { role = "user", content = question } }
local result
for turn = 1, 20 do
  local text, calls = "", {}
  result = Sidecar.request("turn/start", {
    turnId = "turn-" .. turn,
    sessionId = session,
    messages = messages,
    tools = { READ },
    model = { id = models[1].id },
  }, function(event)
    if event.type == "text" then
      text = text .. event.text
      io.write(event.text)
    elseif event.type == "toolCall" then
      table.insert(calls, event)
    end
  end)
  if result.stopReason ~= "toolUse" then
    break
  end
  -- The calls and their results go to the end of the history; the run continues there.
  local content = { { type = "text", text = text } }
  for _, call in ipairs(calls) do
    table.insert(content, { type = "toolCall", id = call.id, name = call.name, arguments = call.arguments })
  end
  table.insert(messages, { role = "assistant", content = content })
  for _, call in ipairs(calls) do
    local output, failed = read(call.arguments)
    table.insert(messages, {
      role = "toolResult",
      toolCallId = call.id,
      toolName = call.name,
      content = { { type = "text", text = output } },
      isError = failed,
    })
  end
end
print()
Sidecar.input:close() -- the sidecar exits when its input ends
Sidecar.output:close()
Sidecar.process:close()
if result.stopReason == "error" then
  io.stderr:write(result.errorMessage, "\n")
  os.exit(1)
end
