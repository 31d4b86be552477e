`packages` of sandboxes are installed by uv where the interpreter has no pip, as in an environment that uv made.
