A misspelt argument of `@app.server()`, of the other decorators and of every call of the SDK is an `InvalidError` that says which argument,
what there is and what was perhaps meant.
