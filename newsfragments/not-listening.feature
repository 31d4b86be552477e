A program that ran and never listened where it should was told so with the port, how it gets it (`PORT`, `{port}`) and where it listened
instead: in the log, in the answers of starts that failed for it, and in `sticky containers show`. Backends that are plugins must now say
what their containers wait for (`IContainer.waits_for`).
