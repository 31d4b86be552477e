-- For wrk: requests of a browser whose path and query differ from one to the next, so that no cache of whole heads can shine.
-- Arguments: the header lines to add, joined by "|"; "close" for a new connection per request.
local ready, nth = {}, 0

function init(args)
  local headers = {
    ["User-Agent"] = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    ["Accept"] = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    ["Accept-Language"] = "en-US,en;q=0.5",
    ["Accept-Encoding"] = "gzip, deflate",
    ["Referer"] = "http://localhost/app/",
  }
  for line in string.gmatch(args[1] or "", "[^|]+") do
    local name, value = string.match(line, "^([^:]+): (.*)$")
    headers[name] = value
  end
  if args[2] == "close" then headers["Connection"] = "close" end
  math.randomseed(1)
  for i = 1, 20000 do
    local path = string.format("/app/%06x/item%d?page=%d&sort=%s", math.random(0, 0xffffff), i, math.random(1, 500), i % 2 == 0 and "new" or "top")
    ready[i] = wrk.format("GET", path, headers)
  end
end

function request()
  nth = nth % 20000 + 1
  return ready[nth]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nJSON {"count": %d, "seconds": %.6f, "p50": %.2f, "p99": %.2f, "bad": %d, "lost": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
