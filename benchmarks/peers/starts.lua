-- For wrk: starts sessions on the warm Server and terminates them, turn by turn, so that its places do not run out.
local tokens, threads = {}, {}
starts, bad = 0, 0

function setup(thread) table.insert(threads, thread) end

function request()
  local token = table.remove(tokens)
  if token then
    return wrk.format("POST", "/_modal/sessions/terminate", {["Host"] = "warm.localhost", ["x-modal-server-session-token"] = token})
  end
  return wrk.format("POST", "/_modal/sessions/start", {["Host"] = "warm.localhost"})
end

function response(status, headers, body)
  local token = string.match(body, '"token": ?"([^"]+)"')
  if token then
    starts = starts + 1
    table.insert(tokens, token)
  elseif status ~= 200 then
    bad = bad + 1
  end
end

function done(summary, latency)
  local all, failed = 0, 0
  for _, thread in ipairs(threads) do
    all = all + thread:get("starts")
    failed = failed + thread:get("bad")
  end
  io.write(string.format('\nJSON {"count": %d, "seconds": %.6f, "starts": %d, "bad": %d}\n',
    summary.requests, summary.duration / 1e6, all, failed))
end
