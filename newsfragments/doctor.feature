`sticky doctor` looks at every secret's file, at listeners and the admin API without TLS, and at the user that containers run as; it takes
`--app` beside `--config`.
