Function calls that keep their state: `sticky.remote`, `sticky.Session` and a Server with a `sandbox` table.
