A forked container's memory is made ready by what containers before it really used, and a Python Server that says that it is ready is not knocked at
first. How a forked container ended is not lost any more on a machine that is busy.
