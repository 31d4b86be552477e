"""Configuration: one table of settings; sticky.toml, an app's declaration and the command line become frozen values.

`table` says what there is, `kinds` and `forms` what values are allowed, `loading` reads, `settings` is the result,
`document` writes docs/configuration.md. Must not start anything and must not import user code.
"""
