"""The app, for all files that put a Server on it."""

from sticky import App

app = App("project")
other: App = App("other")
