Containers of a heavy Python app are forked from a process that has prepared them: hooks with `@sticky.enter(snap=True)`, and modules in
`preimport`, run once for all containers of a deployment. `sticky status` shows that process, and why there is none.
