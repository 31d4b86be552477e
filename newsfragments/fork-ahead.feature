A sandbox and a Python Server's container are forked ahead and only told which container they are: the first answer comes in half the time.
