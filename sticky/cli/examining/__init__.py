"""What `sticky doctor` looks at: the machine, the state directory, the listeners, the programs. Nothing here changes anything.

Each check gives findings and may raise OSError; `everything` asks them all.
"""
