`serial = true`: one request at a time in each session. The others wait in line, `session_wait_timeout` at most, then 429 `session_busy`.
