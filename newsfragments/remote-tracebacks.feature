A `RemoteExecutionError` that nobody catches shows where in the function it happened, and its `traceback` has the files and source lines of
your own code in place of `<dynamic-code>`.
